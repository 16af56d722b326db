//! `10-ovn-kubernetes.conf`: the file whose presence tells the container runtime that the node's network is ready.
//!
//! Owned by the agent and written as the last step of start-up, whole or not at all. It stays when the agent
//! stops: pods keep their network, and a restart must not make the kubelet report the node as not ready.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::settings::CniConf;

/// Name of the file below the configuration directory.
pub const FILE_NAME: &str = "10-ovn-kubernetes.conf";

/// Name of the CNI server's socket in its directory.
const SOCKET_NAME: &str = "ovn-cni-server.sock";

/// Path of the file.
pub fn path(conf: &CniConf) -> PathBuf {
    conf.dir.join(FILE_NAME)
}

#[derive(Serialize)]
struct Empty {}

/// Field order is the order of the keys in the file: the CNI base fields, then the plugin's own.
#[derive(Serialize)]
struct NetConf<'a> {
    #[serde(rename = "cniVersion")]
    cni_version: &'a str,
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    ipam: Empty,
    dns: Empty,
    #[serde(rename = "logFile", skip_serializing_if = "str::is_empty")]
    log_file: &'a str,
    #[serde(rename = "logLevel", skip_serializing_if = "str::is_empty")]
    log_level: &'a str,
    #[serde(rename = "logfile-maxsize")]
    log_max_size: u32,
    #[serde(rename = "logfile-maxbackups")]
    log_max_backups: u32,
    #[serde(rename = "logfile-maxage")]
    log_max_age: u32,
    #[serde(rename = "runtimeConfig")]
    runtime_config: Empty,
}

/// The file's content.
pub fn render(conf: &CniConf) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&NetConf {
        cni_version: &conf.version,
        name: "ovn-kubernetes",
        kind: &conf.plugin,
        ipam: Empty {},
        dns: Empty {},
        log_file: &conf.log_file,
        log_level: &conf.log_level,
        log_max_size: conf.log_max_size,
        log_max_backups: conf.log_max_backups,
        log_max_age: conf.log_max_age,
        runtime_config: Empty {},
    })
}

/// Puts the file in place unless it already holds exactly these bytes; tells whether it wrote.
pub fn write(conf: &CniConf) -> io::Result<bool> {
    let path = path(conf);
    let bytes = render(conf).map_err(io::Error::other)?;
    if fs::read(&path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    fs::create_dir_all(&conf.dir)?;
    // The runtime ignores names that do not end in .conf, .conflist or .json.
    let temporary = conf.dir.join(format!(".{FILE_NAME}.new"));
    let mut file = fs::File::create(&temporary)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, &path)?;
    if let Ok(dir) = fs::File::open(&conf.dir) {
        // Best effort: some file systems refuse to sync a directory.
        let _ = dir.sync_all();
    }
    Ok(true)
}

/// Removes the file; tells whether there was one.
pub fn remove(conf: &CniConf) -> io::Result<bool> {
    remove_path(&path(conf))
}

/// Whether the file was written before the machine was last started: it is older than that moment, and no CNI server
/// has run since (its directory lives in memory). Both signs must agree, for clocks get corrected after a start.
pub fn is_from_before_boot(conf: &CniConf, cni_dir: &Path) -> bool {
    let Ok(written) = fs::metadata(path(conf)).and_then(|meta| meta.modified()) else { return false };
    let Some(booted) = fs::read_to_string("/proc/stat").ok().as_deref().and_then(boot_time) else {
        return false;
    };
    written < booted && !cni_dir.join(SOCKET_NAME).exists()
}

fn boot_time(stat: &str) -> Option<SystemTime> {
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.trim().parse().ok()?))
}

fn remove_path(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf_in(dir: &Path) -> CniConf {
        CniConf { dir: dir.join("net.d"), ..CniConf::default() }
    }

    #[test]
    fn shape_and_key_order_are_the_contract() {
        let text = String::from_utf8(render(&CniConf::default()).unwrap()).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"cniVersion":"1.1.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay","ipam":{},"dns":{},"#,
                r#""logFile":"/var/log/ovn-kubernetes/ovn-k8s-cni-overlay.log","logLevel":"4","#,
                r#""logfile-maxsize":100,"logfile-maxbackups":5,"logfile-maxage":5,"runtimeConfig":{}}"#
            )
        );
    }

    #[test]
    fn empty_optional_strings_are_dropped_and_the_version_is_a_setting() {
        let conf = CniConf {
            version: "1.0.0".into(),
            log_file: String::new(),
            log_level: String::new(),
            ..CniConf::default()
        };
        let text = String::from_utf8(render(&conf).unwrap()).unwrap();
        assert!(text.starts_with(r#"{"cniVersion":"1.0.0","#), "{text}");
        assert!(!text.contains("logFile") && !text.contains("logLevel"), "{text}");
    }

    #[test]
    fn written_once_and_replaced_only_when_the_bytes_differ() {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf_in(dir.path());
        assert!(write(&conf).unwrap());
        assert!(!write(&conf).unwrap(), "a second run must not touch the file");
        fs::write(path(&conf), b"{}").unwrap();
        assert!(write(&conf).unwrap());
        assert_eq!(fs::read(path(&conf)).unwrap(), render(&conf).unwrap());
        let names: Vec<_> = fs::read_dir(&conf.dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [FILE_NAME], "no temporary file may stay");
    }

    #[test]
    fn a_half_written_temporary_file_of_a_crashed_run_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf_in(dir.path());
        fs::create_dir_all(&conf.dir).unwrap();
        fs::write(conf.dir.join(format!(".{FILE_NAME}.new")), b"{\"cniVer").unwrap();
        assert!(write(&conf).unwrap());
        assert_eq!(fs::read(path(&conf)).unwrap(), render(&conf).unwrap());
    }

    #[test]
    fn a_file_of_an_earlier_boot_is_told_by_age_and_missing_socket() {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf_in(dir.path());
        let sockets = dir.path().join("cni");
        assert!(!is_from_before_boot(&conf, &sockets), "no file, nothing to discard");
        write(&conf).unwrap();
        assert!(!is_from_before_boot(&conf, &sockets), "written since the start");
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        fs::File::options().append(true).open(path(&conf)).unwrap().set_modified(old).unwrap();
        assert!(is_from_before_boot(&conf, &sockets));
        fs::create_dir_all(&sockets).unwrap();
        fs::write(sockets.join(SOCKET_NAME), b"").unwrap();
        assert!(!is_from_before_boot(&conf, &sockets), "a server has run since the start");
        assert_eq!(boot_time("cpu 1 2\nbtime 7\n"), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(7)));
        assert_eq!(boot_time("cpu 1 2\n"), None);
    }

    #[test]
    fn removal_is_idempotent() {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf_in(dir.path());
        assert!(!remove(&conf).unwrap());
        write(&conf).unwrap();
        assert!(remove(&conf).unwrap());
        assert!(!remove(&conf).unwrap());
    }
}
