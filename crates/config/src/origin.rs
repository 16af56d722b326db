//! Where a value came from.

use std::{fmt, path::PathBuf};

/// Source of one effective value, strongest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The configuration file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Line of the key, from 1.
        line: usize,
    },
    /// The environment.
    Env {
        /// Name of the variable.
        name: &'static str,
    },
    /// The pod's service account.
    ServiceAccount {
        /// The file.
        path: PathBuf,
    },
    /// The running kernel.
    Kernel {
        /// The file below /proc.
        path: PathBuf,
    },
    /// Nobody set it.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env { name } => write!(f, "environment {name}"),
            Self::ServiceAccount { path } => write!(f, "service account {}", path.display()),
            Self::Kernel { path } => write!(f, "kernel {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}
