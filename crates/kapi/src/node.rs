//! Nodes.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::meta::or_default;
use crate::{Meta, Object, Resource};

/// A node (core/v1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Metadata.
    pub metadata: Meta,
    /// Desired state.
    #[serde(deserialize_with = "or_default")]
    pub spec: NodeSpec,
    /// Observed state.
    #[serde(deserialize_with = "or_default")]
    pub status: NodeStatus,
}

/// The part of a node's spec we read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Name of the machine at the cloud provider.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
}

/// The part of a node's status we read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Addresses by type.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<NodeAddress>,
    /// Conditions.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<NodeCondition>,
}

/// One address of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname` …
    #[serde(rename = "type")]
    pub kind: String,
    /// The address as text.
    pub address: String,
}

/// One condition of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeCondition {
    /// `Ready`, `NetworkUnavailable` …
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Machine-readable cause.
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
}

impl Node {
    /// The node's `InternalIP` addresses in their order; entries that are no IP address are left out.
    pub fn internal_ips(&self) -> impl Iterator<Item = IpAddr> {
        let internal = self.status.addresses.iter().filter(|address| address.kind == "InternalIP");
        internal.filter_map(|address| address.address.parse().ok())
    }
}

impl Object for Node {
    const RESOURCE: Resource =
        Resource { group: "", version: "v1", plural: "nodes", kind: "Node", namespaced: false };

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
