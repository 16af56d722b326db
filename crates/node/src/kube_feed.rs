//! What the agent follows in the Kubernetes API: its Node, and (when no controller in the process does) its pods and the
//! services.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use kapi::{EndpointSlice, Node, Object, Pod, PodKey, Service, ServiceKey};
use kube_io::{Change, Kube, Scope};
use service::{Place, Services};
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::board::{PodBoard, PodView};
use crate::services::{HostService, ServiceBoard};

/// Our Node object as last heard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum OwnNode {
    /// Nothing heard yet.
    #[default]
    Unknown,
    /// It does not exist.
    Absent,
    /// It exists.
    Present(Arc<Node>),
}

/// The Node and the health of its watch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFeed {
    /// The object.
    pub node: OwnNode,
    /// Why it may be out of date.
    pub problem: Option<String>,
}

/// Follows the Node of this name for ever and wakes the agent on each change.
pub async fn follow_node(kube: &Kube, name: &str, feed: &watch::Sender<NodeFeed>, wake: &Notify) {
    let mut changes = kube.watch::<Node>(Scope::all().fields(format!("metadata.name={name}")));
    while let Some(change) = changes.next().await {
        let changed = feed.send_if_modified(|feed| {
            let before = feed.clone();
            apply_node(feed, name, change);
            *feed != before
        });
        if changed {
            wake.notify_one();
        }
    }
}

fn apply_node(feed: &mut NodeFeed, name: &str, change: Change<Node>) {
    match change {
        Change::Snapshot(nodes) => {
            // A server that ignores field selectors must not hand us another node.
            let own = nodes.into_iter().find(|node| node.metadata.name == name);
            feed.node = own.map_or(OwnNode::Absent, |node| OwnNode::Present(Arc::new(node)));
            feed.problem = None;
        }
        Change::Applied(node) if node.metadata.name == name => feed.node = OwnNode::Present(Arc::new(node)),
        Change::Deleted(key) if key.name == name => {
            // A late word about an earlier object of the name says nothing about this one.
            let current = match &feed.node {
                OwnNode::Present(node) => key.uid.is_empty() || node.metadata.uid == key.uid,
                _ => true,
            };
            if current {
                feed.node = OwnNode::Absent;
            }
        }
        Change::Applied(_) | Change::Deleted(_) => {}
        Change::Bad { error, .. } | Change::Down { error } => feed.problem = Some(error),
        Change::Unserved => {}
        Change::Up => feed.problem = None,
    }
}

/// Addresses of the other nodes, by name; none until all were seen.
pub type RemoteNodes = Option<BTreeMap<String, Vec<IpAddr>>>;

/// Follows all other Nodes for ever and wakes the agent when one's addresses change.
pub async fn follow_remote_nodes(kube: &Kube, own: &str, remote: &watch::Sender<RemoteNodes>, wake: &Notify) {
    let mut changes = kube.watch::<Node>(Scope::all());
    while let Some(change) = changes.next().await {
        if remote.send_if_modified(|remote| apply_remote(remote, own, change)) {
            wake.notify_one();
        }
    }
}

/// True if that changed anything.
fn apply_remote(remote: &mut RemoteNodes, own: &str, change: Change<Node>) -> bool {
    let addresses = |node: &Node| node.internal_ips().collect::<Vec<_>>();
    match change {
        Change::Snapshot(nodes) => {
            let others = nodes.iter().filter(|node| node.metadata.name != own);
            let now = Some(others.map(|node| (node.metadata.name.clone(), addresses(node))).collect());
            let changed = *remote != now;
            *remote = now;
            changed
        }
        Change::Applied(node) if node.metadata.name != own => {
            let Some(known) = remote else { return false };
            let now = addresses(&node);
            let before = known.insert(node.metadata.name, now.clone());
            before.as_ref() != Some(&now)
        }
        Change::Deleted(key) => remote.as_mut().is_some_and(|known| known.remove(&key.name).is_some()),
        _ => false,
    }
}

/// Follows the pods bound to this node for ever and keeps the board.
pub async fn follow_pods(kube: &Kube, node: &str, board: &PodBoard) {
    let mut changes = kube.watch::<Pod>(Scope::all().fields(format!("spec.nodeName={node}")));
    let mut bad = BTreeSet::new();
    while let Some(change) = changes.next().await {
        apply_pod(board, node, &mut bad, change);
    }
}

/// Follows Services and EndpointSlices for ever and tells the board.
pub async fn follow_services(kube: &Kube, node: &str, board: &ServiceBoard) {
    let mut services = kube.watch::<Service>(Scope::all());
    let mut slices = kube.watch::<EndpointSlice>(Scope::all());
    let mut feed = ServiceFeed::default();
    loop {
        let changed = tokio::select! {
            Some(change) = services.next() => feed.service(change),
            Some(change) = slices.next() => feed.slice(change),
            else => return,
        };
        let place = Place { node, zone: None };
        for key in changed {
            board.set(key.clone(), HostService::of(&feed.table, &key, place));
        }
        if feed.listed == (true, true) {
            board.set_complete();
        }
    }
}

/// Services joined with their slices, and which of both have been listed.
#[derive(Default)]
struct ServiceFeed {
    table: Services,
    listed: (bool, bool),
    /// Objects that could not be read since the last list: they are not gone.
    bad: (BTreeSet<ServiceKey>, BTreeSet<String>),
}

impl ServiceFeed {
    fn service(&mut self, change: Change<Service>) -> Vec<ServiceKey> {
        match change {
            Change::Snapshot(all) => {
                self.listed.0 = true;
                self.table.replace_services(&all, &std::mem::take(&mut self.bad.0))
            }
            Change::Applied(service) => self.table.apply_service(&service),
            Change::Deleted(key) => {
                let service = ServiceKey::new(&key.namespace, &key.name);
                // One of the same name created since has another UID and stays.
                let known = self.table.service(&service).map(|known| &*known.uid);
                match known.is_none_or(|uid| key.uid.is_empty() || *uid == *key.uid) {
                    true => self.table.remove_service(&service),
                    false => Vec::new(),
                }
            }
            Change::Bad { key, error } => {
                warn!(service = %key, error, "service cannot be read; keeping what is known of it");
                self.bad.0.insert(ServiceKey::new(&key.namespace, &key.name));
                Vec::new()
            }
            Change::Down { .. } | Change::Unserved | Change::Up => Vec::new(),
        }
    }

    fn slice(&mut self, change: Change<EndpointSlice>) -> Vec<ServiceKey> {
        match change {
            Change::Snapshot(all) => {
                self.listed.1 = true;
                self.table.replace_slices(&all, &std::mem::take(&mut self.bad.1))
            }
            Change::Applied(slice) => self.table.apply_slice(&slice),
            Change::Deleted(key) => self.table.remove_slice(&key.namespace, &key.name),
            Change::Bad { key, error } => {
                warn!(slice = %key, error, "EndpointSlice cannot be read; keeping what is known of it");
                self.bad.1.insert(format!("{}/{}", key.namespace, key.name));
                Vec::new()
            }
            Change::Down { .. } | Change::Unserved | Change::Up => Vec::new(),
        }
    }
}

/// Brings the board up to date with one change of the watch on this node's pods. `bad` holds pods that did not decode
/// since the last snapshot: they are not gone.
pub fn apply_pod(board: &PodBoard, node: &str, bad: &mut BTreeSet<PodKey>, change: Change<Pod>) {
    match change {
        Change::Snapshot(pods) => {
            let ours: Vec<PodView> =
                pods.iter().filter(|pod| pod.spec.node_name == node).map(PodView::of).collect();
            let listed: BTreeSet<&PodKey> = ours.iter().map(|view| &view.key).collect();
            for old in board.all() {
                if !listed.contains(&old.key) && !bad.contains(&old.key) {
                    board.remove(&old.key);
                }
            }
            bad.clear();
            ours.into_iter().for_each(|view| board.refresh(view, None));
            board.set_problem(None);
        }
        Change::Applied(pod) if pod.spec.node_name == node => {
            board.refresh(PodView::of(&pod), Some(Instant::now()));
        }
        Change::Applied(pod) => board.remove(&pod.pod_key()),
        Change::Deleted(key) => {
            let pod = PodKey::new(key.namespace, key.name);
            // A pod of the same name created since has another UID and stays.
            if board.get(&pod).is_some_and(|view| key.uid.is_empty() || view.uid == key.uid) {
                board.remove(&pod);
            }
        }
        Change::Bad { key, error } => {
            warn!(pod = %key, error, "pod cannot be read; keeping what is known of it");
            bad.insert(PodKey::new(key.namespace, key.name));
        }
        Change::Down { error } => board.set_problem(Some(error)),
        Change::Unserved => {}
        Change::Up => board.set_problem(None),
    }
}

/// The key of an object, guarded by its identity.
pub fn key_of(node: &Node) -> kapi::ObjectKey {
    Object::key(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kapi::ObjectKey;

    fn node(uid: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = "n1".into();
        node.metadata.uid = uid.into();
        node
    }

    fn pod(name: &str, uid: &str, on: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = "ns".into();
        pod.metadata.name = name.into();
        pod.metadata.uid = uid.into();
        pod.spec.node_name = on.into();
        pod
    }

    fn key(name: &str, uid: &str) -> ObjectKey {
        ObjectKey { namespace: "ns".into(), name: name.into(), uid: uid.into() }
    }

    #[test]
    fn a_recreated_node_replaces_the_old_one_and_late_words_are_ignored() {
        let mut feed = NodeFeed::default();
        apply_node(&mut feed, "n1", Change::Snapshot(vec![]));
        assert_eq!(feed.node, OwnNode::Absent);
        apply_node(&mut feed, "n1", Change::Applied(node("1")));
        apply_node(&mut feed, "n1", Change::Applied(node("2")));
        apply_node(&mut feed, "n1", Change::Deleted(ObjectKey { uid: "1".into(), ..node("1").key() }));
        assert_eq!(feed.node, OwnNode::Present(Arc::new(node("2"))));
        apply_node(&mut feed, "n1", Change::Down { error: "refused".into() });
        assert_eq!(feed.problem.as_deref(), Some("refused"));
        assert_eq!(feed.node, OwnNode::Present(Arc::new(node("2"))), "what is known stays");
        apply_node(&mut feed, "n1", Change::Deleted(node("2").key()));
        assert_eq!(feed.node, OwnNode::Absent);
    }

    fn at(name: &str, address: &str) -> Node {
        let mut node = node("1");
        node.metadata.name = name.into();
        node.status.addresses =
            vec![kapi::NodeAddress { kind: "InternalIP".into(), address: address.into() }];
        node
    }

    #[test]
    fn addresses_of_other_nodes_are_known_once_all_were_seen() {
        let mut remote = None;
        assert!(!apply_remote(&mut remote, "n1", Change::Applied(at("n2", "10.0.0.2"))));
        assert_eq!(remote, None);
        let all = vec![at("n1", "10.0.0.1"), at("n2", "10.0.0.2")];
        assert!(apply_remote(&mut remote, "n1", Change::Snapshot(all.clone())));
        assert_eq!(remote.as_ref().unwrap()["n2"], ["10.0.0.2".parse::<IpAddr>().unwrap()]);
        assert!(!remote.as_ref().unwrap().contains_key("n1"));
        assert!(!apply_remote(&mut remote, "n1", Change::Snapshot(all)));
        assert!(!apply_remote(&mut remote, "n1", Change::Applied(at("n2", "10.0.0.2"))), "a heartbeat");
        assert!(apply_remote(&mut remote, "n1", Change::Applied(at("n2", "10.0.0.9"))));
        assert!(!apply_remote(&mut remote, "n1", Change::Applied(at("n1", "10.0.0.7"))));
        assert!(apply_remote(&mut remote, "n1", Change::Deleted(at("n2", "").key())));
        assert_eq!(remote, Some(BTreeMap::new()));
    }

    #[test]
    fn other_nodes_are_never_taken_for_ours() {
        let mut feed = NodeFeed::default();
        let other =
            Node { metadata: kapi::Meta { name: "n2".into(), ..kapi::Meta::default() }, ..Node::default() };
        apply_node(&mut feed, "n1", Change::Snapshot(vec![other.clone()]));
        apply_node(&mut feed, "n1", Change::Applied(other));
        assert_eq!(feed.node, OwnNode::Absent);
    }

    fn names(board: &PodBoard) -> Vec<String> {
        board.all().iter().map(|view| format!("{}:{}", view.key.name, view.uid)).collect()
    }

    #[test]
    fn the_board_follows_snapshots_changes_and_deletions() {
        let (board, mut bad) = (PodBoard::new(), BTreeSet::new());
        let mut say = |change| apply_pod(&board, "n1", &mut bad, change);
        assert!(board.problem().is_some());
        say(Change::Snapshot(vec![pod("a", "1", "n1"), pod("b", "1", "n1"), pod("c", "1", "n2")]));
        assert_eq!(names(&board), ["a:1", "b:1"]);
        assert_eq!(board.problem(), None);
        say(Change::Applied(pod("a", "2", "n1")));
        say(Change::Deleted(key("a", "1")));
        assert_eq!(names(&board), ["a:2", "b:1"], "the deletion was of the earlier pod");
        say(Change::Down { error: "gone away".into() });
        assert_eq!(board.problem().as_deref(), Some("gone away"));
        say(Change::Bad { key: key("b", "1"), error: "not a pod".into() });
        say(Change::Snapshot(vec![]));
        assert_eq!(names(&board), ["b:1"], "a pod that cannot be read is not gone");
        say(Change::Snapshot(vec![]));
        assert!(names(&board).is_empty());
    }
}
