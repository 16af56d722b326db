//! Annotation keys and the codecs of their values.

mod gateway;
mod node;
mod pod_networks;

pub use gateway::{ExternalBridge, GATEWAY_CONFIG, GatewayConfig, GatewayMode};
pub use node::{
    CHASSIS_ID, CidrPair, ENCAP_IPS, GATEWAY_MTU_SUPPORT, HOST_CIDRS, LAYER2_TOPOLOGY_VERSION,
    LEGACY_ROUTER_LRP_ADDRESSES, MASQUERADE_SUBNET, NODE_ID, NODE_SUBNETS, PRIMARY_IFADDR, TRANSIT_ADDRESSES,
    node_id, parse_cidr_pair, parse_encap_ips, parse_host_cidrs, parse_node_subnets, write_cidr_pair,
    write_list, write_node_subnets,
};
pub use pod_networks::{POD_NETWORKS, PodNetwork, PodRoute, Role, merge_pod_networks, parse_pod_networks};

/// Name of the cluster's own network, the key of per-network maps.
pub const DEFAULT_NETWORK: &str = "default";

/// An annotation whose value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {key} has the unusable value {value:?}: {problem}")]
pub struct AnnotationError {
    /// The annotation's key.
    pub key: &'static str,
    /// Its value, shortened.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
}

impl AnnotationError {
    /// An error about `value` of `key`; long values are cut.
    pub fn new(key: &'static str, value: &str, problem: impl Into<String>) -> AnnotationError {
        let cut: String = value.chars().take(200).collect();
        AnnotationError { key, value: cut, problem: problem.into() }
    }
}
