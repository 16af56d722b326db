//! What stops the process before it starts.

use std::{fmt, path::PathBuf};

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The configuration file cannot be read.
    #[error("cannot read {}: {reason}{cure}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: String,
        /// What to do, starting with "; ", or empty.
        cure: String,
    },
    /// The configuration file is not in the INI dialect.
    #[error("{}:{line}:{column}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong there.
        reason: String,
    },
    /// One value is wrong by itself.
    #[error("{setting} {reason}")]
    Value {
        /// Its name, text and origin.
        setting: String,
        /// What is wrong and how to write it.
        reason: String,
    },
    /// Settings do not go together.
    #[error("{0}")]
    Conflict(String),
    /// Several of these, in the order of the option table.
    #[error("{} problems in the configuration:{}", .0.len(), Bullets(.0))]
    Several(Vec<ConfigError>),
}

struct Bullets<'a>(&'a [ConfigError]);

impl fmt::Display for Bullets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|e| write!(f, "\n  - {e}"))
    }
}

impl ConfigError {
    /// Nothing, the one error, or [`ConfigError::Several`].
    pub(crate) fn collect(mut errors: Vec<ConfigError>) -> Result<(), ConfigError> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several(errors)),
        }
    }
}
