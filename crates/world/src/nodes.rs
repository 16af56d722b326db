//! Nodes, with their annotations parsed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kapi::annotations::{self, AnnotationError, GatewayConfig};
use kapi::{Meta, Node};
use net::{Dual, IpNet};

/// Label of the zone a node is in.
const ZONE: &str = "topology.kubernetes.io/zone";

/// What the annotations of a node say. A value that cannot be used is absent and named in `problems`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Name of the Node object.
    pub name: String,
    /// UID of the Node object.
    pub uid: String,
    /// When the object was created (RFC 3339); decides which of two conflicting nodes keeps its claim.
    pub created: String,
    /// Number that places join and transit addresses.
    pub id: Option<u32>,
    /// Subnets of the cluster network.
    pub subnets: Dual<IpNet>,
    /// Addresses on the transit switch.
    pub transit: Dual<IpNet>,
    /// `system-id` of the node's Open vSwitch.
    pub chassis: Option<String>,
    /// Tunnel endpoints.
    pub encap_ips: Vec<IpAddr>,
    /// Addresses of the host.
    pub host_cidrs: Vec<IpNet>,
    /// The zone of the provider's the node is in (label `topology.kubernetes.io/zone`).
    pub zone: Option<String>,
    /// How the node reaches the outside.
    pub gateway: Option<GatewayConfig>,
    /// Whether packet sizes can be checked on the way in.
    pub gateway_mtu: bool,
    /// Labels of the Node object.
    pub labels: BTreeMap<String, String>,
    /// Addresses in the status of the Node object, of whatever kind.
    pub addresses: Vec<IpAddr>,
    /// Annotations that cannot be used, in words.
    pub problems: Vec<String>,
}

impl NodeState {
    /// Reads a Node object.
    pub fn parse(node: &Node) -> NodeState {
        let meta = &node.metadata;
        let mut problems = Vec::new();
        let mut keep = Keep { problems: &mut problems };
        let state = NodeState {
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            created: meta.creation_timestamp.clone().unwrap_or_default(),
            id: keep.value(annotations::node_id(meta)),
            subnets: keep.value(meta.default_node_subnets()).unwrap_or_default(),
            transit: keep
                .value(annotations::parse_cidr_pair(meta, annotations::TRANSIT_ADDRESSES))
                .unwrap_or_default(),
            chassis: meta.annotation(annotations::CHASSIS_ID).filter(|id| !id.is_empty()).map(str::to_owned),
            encap_ips: encap_ips(&mut keep, node),
            host_cidrs: keep.value(annotations::parse_host_cidrs(meta)).unwrap_or_default(),
            zone: meta.labels.get(ZONE).filter(|zone| !zone.is_empty()).cloned(),
            gateway: keep.value(GatewayConfig::parse(meta)),
            gateway_mtu: meta.annotation(annotations::GATEWAY_MTU_SUPPORT) != Some("false"),
            labels: meta.labels.clone(),
            addresses: node.status.addresses.iter().filter_map(|one| one.address.parse().ok()).collect(),
            problems: Vec::new(),
        };
        NodeState { problems, ..state }
    }

    /// The annotations another zone needs to reach this node's pods but that are missing, comma separated.
    pub fn missing_for_routing(&self) -> Option<String> {
        let missing: Vec<&str> = [
            (annotations::NODE_SUBNETS, self.subnets.is_empty()),
            (annotations::NODE_ID, self.id.is_none()),
            (annotations::TRANSIT_ADDRESSES, self.transit.is_empty()),
            (annotations::CHASSIS_ID, self.chassis.is_none()),
        ]
        .into_iter()
        .filter_map(|(key, absent)| absent.then_some(key))
        .collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    }

    /// Age order: the older object keeps what two claim; equal ages go by name.
    pub(crate) fn seniority(&self) -> (&str, &str) {
        (&self.created, &self.name)
    }
}

struct Keep<'a> {
    problems: &'a mut Vec<String>,
}

impl Keep<'_> {
    fn value<T>(&mut self, parsed: Result<Option<T>, AnnotationError>) -> Option<T> {
        parsed.unwrap_or_else(|error| {
            self.problems.push(error.to_string());
            None
        })
    }
}

/// The announced tunnel endpoints, or the node's own address while none are announced.
fn encap_ips(keep: &mut Keep<'_>, node: &Node) -> Vec<IpAddr> {
    let meta: &Meta = &node.metadata;
    let announced = keep.value(annotations::parse_encap_ips(meta)).unwrap_or_default();
    if announced.is_empty() { node.internal_ips().take(1).collect() } else { announced }
}
