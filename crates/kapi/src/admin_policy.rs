//! AdminNetworkPolicies, the BaselineAdminNetworkPolicy, and ClusterNetworkPolicies, which succeed both.

use serde::{Deserialize, Serialize};

use crate::meta::or_default;
use crate::{LabelSelector, Meta, Object, Resource};

const GROUP: &str = "policy.networking.k8s.io";

/// A policy of the cluster's administrator (policy.networking.k8s.io/v1alpha1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminNetworkPolicy {
    /// Metadata.
    pub metadata: Meta,
    /// Desired state.
    #[serde(deserialize_with = "or_default")]
    pub spec: AdminPolicySpec,
    /// Observed state.
    #[serde(deserialize_with = "or_default", skip_serializing)]
    pub status: AdminPolicyStatus,
}

/// What holds where no other policy decides (policy.networking.k8s.io/v1alpha1); there is one, called `default`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BaselineAdminNetworkPolicy {
    /// Metadata.
    pub metadata: Meta,
    /// Desired state; it has no priority.
    #[serde(deserialize_with = "or_default")]
    pub spec: AdminPolicySpec,
    /// Observed state.
    #[serde(deserialize_with = "or_default", skip_serializing)]
    pub status: AdminPolicyStatus,
}

/// A policy of the cluster's administrator (policy.networking.k8s.io/v1alpha2).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterNetworkPolicy {
    /// Metadata.
    pub metadata: Meta,
    /// Desired state.
    #[serde(deserialize_with = "or_default")]
    pub spec: AdminPolicySpec,
    /// Observed state.
    #[serde(deserialize_with = "or_default", skip_serializing)]
    pub status: AdminPolicyStatus,
}

/// What zones say of an administrator's policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminPolicyStatus {
    /// A condition a zone.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}

/// A condition (`metav1.Condition`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// For people.
    #[serde(deserialize_with = "or_default")]
    pub message: String,
    /// The generation of the object it is about.
    pub observed_generation: Option<i64>,
}

/// What an administrator's policy says, in any of the kinds. Texts are kept as written: what cannot be used must
/// not hide the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminPolicySpec {
    /// `Admin` or `Baseline`, of a ClusterNetworkPolicy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// 0 to 1000; lower numbers decide first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// The pods it is for.
    #[serde(deserialize_with = "or_default")]
    pub subject: AdminPolicyPods,
    /// Rules for traffic to the pods; the first that matches decides.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub ingress: Vec<AdminIngressRule>,
    /// Rules for traffic from the pods; the first that matches decides.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub egress: Vec<AdminEgressRule>,
}

/// Pods: all of some namespaces, or some of some namespaces. Exactly one is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminPolicyPods {
    /// All pods of the namespaces with these labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<LabelSelector>,
    /// Pods by labels in namespaces by labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<NamespacedPods>,
}

/// Pods by labels in namespaces by labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespacedPods {
    /// The namespaces; empty selects all.
    #[serde(deserialize_with = "or_default")]
    pub namespace_selector: LabelSelector,
    /// The pods; empty selects all.
    #[serde(deserialize_with = "or_default")]
    pub pod_selector: LabelSelector,
}

/// A rule for traffic to the pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdminIngressRule {
    /// What people call it.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// `Allow` (`Accept` in a ClusterNetworkPolicy), `Deny` or `Pass`.
    #[serde(deserialize_with = "or_default")]
    pub action: String,
    /// Sources.
    #[serde(deserialize_with = "or_default")]
    pub from: Vec<AdminPeer>,
    /// Ports in v1alpha1; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<AdminPort>>,
    /// Protocols and ports in v1alpha2; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocols: Option<Vec<ClusterProtocol>>,
}

/// A rule for traffic from the pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdminEgressRule {
    /// What people call it.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// `Allow` (`Accept` in a ClusterNetworkPolicy), `Deny` or `Pass`.
    #[serde(deserialize_with = "or_default")]
    pub action: String,
    /// Destinations.
    #[serde(deserialize_with = "or_default")]
    pub to: Vec<AdminPeer>,
    /// Ports in v1alpha1; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<AdminPort>>,
    /// Protocols and ports in v1alpha2; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocols: Option<Vec<ClusterProtocol>>,
}

/// The other end. Exactly one is set; none means a kind of peer we do not know.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdminPeer {
    /// All pods of the namespaces with these labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<LabelSelector>,
    /// Pods by labels in namespaces by labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<NamespacedPods>,
    /// Nodes by labels (egress).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<LabelSelector>,
    /// Ranges of addresses (egress).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networks: Option<Vec<String>>,
    /// Names of hosts outside the cluster (egress, v1alpha2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_names: Option<Vec<String>>,
}

/// A port in v1alpha1. Exactly one is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdminPort {
    /// One port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_number: Option<AdminPortNumber>,
    /// A range of ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_range: Option<AdminPortRange>,
    /// The container port of this name, of whatever protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_port: Option<String>,
}

/// One port of a protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminPortNumber {
    /// `TCP` (also when absent), `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The number.
    pub port: i64,
}

/// A range of ports of a protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdminPortRange {
    /// `TCP` (also when absent), `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The first port.
    pub start: i64,
    /// The last port.
    pub end: i64,
}

/// A protocol and perhaps ports of it, in v1alpha2. Exactly one is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterProtocol {
    /// TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<ClusterPorts>,
    /// UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<ClusterPorts>,
    /// SCTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sctp: Option<ClusterPorts>,
    /// The container port of this name, of whatever protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_named_port: Option<String>,
}

/// Ports of a protocol, in v1alpha2.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterPorts {
    /// The port or ports; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<ClusterPort>,
}

/// One port or a range, in v1alpha2. Exactly one is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterPort {
    /// One port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,
    /// A range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<ClusterPortRange>,
}

/// A range of ports, in v1alpha2.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterPortRange {
    /// The first port.
    pub start: i64,
    /// The last port.
    pub end: i64,
}

impl Object for AdminNetworkPolicy {
    const RESOURCE: Resource = Resource {
        group: GROUP,
        version: "v1alpha1",
        plural: "adminnetworkpolicies",
        kind: "AdminNetworkPolicy",
        namespaced: false,
    };

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Object for BaselineAdminNetworkPolicy {
    const RESOURCE: Resource = Resource {
        group: GROUP,
        version: "v1alpha1",
        plural: "baselineadminnetworkpolicies",
        kind: "BaselineAdminNetworkPolicy",
        namespaced: false,
    };

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Object for ClusterNetworkPolicy {
    const RESOURCE: Resource = Resource {
        group: GROUP,
        version: "v1alpha2",
        plural: "clusternetworkpolicies",
        kind: "ClusterNetworkPolicy",
        namespaced: false,
    };

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
