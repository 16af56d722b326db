//! What an ADD has made so far, and taking it back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use host::Handle;
use tokio::task::JoinHandle;

use super::{plug, plug::PlugIds, ports::Ports};

/// Filled while an ADD runs; whoever ends it early calls [`Made::undo`].
#[derive(Debug, Default)]
pub(crate) struct Made {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    link: Option<String>,
    port: Option<(PlugIds, String)>,
    tasks: Vec<JoinHandle<()>>,
}

// === impl Made ===

impl Made {
    /// A host link of this name is about to be made.
    pub(crate) fn link(&self, name: &str) {
        self.lock().link = Some(name.to_owned());
    }

    /// A port with these rows is about to be inserted for the sandbox.
    pub(crate) fn port(&self, ids: PlugIds, sandbox: &str) {
        self.lock().port = Some((ids, sandbox.to_owned()));
    }

    /// Blocking work that must be over before anything is taken back.
    pub(crate) fn task(&self, task: JoinHandle<()>) {
        self.lock().tasks.push(task);
    }

    /// Removes port, limits and link. Nothing here fails the request: it has failed already.
    pub(crate) async fn undo(&self, ports: &Ports) {
        let Inner { link, port, tasks } = std::mem::take(&mut *self.lock());
        for task in tasks {
            let _ = task.await;
        }
        if let Some((ids, sandbox)) = port {
            let ops = ports.read(|cache| {
                let mut ops = plug::unplug(cache, ports.bridge(), &[ids.port], &sandbox);
                // Rows of an insert whose answer has not come are not in the cache yet.
                ops.retain(|op| op.row() != Some(ids.qos) && op.row() != Some(ids.queue));
                ops.extend([ovsdb::Op::delete("QoS", ids.qos), ovsdb::Op::delete("Queue", ids.queue)]);
                ops
            });
            if let Err(e) = ports.commit(&ops, |cache| cache.row("Port", &ids.port).is_none()).await {
                tracing::warn!(sandbox, error = %e, "port of a failed CNI ADD could not be removed");
            }
        }
        if let Some(link) = link {
            let name = link.clone();
            let delete = move || Handle::open()?.delete_link_named(&name);
            match tokio::task::spawn_blocking(delete).await {
                Ok(Ok(_)) => {}
                Ok(Err(e)) => {
                    tracing::warn!(link, error = %e, "link of a failed CNI ADD could not be removed")
                }
                Err(e) => tracing::warn!(link, error = %e, "link of a failed CNI ADD could not be removed"),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
