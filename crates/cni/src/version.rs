//! Versions of the CNI specification.

use serde::Serialize;

use crate::error::{CniError, code};

/// Version of the plugin binary itself.
pub const PLUGIN_VERSION: &str = "0.0.2";

/// A version of the CNI specification we speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 0.1.0
    V010,
    /// 0.2.0
    V020,
    /// 0.3.0
    V030,
    /// 0.3.1
    V031,
    /// 0.4.0
    V040,
    /// 1.0.0
    V100,
    /// 1.1.0
    V110,
}

/// All versions we speak, oldest first.
pub const SUPPORTED: [Version; 7] =
    [Version::V010, Version::V020, Version::V030, Version::V031, Version::V040, Version::V100, Version::V110];

// === impl Version ===

impl Version {
    /// The version as written in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::V010 => "0.1.0",
            Version::V020 => "0.2.0",
            Version::V030 => "0.3.0",
            Version::V031 => "0.3.1",
            Version::V040 => "0.4.0",
            Version::V100 => "1.0.0",
            Version::V110 => "1.1.0",
        }
    }

    /// Reads a configuration's `cniVersion`; empty means 0.1.0 (the specification's rule for absent ones).
    pub fn parse(text: &str) -> Result<Version, CniError> {
        if text.is_empty() {
            return Ok(Version::V010);
        }
        SUPPORTED.into_iter().find(|v| v.as_str() == text).ok_or_else(|| {
            CniError::new(
                code::INCOMPATIBLE_VERSION,
                format!("CNI version {text:?} is not supported"),
                format!("supported versions are {}", SUPPORTED.map(Version::as_str).join(", ")),
            )
        })
    }
}

impl Serialize for Version {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The answer to VERSION, in the version the caller speaks (ours if it said none or an unknown one).
pub fn version_reply(caller: &str) -> String {
    let own = if caller.is_empty() { Version::V110.as_str() } else { caller };
    serde_json::json!({ "cniVersion": own, "supportedVersions": SUPPORTED }).to_string()
}
