//! A kubectl that is new enough: the system's, or Debian 13's unpacked into the cache.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::{cache_dir, debian, which};

/// The oldest minor version (of 1.x) that talks to today's API servers as our tests expect.
const OLDEST_MINOR: u32 = 28;

/// The directory of a kubectl that is new enough, fetched if the system has none.
pub fn kubectl_dir(progress: &dyn Fn(&str)) -> Result<PathBuf> {
    let home = cache_dir()?.join("kubectl");
    let system = which("kubectl").filter(|path| is_new_enough(path));
    let found = system.or_else(|| Some(home.join("kubectl")).filter(|path| is_new_enough(path)));
    if let Some(dir) = found.as_deref().and_then(Path::parent) {
        return Ok(dir.to_path_buf());
    }
    progress("kubectl: downloading Debian 13's");
    fs::create_dir_all(&home)?;
    let work = tempfile::tempdir_in(&home)?;
    debian::unpack(work.path(), "kubectl")?;
    let program = work.path().join("root/usr/bin/kubectl");
    ensure!(
        is_new_enough(&program),
        "Debian's kubectl does not run here; put kubectl 1.{OLDEST_MINOR} or newer into PATH"
    );
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    fs::rename(&program, home.join("kubectl")).context("moving kubectl into the cache")?;
    Ok(home)
}

fn is_new_enough(program: &Path) -> bool {
    let output = Command::new(program).args(["version", "--client", "-o", "json"]).output();
    let Ok(output) = output else { return false };
    let Ok(version) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else { return false };
    let minor = version.pointer("/clientVersion/minor").and_then(|minor| minor.as_str()).unwrap_or_default();
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    digits.parse::<u32>().is_ok_and(|minor| minor >= OLDEST_MINOR)
}
