//! NetworkPolicies.

use serde::{Deserialize, Serialize};

use crate::meta::or_default;
use crate::{IntOrString, LabelSelector, Meta, Object, Resource};

/// A network policy (networking.k8s.io/v1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkPolicy {
    /// Metadata.
    pub metadata: Meta,
    /// Desired state.
    #[serde(deserialize_with = "or_default")]
    pub spec: NetworkPolicySpec,
}

/// What a network policy says. Texts are kept as written: what cannot be used must not hide the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicySpec {
    /// Pods of the policy's namespace it is for; an empty selector is for all of them.
    #[serde(deserialize_with = "or_default")]
    pub pod_selector: LabelSelector,
    /// `Ingress`, `Egress`; absent: `Ingress`, and `Egress` when there are egress rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_types: Option<Vec<String>>,
    /// What may reach the pods.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub ingress: Vec<NetworkPolicyIngressRule>,
    /// What the pods may reach.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub egress: Vec<NetworkPolicyEgressRule>,
}

/// Traffic allowed to the pods: from any of the peers to any of the ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkPolicyIngressRule {
    /// Sources; none means everywhere.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub from: Vec<NetworkPolicyPeer>,
    /// Ports; none means all.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub ports: Vec<NetworkPolicyPort>,
}

/// Traffic allowed from the pods: to any of the peers, at any of the ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkPolicyEgressRule {
    /// Destinations; none means everywhere.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub to: Vec<NetworkPolicyPeer>,
    /// Ports; none means all.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub ports: Vec<NetworkPolicyPort>,
}

/// The other end: pods by labels, or addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicyPeer {
    /// Pods of the policy's namespace, or of the namespaces `namespace_selector` selects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// Namespaces by labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Addresses; excludes the other two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_block: Option<IpBlock>,
}

/// A range of addresses without some parts of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IpBlock {
    /// The range, `10.0.0.0/8`.
    pub cidr: String,
    /// What of it is left out.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub except: Vec<String>,
}

/// Ports of a protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicyPort {
    /// `TCP` (also when absent), `UDP` or `SCTP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Number or name of the port; absent means all ports of the protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<IntOrString>,
    /// Last port of a range that begins at `port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_port: Option<i32>,
}

impl Object for NetworkPolicy {
    const RESOURCE: Resource = Resource {
        group: "networking.k8s.io",
        version: "v1",
        plural: "networkpolicies",
        kind: "NetworkPolicy",
        namespaced: true,
    };

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
