//! The cluster as far as policies are about it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kapi::{Namespace, Node, Pod, PodKey};
use net::nth_address;
use policy::{Namespaces, Policy, PolicyId};

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// The label the API server puts on every namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// What of the configuration bears on policies.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespace that stands for the nodes (`host-network-namespace`).
    pub host_network_namespace: String,
    /// Whether ICMP always passes (`allow-icmp-network-policy`).
    pub allow_icmp: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { host_network_namespace: "ovn-host-network".to_owned(), allow_icmp: false }
    }
}

/// Namespaces, nodes, pods and policies.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    pub(crate) settings: Settings,
    pub(crate) namespaces: BTreeMap<String, Labels>,
    pub(crate) nodes: BTreeMap<String, NodeView>,
    pub(crate) pods: BTreeMap<PodKey, PodView>,
    pub(crate) policies: BTreeMap<PolicyId, Policy>,
    /// Namespaces that were only assumed to exist.
    pub(crate) assumed: BTreeSet<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct NodeView {
    pub(crate) labels: Labels,
    /// The addresses by which it is reached.
    pub(crate) addresses: Vec<IpAddr>,
    /// The addresses from which it reaches pods: its management port's.
    pub(crate) management: Vec<IpAddr>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct PodView {
    pub(crate) labels: Labels,
    pub(crate) node: String,
    pub(crate) host_network: bool,
    pub(crate) finished: bool,
    /// Its own addresses, or its node's when it is on the node's network. None while it has not been started.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) ports: Vec<kapi::NamedPort>,
}

impl PodView {
    /// Whether it lives and has a network of its own.
    pub(crate) fn is_policed(&self) -> bool {
        !self.finished && !self.host_network
    }
}

impl Cluster {
    /// An empty cluster.
    pub fn new(settings: Settings) -> Cluster {
        Cluster { settings, ..Cluster::default() }
    }

    /// Adds or replaces a namespace.
    pub fn add_namespace(&mut self, namespace: &Namespace) {
        let meta = &namespace.metadata;
        let mut labels = meta.labels.clone();
        labels.insert(NAMESPACE_NAME.to_owned(), meta.name.clone());
        self.assumed.remove(&meta.name);
        self.namespaces.insert(meta.name.clone(), labels);
    }

    /// Adds or replaces a node.
    pub fn add_node(&mut self, node: &Node) {
        let addresses = node.status.addresses.iter().filter_map(|one| one.address.parse().ok()).collect();
        let subnets = node.metadata.default_node_subnets().ok().flatten().unwrap_or_default();
        let management = subnets.iter().filter_map(|subnet| nth_address(subnet, 2)).collect();
        let view = NodeView { labels: node.metadata.labels.clone(), addresses, management };
        self.nodes.insert(node.metadata.name.clone(), view);
    }

    /// Adds or replaces a pod.
    pub fn add_pod(&mut self, pod: &Pod) {
        let in_status = || pod.status.pod_ips.iter().map(|one| one.ip).collect();
        let annotated = pod.metadata.default_pod_network().ok().flatten();
        let addresses = match annotated {
            Some(network) if !pod.spec.host_network => network.addresses().collect(),
            _ => in_status(),
        };
        let view = PodView {
            labels: pod.metadata.labels.clone(),
            node: pod.spec.node_name.clone(),
            host_network: pod.spec.host_network,
            finished: pod.is_finished(),
            addresses,
            ports: pod.named_ports().cloned().collect(),
        };
        self.assume_namespace(&pod.metadata.namespace);
        self.pods.insert(pod.pod_key(), view);
    }

    /// Adds or replaces a policy.
    pub fn add_policy(&mut self, policy: Policy) {
        self.assume_namespace(&policy.id.namespace);
        self.policies.insert(policy.id.clone(), policy);
    }

    /// Removes a policy; tells whether it was there.
    pub fn remove_policy(&mut self, id: &PolicyId) -> bool {
        self.policies.remove(id).is_some()
    }

    /// All policies.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.values()
    }

    /// All pods by name.
    pub fn pods(&self) -> impl Iterator<Item = &PodKey> {
        self.pods.keys()
    }

    /// Namespaces that objects name but that were not given: they are judged as if they had no labels but their name.
    pub fn assumed_namespaces(&self) -> impl Iterator<Item = &str> {
        self.assumed.iter().map(String::as_str)
    }

    fn assume_namespace(&mut self, name: &str) {
        if !name.is_empty() && !self.namespaces.contains_key(name) {
            let labels = Labels::from([(NAMESPACE_NAME.to_owned(), name.to_owned())]);
            self.namespaces.insert(name.to_owned(), labels);
            self.assumed.insert(name.to_owned());
        }
    }

    /// Whether the selection's namespaces hold `namespace`. One that does not exist is in none by labels.
    pub(crate) fn selects_namespace(&self, selection: &policy::Selection, namespace: &str) -> bool {
        match (&selection.namespaces, self.namespaces.get(namespace)) {
            (_, Some(labels)) => selection.matches_namespace(namespace, labels),
            (Namespaces::Named(wanted), None) => wanted == namespace,
            (Namespaces::Labelled(_), None) => false,
        }
    }

    /// Whether the policy is for the pod.
    pub(crate) fn is_subject(&self, policy: &Policy, key: &PodKey, pod: &PodView) -> bool {
        pod.is_policed()
            && self.selects_namespace(&policy.subject, &key.namespace)
            && policy.subject.matches_labels(&pod.labels)
    }
}
