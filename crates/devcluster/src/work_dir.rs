//! The directory that holds a cluster's files, and its removal.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

use crate::binaries;

const PREFIX: &str = "ovnkube-rs-";
const LOCK: &str = "in-use";

/// A directory that is removed with this value, and when this process ends in any other way.
pub(crate) struct WorkDir {
    path: PathBuf,
    /// Locked while in use; the kernel lets go of it with the process.
    _lock: File,
    /// Waits for the end of its input, which is the end of this process, and removes the directory.
    janitor: Child,
}

// === impl WorkDir ===

impl WorkDir {
    /// Makes a new one in `base`, or in memory (`/dev/shm`), because databases sync every write to their file.
    pub(crate) fn new(base: Option<&Path>) -> Result<Self> {
        let shm = Path::new("/dev/shm");
        let base = match base {
            Some(base) => base.to_path_buf(),
            None if shm.is_dir() => shm.to_path_buf(),
            None => std::env::temp_dir(),
        };
        sweep(&base);
        let path = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(&base)
            .with_context(|| format!("making a directory in {}", base.display()))?
            .keep();
        let janitor = Command::new(binaries::find("devcluster-init")?)
            .arg("janitor")
            .arg(&path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting the janitor")?;
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        Ok(Self { path, _lock: lock, janitor })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // Closing its input starts the removal; waiting makes it done when this returns.
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

/// Removes directories whose owner and janitor both died.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // No lock file yet: someone is just making it.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
