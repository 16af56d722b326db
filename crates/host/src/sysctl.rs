//! Kernel settings below `/proc/sys`. `net.*` is that of the calling thread's namespace: use
//! [`crate::NetNs::run`] for another one.

use std::{fs, path::PathBuf};

use crate::{Error, Result};

/// Path of a key whose parts are given one by one, so that an interface name may contain dots.
fn path(parts: &[&str]) -> PathBuf {
    let mut path = PathBuf::from("/proc/sys");
    path.extend(parts);
    path
}

/// Reads a setting, e.g. `["net", "ipv4", "ip_forward"]`.
pub fn get(parts: &[&str]) -> Result<String> {
    fs::read_to_string(path(parts))
        .map(|text| text.trim_end().to_owned())
        .map_err(|e| Error::io(format_args!("read sysctl {}", parts.join("/")), e))
}

/// Writes a setting.
pub fn set(parts: &[&str], value: &str) -> Result<()> {
    fs::write(path(parts), value)
        .map_err(|e| Error::io(format_args!("set sysctl {} to {value}", parts.join("/")), e))
}

/// Writes a setting unless it has that value; true if it was changed.
pub fn ensure(parts: &[&str], value: &str) -> Result<bool> {
    if get(parts)? == value {
        return Ok(false);
    }
    set(parts, value)?;
    Ok(true)
}
