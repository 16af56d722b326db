//! CNI errors: the object a plugin prints on failure.

use serde::{Deserialize, Serialize};

/// Error codes of the CNI specification.
pub mod code {
    /// The configuration's cniVersion is not one of ours, or does not know the command.
    pub const INCOMPATIBLE_VERSION: u32 = 1;
    /// A field of the configuration is not supported.
    pub const UNSUPPORTED_FIELD: u32 = 2;
    /// The container is unknown; no DEL is needed.
    pub const UNKNOWN_CONTAINER: u32 = 3;
    /// A `CNI_*` variable is missing or malformed.
    pub const INVALID_ENV: u32 = 4;
    /// Input or output failed.
    pub const IO: u32 = 5;
    /// The input is not the JSON it should be.
    pub const DECODE: u32 = 6;
    /// The network configuration is invalid.
    pub const INVALID_CONFIG: u32 = 7;
    /// The caller should try again later.
    pub const TRY_AGAIN: u32 = 11;
    /// STATUS: ADD cannot be served now.
    pub const NOT_AVAILABLE: u32 = 50;
    /// STATUS: ADD cannot be served, and existing containers may have limited connectivity.
    pub const LIMITED_CONNECTIVITY: u32 = 51;
    /// Anything else (the CNI library's internal error).
    pub const INTERNAL: u32 = 999;
}

/// A failure as a CNI error object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{msg}{}{details}", if details.is_empty() { "" } else { ": " })]
pub struct CniError {
    /// One of [`code`].
    pub code: u32,
    /// Short text.
    #[serde(default)]
    pub msg: String,
    /// Longer text; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

#[derive(Serialize)]
struct Printed<'a> {
    #[serde(rename = "cniVersion")]
    cni_version: &'a str,
    #[serde(flatten)]
    error: &'a CniError,
}

// === impl CniError ===

impl CniError {
    /// An error with both texts.
    pub fn new(code: u32, msg: impl Into<String>, details: impl Into<String>) -> CniError {
        CniError { code, msg: msg.into(), details: details.into() }
    }

    /// An error of the class the CNI library uses for plugin failures.
    pub fn internal(msg: impl Into<String>) -> CniError {
        CniError::new(code::INTERNAL, msg, "")
    }

    /// The object for the shim's standard output; `cni_version` is the configuration's.
    pub fn print(&self, cni_version: &str) -> String {
        serde_json::to_string(&Printed { cni_version, error: self }).unwrap_or_default()
    }

    /// The object as the server's answer body.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a server's error answer: a CNI error object, or plain text.
    pub fn from_body(status: u16, body: &[u8]) -> CniError {
        match serde_json::from_slice::<CniError>(body) {
            Ok(error) if error.code != 0 => error,
            _ => CniError::internal(format!(
                "CNI request failed with status {status}: '{}'",
                String::from_utf8_lossy(body).trim_end()
            )),
        }
    }
}
