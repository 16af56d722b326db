//! Our own built programs.

use std::{path::PathBuf, sync::OnceLock};

use anyhow::{Result, bail};

/// Variable that names the directory of built programs.
pub const BIN_DIR_VARIABLE: &str = "DEVCLUSTER_BIN_DIR";

static DIR: OnceLock<PathBuf> = OnceLock::new();

/// Takes programs from `dir` from now on, for this whole process. The first call wins.
pub fn use_dir(dir: PathBuf) {
    let _ = DIR.set(dir);
}

/// Finds a program of this workspace: in `DEVCLUSTER_BIN_DIR`, else beside the running program or, for a test or bench,
/// one directory up.
pub fn find(name: &str) -> Result<PathBuf> {
    let mut looked: Vec<PathBuf> = DIR.get().cloned().into_iter().collect();
    if let Some(dir) = std::env::var_os(BIN_DIR_VARIABLE) {
        looked.push(PathBuf::from(dir));
    }
    let here = std::env::current_exe()?;
    looked.extend(here.ancestors().skip(1).take(2).map(PathBuf::from));
    if let Some(file) = looked.iter().map(|dir| dir.join(name)).find(|file| file.is_file()) {
        return Ok(file);
    }
    let dirs: Vec<String> = looked.iter().map(|dir| dir.display().to_string()).collect();
    bail!(
        "no program {name} in {}; build it (`cargo build -p devcluster -p ovnkube -p ovn-k8s-cni-overlay --bins`) or run \
         through `cargo xtask test`",
        dirs.join(" or ")
    )
}
