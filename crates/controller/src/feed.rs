//! From watches to the core's changes: objects that cannot be read must not look deleted.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use kapi::{
    AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy, Namespace, NetworkPolicy, Node,
    Object, ObjectKey, Pod, PodKey,
};

use crate::io::{Change, Input, Unreadable};
use crate::observer::Event;

/// The feeds of all kinds.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// Nodes.
    pub(crate) nodes: Kept<Node>,
    /// Pods.
    pub(crate) pods: Kept<Pod>,
    /// Namespaces.
    pub(crate) namespaces: Kept<Namespace>,
    /// NetworkPolicies.
    pub(crate) network_policies: Kept<NetworkPolicy>,
    /// AdminNetworkPolicies.
    pub(crate) admin_policies: Kept<AdminNetworkPolicy>,
    /// BaselineAdminNetworkPolicies.
    pub(crate) baseline_policies: Kept<BaselineAdminNetworkPolicy>,
    /// ClusterNetworkPolicies.
    pub(crate) cluster_policies: Kept<ClusterNetworkPolicy>,
}

/// Which objects of a kind are known, and which of them have a newer state that cannot be read. What is known of
/// these is kept by the core, which is not told that they are gone.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    known: BTreeSet<PodKey>,
    unreadable: BTreeSet<PodKey>,
    listed: bool,
    kind: PhantomData<T>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept { known: BTreeSet::new(), unreadable: BTreeSet::new(), listed: false, kind: PhantomData }
    }
}

impl<T: Object> Kept<T> {
    /// What the change is, for metrics.
    pub(crate) fn event(&self, change: &kube_io::Change<T>) -> Option<Event> {
        match change {
            kube_io::Change::Snapshot(_) => Some(Event::List),
            kube_io::Change::Applied(object) => {
                let known = self.known.contains(&name(object));
                Some(if known { Event::Update } else { Event::Add })
            }
            kube_io::Change::Deleted(_) => Some(Event::Delete),
            _ => None,
        }
    }

    /// The core's form of a change: one as a rule, none when there is nothing to tell it.
    pub(crate) fn translate(&mut self, change: kube_io::Change<T>) -> Vec<Change<T>> {
        match change {
            kube_io::Change::Snapshot(list) => self.snapshot(list),
            kube_io::Change::Applied(object) => {
                self.unreadable.remove(&name(&object));
                self.known.insert(name(&object));
                vec![Change::Applied(object)]
            }
            kube_io::Change::Deleted(key) => {
                let key = PodKey::new(key.namespace, key.name);
                self.unreadable.remove(&key);
                self.known.remove(&key);
                vec![Change::Deleted(key)]
            }
            kube_io::Change::Bad { key, error } => {
                tracing::warn!(kind = T::RESOURCE.kind, object = %key, %error, "object cannot be read; its last readable state counts");
                self.unreadable.insert(PodKey::new(key.namespace, key.name));
                Vec::new()
            }
            kube_io::Change::Down { error } => {
                tracing::warn!(kind = T::RESOURCE.kind, %error, "watch interrupted; trying again");
                Vec::new()
            }
            // A kind that was never served has no objects. Once it was, its definition may only be loading again.
            kube_io::Change::Unserved if !self.listed => {
                self.listed = true;
                vec![Change::Snapshot(Vec::new())]
            }
            kube_io::Change::Unserved | kube_io::Change::Up => Vec::new(),
        }
    }

    fn snapshot(&mut self, list: Vec<T>) -> Vec<Change<T>> {
        self.listed = true;
        let listed: BTreeSet<PodKey> = list.iter().map(name).collect();
        let unreadable = std::mem::take(&mut self.unreadable);
        let kept: BTreeSet<PodKey> =
            unreadable.into_iter().filter(|key| self.known.contains(key) && !listed.contains(key)).collect();
        let known = std::mem::replace(&mut self.known, listed);
        if kept.is_empty() {
            return vec![Change::Snapshot(list)];
        }
        let gone: Vec<PodKey> =
            known.into_iter().filter(|key| !self.known.contains(key) && !kept.contains(key)).collect();
        self.known.extend(kept);
        gone.into_iter().map(Change::Deleted).chain(list.into_iter().map(Change::Applied)).collect()
    }
}

fn name<T: Object>(object: &T) -> PodKey {
    PodKey::new(&*object.meta().namespace, &*object.meta().name)
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
        kube_io::Change::Unserved | kube_io::Change::Up => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(name: &str) -> Namespace {
        serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap()
    }

    fn shown(changes: Vec<Change<Namespace>>) -> Vec<String> {
        let one = |change: Change<Namespace>| match change {
            Change::Snapshot(list) => format!("list of {}", list.len()),
            Change::Applied(object) => format!("+{}", object.metadata.name),
            Change::Deleted(key) => format!("-{}", key.name),
        };
        changes.into_iter().map(one).collect()
    }

    #[test]
    fn an_object_that_cannot_be_read_is_not_gone() {
        let mut kept = Kept::default();
        let bad = |name: &str| kube_io::Change::Bad {
            key: kapi::ObjectKey { name: name.into(), ..Default::default() },
            error: "no".into(),
        };
        assert_eq!(shown(kept.translate(bad("z"))), Vec::<String>::new());
        let list =
            |names: &[&str]| kube_io::Change::Snapshot(names.iter().map(|one| namespace(one)).collect());
        assert_eq!(shown(kept.translate(list(&["a", "b", "c"]))), ["list of 3"]);
        kept.translate(bad("a"));
        assert_eq!(shown(kept.translate(list(&["c", "d"]))), ["-b", "+c", "+d"]);
        assert_eq!(shown(kept.translate(list(&["c"]))), ["list of 1"]);
    }

    #[test]
    fn only_a_kind_that_was_never_served_is_empty() {
        let mut kept: Kept<Namespace> = Kept::default();
        assert_eq!(shown(kept.translate(kube_io::Change::Unserved)), ["list of 0"]);
        kept.translate(kube_io::Change::Snapshot(vec![namespace("a")]));
        assert!(kept.translate(kube_io::Change::Unserved).is_empty());
    }
}
