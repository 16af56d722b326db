//! The one error type of the crate.

use std::{fmt, io};

use nix::errno::Errno;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a host operation failed. Each text names the operation and its object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a netlink request or an ioctl.
    #[error("{op}: {}{}", .errno.desc(), Detail(.detail))]
    Kernel {
        /// What was asked, with the object's name.
        op: String,
        /// The kernel's answer.
        errno: Errno,
        /// The kernel's own explanation (extended ack), where it gave one.
        detail: Option<String>,
    },
    /// A file or system call failed.
    #[error("{op}: {source}")]
    Io {
        /// What was tried, with the path.
        op: String,
        /// The system's error.
        source: io::Error,
    },
    /// The path exists but is not a network namespace (after a reboot it is an empty file).
    #[error("{0} is not a network namespace")]
    NotNetns(String),
    /// The named link does not exist in the namespace.
    #[error("no network interface {0}")]
    NoLink(String),
    /// An answer that makes no sense for the question.
    #[error("unexpected netlink answer: {0}")]
    Protocol(&'static str),
    /// The caller asked for something that cannot be expressed.
    #[error("{0}")]
    Invalid(String),
}

struct Detail<'a>(&'a Option<String>);

impl fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => write!(f, " ({text})"),
            None => Ok(()),
        }
    }
}

// === impl Error ===

impl Error {
    /// The errno, if the error carries one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Kernel { errno, .. } => Some(*errno),
            Error::Io { source, .. } => source.raw_os_error().map(Errno::from_raw),
            _ => None,
        }
    }

    /// True if the object was simply not there (a second delete, a link that is gone).
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NoLink(_) | Error::NotNetns(_))
            || matches!(
                self.errno(),
                Some(Errno::ENODEV | Errno::ENOENT | Errno::ESRCH | Errno::EADDRNOTAVAIL | Errno::ENXIO)
            )
    }

    /// True if the object existed already.
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(Errno::EEXIST)
    }

    pub(crate) fn kernel(op: impl fmt::Display, errno: Errno) -> Self {
        Error::Kernel { op: op.to_string(), errno, detail: None }
    }

    pub(crate) fn io(op: impl fmt::Display, source: io::Error) -> Self {
        Error::Io { op: op.to_string(), source }
    }
}
