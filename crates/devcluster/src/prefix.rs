//! The OVN and Open vSwitch programs that a cluster runs.
//!
//! The system's own are used where they are new enough (OVN 24.03, the oldest whose Northbound database has what we
//! write). Else a *prefix* is made from Debian 13's packages: unpacked into a cache directory with their own C library,
//! every program started through that library's loader, so that they run on an older or another distribution without
//! touching it. Tests find the programs through `OVN_BIN_DIR`.

mod debian;
mod kubectl;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

pub use debian::have;
pub use kubectl::kubectl_dir;

/// The programs a prefix offers.
pub const PROGRAMS: [&str; 13] = [
    "ovsdb-server",
    "ovsdb-tool",
    "ovsdb-client",
    "ovs-vswitchd",
    "ovs-vsctl",
    "ovs-ofctl",
    "ovs-appctl",
    "ovn-northd",
    "ovn-controller",
    "ovn-nbctl",
    "ovn-sbctl",
    "ovn-appctl",
    "ovn-trace",
];

/// The oldest OVN we work with: year and month of its release.
pub const OLDEST_OVN: (u32, u32) = (24, 3);

/// Variable that names the directory of the programs.
pub const BIN_DIR_VARIABLE: &str = "OVN_BIN_DIR";

/// Where the programs and database schemas are.
#[derive(Debug, Clone)]
pub struct Prefix {
    bin: PathBuf,
    schemas: PathBuf,
}

// === impl Prefix ===

impl Prefix {
    /// The programs, without installing anything: `OVN_BIN_DIR`, the system's, or a prefix made earlier.
    pub fn find() -> Result<Self> {
        if let Some(prefix) = Self::ready()? {
            return Ok(prefix);
        }
        bail!("no OVN {}.{:02} or newer on this machine; run `cargo xtask setup`", OLDEST_OVN.0, OLDEST_OVN.1)
    }

    /// The programs; makes a prefix where the machine has none, telling `progress` what it does.
    pub fn find_or_make(progress: &dyn Fn(&str)) -> Result<Self> {
        if let Some(prefix) = Self::ready()? {
            return Ok(prefix);
        }
        debian::make(&cache_dir()?, progress)
    }

    fn ready() -> Result<Option<Self>> {
        if let Some(dir) = std::env::var_os(BIN_DIR_VARIABLE) {
            return Self::at(Path::new(&dir))
                .with_context(|| format!("{BIN_DIR_VARIABLE} names {}", Path::new(&dir).display()))
                .map(Some);
        }
        if let Some(system) = system() {
            return Ok(Some(system));
        }
        Ok(debian::newest(&cache_dir()?))
    }

    fn at(bin: &Path) -> Result<Self> {
        for program in PROGRAMS {
            if !bin.join(program).exists() {
                bail!("there is no {program} in {}", bin.display());
            }
        }
        // `…/ovn-<version>/bin` of a prefix keeps its schemas beside; a system directory has them in /usr/share.
        let beside = bin.parent().map(|up| up.join("schemas")).filter(|dir| dir.is_dir());
        Ok(Self { bin: bin.to_path_buf(), schemas: beside.unwrap_or_else(|| PathBuf::from("/usr/share")) })
    }

    /// Directory of the programs: the value for `OVN_BIN_DIR`.
    pub fn bin_dir(&self) -> &Path {
        &self.bin
    }

    /// Full path of one of [`PROGRAMS`].
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// A command for one of [`PROGRAMS`].
    pub fn command(&self, name: &str) -> Command {
        Command::new(self.program(name))
    }

    /// `ovn-nb.ovsschema`, `ovn-sb.ovsschema` or `vswitch.ovsschema`.
    pub fn schema(&self, file: &str) -> Result<PathBuf> {
        for dir in ["", "ovn", "openvswitch"] {
            let path = self.schemas.join(dir).join(file);
            if path.exists() {
                return Ok(path);
            }
        }
        bail!("there is no {file} under {}", self.schemas.display())
    }

    /// What `ovn-northd --version` says, first line.
    pub fn version(&self) -> Result<String> {
        let output = self.command("ovn-northd").arg("--version").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
    }
}

/// The system's programs, when all are there and new enough.
fn system() -> Option<Prefix> {
    let northd = which("ovn-northd")?;
    let output = Command::new(&northd).arg("--version").output().ok()?;
    let version = parse_version(&String::from_utf8_lossy(&output.stdout))?;
    if version < OLDEST_OVN {
        return None;
    }
    // ovsdb-server lives in sbin on some systems and in bin on others: a directory of links makes them one.
    let dirs: Vec<PathBuf> = PROGRAMS.iter().filter_map(which).collect();
    if dirs.len() != PROGRAMS.len() {
        return None;
    }
    let links = cache_dir().ok()?.join("system-bin");
    std::fs::create_dir_all(&links).ok()?;
    for target in &dirs {
        let link = links.join(target.file_name()?);
        if std::fs::read_link(&link).ok().as_ref() != Some(target) {
            // Another start may make the same link at the same time: the rename is atomic.
            let fresh =
                links.join(format!(".{}.{}", link.file_name()?.to_string_lossy(), std::process::id()));
            let _ = std::fs::remove_file(&fresh);
            std::os::unix::fs::symlink(target, &fresh).ok()?;
            std::fs::rename(&fresh, &link).ok()?;
        }
    }
    Prefix::at(&links).ok()
}

/// `ovn-northd 24.03.2` → (24, 3).
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let word = text
        .lines()
        .next()?
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut parts = word.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Finds a program in PATH and in the directories of system programs.
pub fn which(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(program.as_ref()))
        .find(|file| file.is_file())
}

/// `$XDG_CACHE_HOME/ovnkube-rs` or `~/.cache/ovnkube-rs`.
pub fn cache_dir() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("ovnkube-rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_year_and_month() {
        assert_eq!(parse_version("ovn-northd 24.03.2\nOpen vSwitch Library 3.3.0\n"), Some((24, 3)));
        assert_eq!(parse_version("ovn-northd 23.03.1\n"), Some((23, 3)));
        assert!(parse_version("ovn-northd 23.09.0").is_some_and(|version| version < OLDEST_OVN));
        assert_eq!(parse_version("sh: not found"), None);
    }
}
