//! Tells when a link is gone. The kernel unlists a link at once but acknowledges its deletion only some 20 ms later,
//! when the last reader may have finished; nobody has to wait for that.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use host::monitor::{Event, Groups, Monitor};
use tokio::{io::unix::AsyncFd, sync::oneshot, task::JoinHandle};

type Waiting = Arc<Mutex<BTreeMap<String, Vec<oneshot::Sender<()>>>>>;

/// Follows links of the namespace it was opened in, until dropped.
#[derive(Debug)]
pub(crate) struct LinkWatch {
    waiting: Waiting,
    task: JoinHandle<()>,
}

// === impl LinkWatch ===

impl LinkWatch {
    /// Opens the socket; needs a runtime.
    pub(crate) fn open() -> io::Result<LinkWatch> {
        let monitor = Monitor::open(Groups { links: true, ..Groups::default() }).map_err(io::Error::other)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe code; the monitor owns its descriptor while it lives"
        )]
        let monitor = AsyncFd::new(monitor)?;
        let waiting = Waiting::default();
        let task = tokio::spawn(follow(monitor, waiting.clone()));
        Ok(LinkWatch { waiting, task })
    }

    /// Completes when the link is gone from now on. It fails when notifications were lost.
    pub(crate) fn gone(&self, name: &str) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.waiting).entry(name.to_owned()).or_default().push(sender);
        receiver
    }

    /// Forgets the waits of one link that nobody waits for any more.
    pub(crate) fn forget(&self, name: &str) {
        let mut waiting = lock(&self.waiting);
        if let Some(senders) = waiting.get_mut(name) {
            senders.retain(|s| !s.is_closed());
            if senders.is_empty() {
                waiting.remove(name);
            }
        }
    }
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(mut monitor: AsyncFd<Monitor>, waiting: Waiting) {
    loop {
        let Ok(mut guard) = monitor.readable_mut().await else { break };
        match guard.get_inner_mut().try_read() {
            Ok(None) => guard.clear_ready(),
            Ok(Some(events)) => events.into_iter().for_each(|event| match event {
                Event::LinkGone(link) => {
                    for sender in lock(&waiting).remove(&link.name).unwrap_or_default() {
                        // Whoever waited may have the acknowledgement already.
                        let _ = sender.send(());
                    }
                }
                // Those who wait fall back to the kernel's acknowledgement.
                Event::Overrun => lock(&waiting).clear(),
                _ => {}
            }),
            Err(e) => {
                tracing::warn!(error = %e, "link notifications ended");
                break;
            }
        }
    }
    lock(&waiting).clear();
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, BTreeMap<String, Vec<oneshot::Sender<()>>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
