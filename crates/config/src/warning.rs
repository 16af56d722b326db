//! What the operator should know but does not stop the process.

use std::{fmt, path::PathBuf};

/// One warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// The file has a section nobody reads.
    UnknownSection {
        /// The file.
        path: PathBuf,
        /// Its line.
        line: usize,
        /// The section.
        section: String,
    },
    /// The file has a key nobody reads.
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// Its line.
        line: usize,
        /// The section.
        section: String,
        /// The key.
        key: String,
        /// A key that looks like it.
        suggestion: Option<String>,
    },
    /// The file sets a key twice; the last one counts.
    RepeatedKey {
        /// The file.
        path: PathBuf,
        /// Line of the one that counts.
        line: usize,
        /// Section and key.
        key: String,
    },
    /// An old name was used.
    Deprecated {
        /// As written.
        used: String,
        /// What to write.
        instead: String,
    },
    /// Settings of a feature that this build lacks.
    NotBuilt {
        /// What operators call it.
        feature: &'static str,
        /// The settings that were given.
        settings: Vec<String>,
    },
    /// A flag that repeats the default does not override the file.
    FileKept {
        /// The flag and its text.
        flag: String,
        /// The file's value and place.
        kept: String,
    },
    /// Something else worth knowing.
    Note(String),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownSection { path, line, section } => {
                write!(f, "{}:{line}: unknown section [{section}], ignored", path.display())
            }
            Self::UnknownKey { path, line, section, key, suggestion } => {
                write!(f, "{}:{line}: unknown key {key:?} in section [{section}], ignored", path.display())?;
                suggestion.as_ref().map_or(Ok(()), |s| write!(f, "; did you mean {s:?}?"))
            }
            Self::RepeatedKey { path, line, key } => {
                write!(f, "{}:{line}: {key} is set again; this last value counts", path.display())
            }
            Self::Deprecated { used, instead } => write!(f, "{used} is deprecated; use {instead}"),
            Self::NotBuilt { feature, settings } => {
                write!(f, "{feature}: not built yet, so this has no effect: {}", settings.join(", "))
            }
            Self::FileKept { flag, kept } => write!(
                f,
                "{flag} repeats the default and therefore does not override {kept}; change the file to change the value"
            ),
            Self::Note(text) => f.write_str(text),
        }
    }
}
