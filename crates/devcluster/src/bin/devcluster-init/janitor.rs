//! Removes a cluster's files when its builder is gone, in whatever way it went.

use std::{
    fs,
    io::{ErrorKind, Read, stdin},
    path::Path,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

/// Waits for the end of standard input, then removes `dir` if it is still there.
pub(crate) fn run(dir: &Path) -> Result<()> {
    stdin().read_to_end(&mut Vec::new()).context("waiting for the builder")?;
    // Processes of the nodes may still be dying and writing: try again until nobody adds files any more.
    let mut last = None;
    for _ in 0..100 {
        match fs::remove_dir_all(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => last = Some(error),
        }
        thread::sleep(Duration::from_millis(20));
    }
    last.map_or(Ok(()), |error| Err(error).with_context(|| format!("removing {}", dir.display())))
}
