//! The objects of one resource, their recent changes, and who watches them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, OnceLock},
};

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::kind::Kind;

/// Namespace (empty for cluster scope) and name.
pub(crate) type Key = (String, String);

/// One stored object; its JSON is made once and shared by everybody who sends it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    pub(crate) rv: u64,
    bytes: OnceLock<Bytes>,
}

impl Entry {
    pub(crate) fn new(value: Value, rv: u64) -> Arc<Self> {
        Arc::new(Self { value, rv, bytes: OnceLock::new() })
    }

    /// The object as stored.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.get_or_init(|| Bytes::from(self.value.to_string())).clone()
    }

    /// The object as a client of `kind`'s version sees it.
    pub(crate) fn seen_as(&self, kind: &Kind) -> Option<Value> {
        super::convert::to_version(&self.value, kind)
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeType {
    Added,
    Modified,
    Deleted,
}

impl ChangeType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ChangeType::Added => "ADDED",
            ChangeType::Modified => "MODIFIED",
            ChangeType::Deleted => "DELETED",
        }
    }
}

/// One change of one object, shared by history and watchers.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) ty: ChangeType,
    pub(crate) rv: u64,
    pub(crate) old: Option<Arc<Entry>>,
    pub(crate) new: Arc<Entry>,
    line: OnceLock<Bytes>,
}

impl Change {
    /// The watch event line of the stored version and the change's own type.
    pub(crate) fn line(&self) -> Bytes {
        self.line.get_or_init(|| event_line(self.ty, &self.new.bytes())).clone()
    }
}

/// `{"type":…,"object":…}` and a newline.
pub(crate) fn event_line(ty: ChangeType, object: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(object.len() + 40);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(ty.name().as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
    out.freeze()
}

/// The narrowest set of objects a watcher cares for; changes elsewhere never wake it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Interest {
    All,
    Namespace(String),
    Object(String, String),
    Node(String),
}

struct Watcher {
    id: u64,
    sender: mpsc::Sender<Arc<Change>>,
}

/// Events a watcher may lag behind before it is cut off and has to resume.
const WATCHER_QUEUE: usize = 8192;

/// All objects of one resource.
#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) objects: BTreeMap<Key, Arc<Entry>>,
    ring: VecDeque<Arc<Change>>,
    /// History before and including this resourceVersion is gone.
    pub(crate) compacted: u64,
    watchers: HashMap<Interest, Vec<Watcher>>,
    next_watcher: u64,
}

impl Shelf {
    /// An empty shelf whose history begins at `rv`.
    pub(crate) fn starting_at(rv: u64) -> Self {
        Self { compacted: rv, ..Self::default() }
    }

    /// Remembers a change and tells the watchers it may concern.
    pub(crate) fn publish(
        &mut self,
        ty: ChangeType,
        old: Option<Arc<Entry>>,
        new: Arc<Entry>,
        history: usize,
    ) {
        let change = Arc::new(Change { ty, rv: new.rv, old, new, line: OnceLock::new() });
        while self.ring.len() >= history.max(1) {
            if let Some(gone) = self.ring.pop_front() {
                self.compacted = gone.rv;
            }
        }
        self.ring.push_back(change.clone());
        if self.watchers.is_empty() {
            return;
        }
        let meta = |field: &str| change.new.value["metadata"][field].as_str().unwrap_or_default().to_string();
        let (namespace, name) = (meta("namespace"), meta("name"));
        let node = |e: &Entry| e.value["spec"]["nodeName"].as_str().unwrap_or_default().to_string();
        let now = node(&change.new);
        let before = change.old.as_deref().map(node).filter(|n| *n != now);
        let mut interests = vec![
            Interest::All,
            Interest::Namespace(namespace.clone()),
            Interest::Object(namespace, name),
            Interest::Node(now),
        ];
        interests.extend(before.map(Interest::Node));
        for interest in interests {
            let Some(list) = self.watchers.get_mut(&interest) else { continue };
            list.retain(|watcher| watcher.sender.try_send(change.clone()).is_ok());
            if list.is_empty() {
                self.watchers.remove(&interest);
            }
        }
    }

    /// Changes after `rv`, oldest first; `None` if some of them are forgotten.
    pub(crate) fn since(&self, rv: u64) -> Option<Vec<Arc<Change>>> {
        if rv < self.compacted {
            return None;
        }
        let start = self.ring.partition_point(|c| c.rv <= rv);
        Some(self.ring.range(start..).cloned().collect())
    }

    /// A queue of changes from now on.
    pub(crate) fn subscribe(&mut self, interest: Interest) -> (u64, mpsc::Receiver<Arc<Change>>) {
        let (sender, receiver) = mpsc::channel(WATCHER_QUEUE);
        self.next_watcher += 1;
        self.watchers.entry(interest).or_default().push(Watcher { id: self.next_watcher, sender });
        (self.next_watcher, receiver)
    }

    pub(crate) fn unsubscribe(&mut self, interest: &Interest, id: u64) {
        if let Some(list) = self.watchers.get_mut(interest) {
            list.retain(|w| w.id != id);
            if list.is_empty() {
                self.watchers.remove(interest);
            }
        }
    }

    pub(crate) fn drop_watchers(&mut self) {
        self.watchers.clear();
    }

    /// Forgets all history up to `rv`.
    pub(crate) fn compact(&mut self, rv: u64) {
        self.ring.clear();
        self.compacted = rv;
    }
}
