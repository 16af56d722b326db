//! From watches to the core's changes: objects that cannot be read must not look deleted.

use std::collections::{BTreeMap, BTreeSet};

use kapi::{Node, Object, ObjectKey, Pod, PodKey};

use crate::io::{Change, Input, Unreadable};
use crate::observer::Event;

/// The feeds of the kinds that need it.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// Nodes.
    pub(crate) nodes: Kept<Node>,
    /// Pods.
    pub(crate) pods: Kept<Pod>,
}

/// The last readable state of objects of one kind, as far as a newer one is unreadable.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    known: BTreeMap<PodKey, T>,
    unreadable: BTreeSet<PodKey>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept { known: BTreeMap::new(), unreadable: BTreeSet::new() }
    }
}

impl<T: Object> Kept<T> {
    /// What the change is, for metrics.
    pub(crate) fn event(&self, change: &kube_io::Change<T>) -> Option<Event> {
        match change {
            kube_io::Change::Snapshot(_) => Some(Event::List),
            kube_io::Change::Applied(object) => {
                let meta = object.meta();
                let known = self.known.contains_key(&PodKey::new(&*meta.namespace, &*meta.name));
                Some(if known { Event::Update } else { Event::Add })
            }
            kube_io::Change::Deleted(_) => Some(Event::Delete),
            _ => None,
        }
    }

    /// The core's form of a change; `None` when there is nothing to tell it.
    pub(crate) fn translate(&mut self, change: kube_io::Change<T>) -> Option<Change<T>> {
        let name = |object: &T| PodKey::new(&*object.meta().namespace, &*object.meta().name);
        match change {
            kube_io::Change::Snapshot(mut list) => {
                let listed: BTreeSet<PodKey> = list.iter().map(name).collect();
                let unreadable = std::mem::take(&mut self.unreadable);
                list.extend(
                    unreadable
                        .into_iter()
                        .filter(|key| !listed.contains(key))
                        .filter_map(|key| self.known.get(&key).cloned()),
                );
                self.known = list.iter().map(|object| (name(object), object.clone())).collect();
                Some(Change::Snapshot(list))
            }
            kube_io::Change::Applied(object) => {
                self.unreadable.remove(&name(&object));
                self.known.insert(name(&object), object.clone());
                Some(Change::Applied(object))
            }
            kube_io::Change::Deleted(key) => {
                let key = PodKey::new(key.namespace, key.name);
                self.known.remove(&key);
                Some(Change::Deleted(key))
            }
            kube_io::Change::Bad { key, error } => {
                tracing::warn!(kind = T::RESOURCE.kind, object = %key, %error, "object cannot be read; its last readable state counts");
                self.unreadable.insert(PodKey::new(key.namespace, key.name));
                None
            }
            kube_io::Change::Down { error } => {
                tracing::warn!(kind = T::RESOURCE.kind, %error, "watch interrupted; trying again");
                None
            }
            kube_io::Change::Up => None,
        }
    }
}

/// What a change is, for metrics, where the tables can tell whether an object is `known`.
pub(crate) fn event_of<T: Object>(
    change: &kube_io::Change<T>,
    known: impl Fn(&ObjectKey) -> bool,
) -> Option<Event> {
    match change {
        kube_io::Change::Snapshot(_) => Some(Event::List),
        kube_io::Change::Applied(object) => {
            Some(if known(&object.key()) { Event::Update } else { Event::Add })
        }
        kube_io::Change::Deleted(_) => Some(Event::Delete),
        _ => None,
    }
}

/// The core's form of a change of a kind whose last readable state the tables keep; `None` when there is nothing to
/// tell it.
pub(crate) fn translate<T: Object>(
    change: kube_io::Change<T>,
    input: impl Fn(Change<T>) -> Input,
    unreadable: impl Fn(&ObjectKey) -> Unreadable,
) -> Option<Input> {
    let kind = T::RESOURCE.kind;
    match change {
        kube_io::Change::Snapshot(list) => Some(input(Change::Snapshot(list))),
        kube_io::Change::Applied(object) => Some(input(Change::Applied(object))),
        kube_io::Change::Deleted(key) => Some(input(Change::Deleted(PodKey::new(key.namespace, key.name)))),
        kube_io::Change::Bad { key, error } => {
            tracing::warn!(kind, object = %key, %error, "object cannot be read; its last readable state counts");
            Some(Input::Unreadable(unreadable(&key)))
        }
        kube_io::Change::Down { error } => {
            tracing::warn!(kind, %error, "watch interrupted; trying again");
            None
        }
        kube_io::Change::Up => None,
    }
}
