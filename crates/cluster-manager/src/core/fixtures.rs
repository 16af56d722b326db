//! Plans and nodes for tests.

use kapi::annotations::{NODE_ID, NODE_SUBNETS};
use kapi::{Node, NodeAddress};
use net::{ClusterCidr, Dual};

use crate::NetworkPlan;

pub(crate) fn v4_plan() -> NetworkPlan {
    NetworkPlan {
        cluster: vec![ClusterCidr { cidr: "10.244.0.0/16".parse().unwrap(), host_prefix: 24 }],
        services: vec!["10.96.0.0/16".parse().unwrap()],
        join: Dual { v4: "100.64.0.0/16".parse().ok(), v6: "fd98::/64".parse().ok() },
        transit: Dual { v4: "100.88.0.0/16".parse().ok(), v6: "fd97::/64".parse().ok() },
        masquerade: Dual { v4: "169.254.169.0/29".parse().ok(), v6: "fd69::/125".parse().ok() },
        no_subnet_nodes: None,
    }
}

pub(crate) fn dual_plan() -> NetworkPlan {
    let mut plan = v4_plan();
    plan.cluster.push(ClusterCidr { cidr: "fd00:10:244::/48".parse().unwrap(), host_prefix: 64 });
    plan.services.push("fd00:10:96::/112".parse().unwrap());
    plan
}

/// `10.0.0.0/<prefix>` cut into /24.
pub(crate) fn small_plan(prefix: u8) -> NetworkPlan {
    let mut plan = v4_plan();
    plan.cluster = vec![ClusterCidr { cidr: format!("10.0.0.0/{prefix}").parse().unwrap(), host_prefix: 24 }];
    plan
}

pub(crate) fn node(name: &str, age: u32, version: u64) -> Node {
    let mut node = Node::default();
    node.metadata.name = name.to_owned();
    node.metadata.uid = format!("uid-{name}");
    node.metadata.resource_version = version.to_string();
    node.metadata.creation_timestamp = Some(format!("2026-01-01T00:{:02}:{:02}Z", age / 60, age % 60));
    node.status.addresses.push(NodeAddress { kind: "InternalIP".into(), address: "172.18.0.1".into() });
    node
}

pub(crate) fn annotated(mut node: Node, subnets: &str, id: &str) -> Node {
    for (key, value) in [(NODE_SUBNETS, subnets), (NODE_ID, id)] {
        if !value.is_empty() {
            node.metadata.annotations.insert(key.to_owned(), value.to_owned());
        }
    }
    node
}
