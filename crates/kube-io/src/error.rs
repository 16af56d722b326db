//! What can go wrong with a request, sorted by what the caller should do about it.

use std::fmt;

/// What to do about a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Nobody knows whether it happened, or the server was busy: retry with backoff.
    Transient,
    /// The object changed, or it is another object of the same name by now: look again, then decide.
    Conflict,
    /// No such object (any more).
    NotFound,
    /// The server refuses this request; the same request will be refused again.
    Rejected,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transient => "transient",
            Self::Conflict => "conflict",
            Self::NotFound => "not found",
            Self::Rejected => "rejected",
        })
    }
}

/// A failed request, or settings that cannot lead to a connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The settings name a file or a value that cannot be used.
    #[error("Kubernetes API access: {0}")]
    Settings(String),
    /// The server answered with an error.
    #[error("{what}: the API server answered {code} {reason}: {message}")]
    Status {
        /// Verb and object, e.g. `patch nodes/node1 (status)`.
        what: String,
        /// HTTP status code.
        code: u16,
        /// The machine-readable reason, e.g. `AlreadyExists`; may be empty.
        reason: String,
        /// The server's words.
        message: String,
        /// Fields of the object that it found invalid.
        fields: Vec<String>,
    },
    /// No usable answer: not reachable, TLS failure, connection lost, bytes that are no answer.
    #[error("{what}: {message}")]
    Transport {
        /// Verb and object.
        what: String,
        /// The chain of causes in one line.
        message: String,
    },
}

impl Error {
    /// What the caller should do.
    pub fn class(&self) -> Class {
        match self {
            Self::Settings(_) => Class::Rejected,
            Self::Transport { .. } => Class::Transient,
            // A patch for an object that is gone by now, but has a successor of the same name, wants to change its uid.
            Self::Status { code: 422, fields, .. } if fields.iter().any(|field| field == "metadata.uid") => {
                Class::Conflict
            }
            // 401 comes and goes with rotating credentials
            Self::Status { code, .. } => match code {
                404 => Class::NotFound,
                409 => Class::Conflict,
                401 | 408 | 410 | 429 | 500..=599 => Class::Transient,
                _ => Class::Rejected,
            },
        }
    }

    /// True for a create that found the name taken.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::Status { reason, .. } if reason == "AlreadyExists")
    }

    /// The HTTP status code, if the server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub(crate) fn transport(what: impl Into<String>, error: &dyn std::error::Error) -> Self {
        Self::Transport { what: what.into(), message: chain(error) }
    }
}

/// An error and its sources in one line, without the repetitions that wrapping produces.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_classes() {
        for (code, field, class) in [
            (404, "", Class::NotFound),
            (409, "", Class::Conflict),
            (401, "", Class::Transient),
            (429, "", Class::Transient),
            (503, "", Class::Transient),
            (403, "", Class::Rejected),
            (422, "", Class::Rejected),
            (422, "spec", Class::Rejected),
            (422, "metadata.uid", Class::Conflict),
        ] {
            let error = Error::Status {
                what: String::new(),
                code,
                reason: String::new(),
                message: String::new(),
                fields: vec![field.to_string()],
            };
            assert_eq!(error.class(), class, "{code} {field}");
        }
    }
}
