//! The shim's log file, if the configuration names one: one line a failure.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use cni::{CniError, NetConf};

/// Appends the failure. A log that cannot be written must not make it worse.
pub(crate) fn failure(config: &[u8], error: &CniError) {
    let Ok(conf) = NetConf::parse(config) else { return };
    if conf.log_file.is_empty() {
        return;
    }
    let path = Path::new(&conf.log_file);
    rotate(path, conf.logfile_maxsize);
    let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) else { return };
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let var = |key| std::env::var(key).unwrap_or_default();
    let _ = writeln!(
        file,
        "{seconds} E pid={} command={} sandbox={} args={:?} code={} {error}",
        std::process::id(),
        var("CNI_COMMAND"),
        var("CNI_CONTAINERID"),
        var("CNI_ARGS"),
        error.code,
    );
}

/// Keeps one old file beside a log that has reached its size in megabytes.
fn rotate(path: &Path, megabytes: i64) {
    let Some(limit) = u64::try_from(megabytes).ok().filter(|m| *m > 0).map(|m| m << 20) else { return };
    if fs::metadata(path).is_ok_and(|meta| meta.len() >= limit) {
        let mut old = path.as_os_str().to_owned();
        old.push(".1");
        let _ = fs::rename(path, old);
    }
}
