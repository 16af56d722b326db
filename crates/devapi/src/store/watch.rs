//! Opening a watch.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Change, Entry, Store, shelf::Interest};
use crate::{error::ApiError, kind::Kind, selector::Selector};

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchStart {
    /// Present state first, then changes (resourceVersion unset or 0, or `sendInitialEvents`).
    Present,
    /// Changes after this resourceVersion.
    After(u64),
    /// Changes from now on.
    Now,
}

/// An open watch; dropping it ends it.
pub(crate) struct Subscription {
    store: Arc<Store>,
    shelf: String,
    interest: Interest,
    id: u64,
    /// The state at `rv`, if asked for.
    pub(crate) present: Vec<Arc<Entry>>,
    /// Changes between the wanted start and `rv`.
    pub(crate) missed: Vec<Arc<Change>>,
    /// resourceVersion from which `changes` goes on.
    pub(crate) rv: u64,
    /// Ends when the watch is dropped by a fault or fell too far behind.
    pub(crate) changes: mpsc::Receiver<Arc<Change>>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.store.lock().shelf_mut(&self.shelf).unsubscribe(&self.interest, self.id);
    }
}

impl Store {
    pub(crate) fn watch_objects(
        self: &Arc<Self>,
        kind: &Kind,
        namespace: &str,
        selector: &Selector,
        start: WatchStart,
    ) -> Result<Subscription, ApiError> {
        let interest = interest(kind, namespace, selector);
        let mut state = self.lock();
        let rv = state.rv;
        let shelf = state.shelf_mut(&kind.shelf);
        let mut missed = Vec::new();
        let mut present = Vec::new();
        match start {
            WatchStart::Now => {}
            WatchStart::Present => {
                let all = shelf.objects.iter().filter(|((ns, _), _)| namespace.is_empty() || ns == namespace);
                present = all.map(|(_, e)| e.clone()).filter(|e| selector.matches(&e.value)).collect();
            }
            WatchStart::After(from) if from > rv => {
                return Err(ApiError::new(
                    504,
                    "Timeout",
                    format!("Too large resource version: {from}, current: {rv}"),
                )
                .with(serde_json::json!({"causes": [{"reason": "ResourceVersionTooLarge",
                    "message": "Too large resource version"}], "retryAfterSeconds": 1})));
            }
            WatchStart::After(from) => {
                let compacted = shelf.compacted;
                missed = shelf.since(from).ok_or_else(|| {
                    ApiError::expired(format!("too old resource version: {from} ({})", compacted + 1))
                })?;
            }
        }
        let (id, changes) = shelf.subscribe(interest.clone());
        drop(state);
        Ok(Subscription {
            store: self.clone(),
            shelf: kind.shelf.clone(),
            interest,
            id,
            present,
            missed,
            rv,
            changes,
        })
    }
}

fn interest(kind: &Kind, namespace: &str, selector: &Selector) -> Interest {
    if let Some(name) = selector.pinned("metadata.name")
        && (!namespace.is_empty() || !kind.namespaced)
    {
        return Interest::Object(namespace.into(), name.into());
    }
    if let Some(node) = selector.pinned("spec.nodeName") {
        return Interest::Node(node.into());
    }
    if namespace.is_empty() { Interest::All } else { Interest::Namespace(namespace.into()) }
}
