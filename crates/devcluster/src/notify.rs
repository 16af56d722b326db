//! Waiting for something to appear in a directory.

use std::{os::fd::OwnedFd, path::Path};

use anyhow::{Context, Result};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver};

/// Calls `look` now and whenever a file of `dir` was written or moved, until it finds something.
pub(crate) async fn wait_in_dir<T>(dir: &Path, look: impl Fn() -> Option<T>) -> Result<T> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).context("inotify")?;
    let watched = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CLOSE_WRITE;
    inotify.add_watch(dir, watched).with_context(|| format!("watching {}", dir.display()))?;
    // For the runtime it is one more descriptor that is read when readable, as the end of a pipe is.
    let mut events = Receiver::from_owned_fd_unchecked(OwnedFd::from(inotify))?;
    let mut buffer = [0; 4096];
    loop {
        // Looking after the watch began misses nothing.
        if let Some(found) = look() {
            return Ok(found);
        }
        events.read(&mut buffer).await.with_context(|| format!("watching {}", dir.display()))?;
    }
}
