//! The tables and what changed in them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kapi::{Namespace, Node, Pod, PodKey};
use net::{Carver, ClusterCidr};
use policy::{Kind, Policy, PolicyId};
use service::Services;

use crate::{Key, NamespaceState, NodeState, PodState, Policies, services};

/// The cluster as this zone sees it.
#[derive(Debug)]
pub struct World {
    local: String,
    cluster: Vec<ClusterCidr>,
    local_node: Option<NodeState>,
    nodes: BTreeMap<String, NodeState>,
    refused: BTreeMap<String, String>,
    policies: Policies,
    pods: BTreeMap<PodKey, PodState>,
    pub(crate) services: Services,
    pub(crate) dirty: BTreeSet<Key>,
}

impl World {
    /// An empty world of the zone of node `local`; node subnets must lie in `cluster`.
    pub fn new(local: impl Into<String>, cluster: Vec<ClusterCidr>) -> World {
        World {
            local: local.into(),
            cluster,
            local_node: None,
            nodes: BTreeMap::new(),
            refused: BTreeMap::new(),
            policies: Policies::default(),
            pods: BTreeMap::new(),
            services: Services::new(),
            dirty: BTreeSet::from([Key::Cluster, Key::LocalNode, Key::Gateway, Key::Templates]),
        }
    }

    /// With the namespace that stands for the nodes in policies; empty for none.
    pub fn with_host_namespace(mut self, name: &str) -> World {
        self.policies.set_host_namespace(name);
        self
    }

    /// Name of this zone's node.
    pub fn local_name(&self) -> &str {
        &self.local
    }

    /// This zone's node as last seen with usable subnets. It outlives the Node object: running pods keep their
    /// network while the object is re-created.
    pub fn local_node(&self) -> Option<&NodeState> {
        self.local_node.as_ref()
    }

    /// A node by name, this zone's included.
    pub fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)
    }

    /// All nodes of other zones.
    pub fn remote_nodes(&self) -> impl Iterator<Item = &NodeState> {
        self.nodes.values().filter(|node| node.name != self.local)
    }

    /// Why a node's subnets are not used, in words.
    pub fn refusal(&self, node: &str) -> Option<&str> {
        self.refused.get(node).map(String::as_str)
    }

    /// Whether the namespace exists.
    pub fn has_namespace(&self, name: &str) -> bool {
        self.policies.namespace(name).is_some()
    }

    /// A pod of this zone that has a network.
    pub fn pod(&self, key: &PodKey) -> Option<&PodState> {
        self.pods.get(key)
    }

    /// All pods of this zone that have a network.
    pub fn pods(&self) -> impl Iterator<Item = (&PodKey, &PodState)> {
        self.pods.iter()
    }

    /// Policies, and pods and namespaces as policies see them.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Every node with usable subnets, this zone's included.
    pub fn usable_nodes(&self) -> impl Iterator<Item = &NodeState> {
        self.nodes.values().filter(|node| !self.refused.contains_key(&node.name))
    }

    /// All nodes, this zone's included.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeState> {
        self.nodes.values()
    }

    /// Every key the tables have something to say about.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let fixed = [Key::Cluster, Key::LocalNode, Key::Gateway, Key::Templates].into_iter();
        let nodes = self.remote_nodes().map(|node| Key::RemoteNode(node.name.clone()));
        let namespaces = self.policies.namespaces().map(|(name, _)| Key::Namespace(name.clone()));
        let pods = self.pods.keys().cloned().map(Key::Pod);
        let services = self.services.services().map(|service| Key::Service(service.key.clone()));
        fixed.chain(nodes).chain(namespaces).chain(self.policies.keys()).chain(pods).chain(services)
    }

    /// Takes the keys that changed since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<Key> {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.append(&mut self.policies.take_dirty());
        dirty
    }

    /// Whether any key changed since [`World::take_dirty`].
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || self.policies.is_dirty()
    }

    /// Marks a key as changed.
    pub fn mark(&mut self, key: Key) {
        self.dirty.insert(key);
    }

    /// A node appeared or changed.
    pub fn apply_node(&mut self, node: &Node) {
        let state = NodeState::parse(node);
        let name = state.name.clone();
        let old = self.nodes.insert(name.clone(), state);
        let new = &self.nodes[&name];
        if old.as_ref() == Some(new) {
            return;
        }
        self.policies.nodes_changed();
        let claims_changed = old.is_none_or(|old| old.subnets != new.subnets || old.created != new.created);
        if claims_changed {
            self.settle_claims();
        }
        self.mark_node(&name);
    }

    /// A node is gone.
    pub fn remove_node(&mut self, name: &str) {
        if self.nodes.remove(name).is_some() {
            self.policies.nodes_changed();
            self.settle_claims();
            self.mark_node(name);
        }
    }

    /// The complete list of nodes: those not in it are gone.
    pub fn replace_nodes(&mut self, nodes: &[Node]) {
        let present: BTreeSet<&str> = nodes.iter().map(|node| node.metadata.name.as_str()).collect();
        let gone: Vec<String> =
            self.nodes.keys().filter(|name| !present.contains(name.as_str())).cloned().collect();
        for name in gone {
            self.remove_node(&name);
        }
        for node in nodes {
            self.apply_node(node);
        }
    }

    /// A namespace appeared or changed.
    pub fn apply_namespace(&mut self, namespace: &Namespace) {
        let name = &namespace.metadata.name;
        if !self.has_namespace(name) {
            self.dirty.insert(Key::Namespace(name.clone()));
        }
        let labels = self.policies.share_labels(&namespace.metadata.labels);
        self.policies.set_namespace(name, Some(NamespaceState::parse(namespace, labels)));
    }

    /// A namespace is gone.
    pub fn remove_namespace(&mut self, name: &str) {
        if self.has_namespace(name) {
            self.dirty.insert(Key::Namespace(name.to_owned()));
            self.policies.set_namespace(name, None);
        }
    }

    /// The complete list of namespaces: those not in it are gone.
    pub fn replace_namespaces(&mut self, namespaces: &[Namespace]) {
        let present: BTreeSet<&str> = namespaces.iter().map(|one| one.metadata.name.as_str()).collect();
        let known = self.policies.namespaces().map(|(name, _)| name);
        let gone: Vec<String> = known.filter(|name| !present.contains(name.as_str())).cloned().collect();
        for name in gone {
            self.remove_namespace(&name);
        }
        for namespace in namespaces {
            self.apply_namespace(namespace);
        }
    }

    /// A policy appeared or changed.
    pub fn apply_policy(&mut self, policy: Policy) {
        self.policies.apply(policy);
    }

    /// A policy is gone.
    pub fn remove_policy(&mut self, id: &PolicyId) {
        self.policies.remove(id);
    }

    /// The complete list of policies of a kind: those not in it are gone.
    pub fn replace_policies(&mut self, kind: Kind, policies: Vec<Policy>) {
        let present: BTreeSet<&PolicyId> = policies.iter().map(|policy| &policy.id).collect();
        let known = self.policies.policies().map(|policy| &policy.id).filter(|id| id.kind == kind);
        let gone: Vec<PolicyId> = known.filter(|id| !present.contains(id)).cloned().collect();
        for id in gone {
            self.policies.remove(&id);
        }
        for policy in policies {
            self.policies.apply(policy);
        }
    }

    /// A pod of any zone as policies see it, with its addresses as far as they are known.
    pub fn apply_peer(&mut self, pod: &Pod, ips: Vec<IpAddr>) {
        let local = pod.spec.node_name == self.local;
        self.policies.apply_pod(pod, ips, local);
    }

    /// A pod that policies need not know any more: it is gone or has ended.
    pub fn remove_peer(&mut self, key: &PodKey) {
        self.policies.remove_pod(key);
    }

    /// The addresses of a pod were decided; `None` when the pod needs none any more.
    pub fn set_pod(&mut self, key: &PodKey, state: Option<PodState>) {
        let changed = match state {
            Some(state) => self.pods.insert(key.clone(), state.clone()).as_ref() != Some(&state),
            None => self.pods.remove(key).is_some(),
        };
        if changed {
            self.dirty.insert(Key::Pod(key.clone()));
        }
    }

    fn mark_node(&mut self, name: &str) {
        if name != self.local {
            self.dirty.insert(Key::RemoteNode(name.to_owned()));
            return;
        }
        let usable = self
            .nodes
            .get(name)
            .filter(|node| !self.refused.contains_key(name) && node.missing_for_routing().is_none());
        let Some(node) = usable else { return };
        if self.local_node.as_ref() == Some(node) {
            return;
        }
        let chassis_changed = self.local_node.as_ref().map(|old| &old.chassis) != Some(&node.chassis);
        let services_concerned = self.local_node.as_ref().is_none_or(|old| services::concerned(old, node));
        self.local_node = Some(node.clone());
        self.dirty.extend([Key::LocalNode, Key::Gateway]);
        if services_concerned {
            self.mark_services();
        }
        if chassis_changed {
            self.dirty.extend(self.pods.keys().cloned().map(Key::Pod));
        }
    }

    /// Decides which nodes' subnets are used: inside the cluster CIDRs and not claimed by an older node.
    fn settle_claims(&mut self) {
        let mut order: Vec<&NodeState> = self.nodes.values().collect();
        order.sort_by(|a, b| a.seniority().cmp(&b.seniority()));
        let mut carver = Carver::new(self.cluster.iter().copied());
        let mut refused = BTreeMap::new();
        for node in order {
            for subnet in node.subnets.iter() {
                if let Err(error) = carver.reserve(*subnet, &node.name) {
                    refused.entry(node.name.clone()).or_insert_with(|| error.to_string());
                }
            }
        }
        let old = std::mem::replace(&mut self.refused, refused);
        let flipped: Vec<String> = old
            .keys()
            .chain(self.refused.keys())
            .filter(|name| old.get(*name) != self.refused.get(*name))
            .cloned()
            .collect();
        for name in flipped {
            self.mark_node(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> World {
        let cluster = ClusterCidr { cidr: "10.244.0.0/16".parse().unwrap(), host_prefix: 24 };
        let mut world = World::new("node1", vec![cluster]);
        world.take_dirty();
        world
    }

    fn node(name: &str, created: &str, subnet: &str) -> Node {
        let json = serde_json::json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": {
            "k8s.ovn.org/node-subnets": format!("{{\"default\":[\"{subnet}\"]}}"),
            "k8s.ovn.org/node-id": "3",
            "k8s.ovn.org/node-transit-switch-port-ifaddr": "{\"ipv4\":\"100.88.0.3/16\"}",
            "k8s.ovn.org/node-chassis-id": format!("chassis-{name}")}}});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn an_unchanged_object_dirties_nothing() {
        let mut world = world();
        world.apply_node(&node("node2", "2026-01-01T00:00:00Z", "10.244.1.0/24"));
        assert_eq!(world.take_dirty(), BTreeSet::from([Key::RemoteNode("node2".into())]));
        world.apply_node(&node("node2", "2026-01-01T00:00:00Z", "10.244.1.0/24"));
        assert!(!world.is_dirty());
    }

    #[test]
    fn the_older_node_keeps_a_subnet_two_claim_and_the_younger_recovers() {
        let mut world = world();
        world.apply_node(&node("young", "2026-02-01T00:00:00Z", "10.244.1.0/24"));
        assert_eq!(world.refusal("young"), None);
        world.apply_node(&node("old", "2026-01-01T00:00:00Z", "10.244.1.0/24"));
        assert_eq!(world.refusal("old"), None);
        assert!(world.refusal("young").unwrap().contains("belongs to node old"));
        world.take_dirty();
        world.remove_node("old");
        assert_eq!(world.refusal("young"), None);
        assert!(world.take_dirty().contains(&Key::RemoteNode("young".into())));
    }

    #[test]
    fn foreign_subnets_are_refused() {
        let mut world = world();
        world.apply_node(&node("node2", "2026-01-01T00:00:00Z", "10.99.0.0/24"));
        assert!(world.refusal("node2").unwrap().contains("not inside the cluster CIDRs"));
    }

    #[test]
    fn the_local_node_outlives_its_object() {
        let mut world = world();
        world.apply_node(&node("node1", "2026-01-01T00:00:00Z", "10.244.0.0/24"));
        assert_eq!(world.take_dirty(), BTreeSet::from([Key::LocalNode, Key::Gateway, Key::Templates]));
        world.remove_node("node1");
        assert!(!world.is_dirty());
        assert_eq!(world.local_node().unwrap().subnets.v4, Some("10.244.0.0/24".parse().unwrap()));
    }
}
