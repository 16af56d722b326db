//! Names and ids of the objects OVN-Kubernetes keeps in OVN, all in one place.
//!
//! Objects of some tables are told apart by *object ids*: external-ids that name the owning controller, the kind
//! of owner and the owner's keys, joined to one primary id. Port groups and address sets are named by a hash of
//! that id, because OVN's names allow neither its length nor its characters.

use std::net::IpAddr;

/// The router all node switches hang on.
pub const CLUSTER_ROUTER: &str = "ovn_cluster_router";
/// The switch between cluster router and gateway router.
pub const JOIN_SWITCH: &str = "join";
/// The switch between the zones of the cluster.
pub const TRANSIT_SWITCH: &str = "transit_switch";
/// Load balancers of all switches and gateway routers.
pub const CLUSTER_LB_GROUP: &str = "clusterLBGroup";
/// Load balancers of all node switches.
pub const SWITCH_LB_GROUP: &str = "clusterSwitchLBGroup";
/// Load balancers of all gateway routers.
pub const ROUTER_LB_GROUP: &str = "clusterRouterLBGroup";
/// The control-plane protection set of our routers.
pub const COPP: &str = "ovnkube-default";
/// The meter ACL logging is limited by.
pub const ACL_METER: &str = "acl-logging";
/// Tunnel key of the default network's transit switch; other networks add their id.
pub const TRANSIT_TUNNEL_KEY: u32 = 16_711_683;

/// `external_ids` key of the primary id.
pub const ID: &str = "k8s.ovn.org/id";
/// `external_ids` key of the owning controller.
pub const OWNER_CONTROLLER: &str = "k8s.ovn.org/owner-controller";
/// `external_ids` key of the kind of owner.
pub const OWNER_TYPE: &str = "k8s.ovn.org/owner-type";
/// `external_ids` key of the owner's name.
pub const OBJECT_NAME: &str = "k8s.ovn.org/name";
/// `external_ids` key of the network a row belongs to.
pub const NETWORK: &str = "k8s.ovn.org/network";
/// `external_ids` key that marks what leads to a remote node.
pub const IC_NODE: &str = "ic-node";
/// `external_ids` key of the kind of object a load balancer is made for.
pub const KIND: &str = "k8s.ovn.org/kind";
/// `external_ids` key of the object (`namespace/name`) a load balancer is made for.
pub const OWNER: &str = "k8s.ovn.org/owner";
/// Owner of everything of the cluster's own network.
pub const DEFAULT_CONTROLLER: &str = "default-network-controller";

/// Router port of the cluster router towards the node's switch.
pub fn router_to_switch(node: &str) -> String {
    format!("rtos-{node}")
}

/// Switch port of the node's switch towards the cluster router.
pub fn switch_to_router(node: &str) -> String {
    format!("stor-{node}")
}

/// Router port towards the join switch; `router` is the cluster router or a gateway router.
pub fn router_to_join(router: &str) -> String {
    format!("rtoj-{router}")
}

/// Switch port of the join switch towards `router`.
pub fn join_to_router(router: &str) -> String {
    format!("jtor-{router}")
}

/// Router port of the cluster router towards the transit switch.
pub fn router_to_transit(node: &str) -> String {
    format!("rtots-{node}")
}

/// Switch port of the transit switch towards the node's zone.
pub fn transit_to_router(node: &str) -> String {
    format!("tstor-{node}")
}

/// Switch port of the node's management port.
pub fn management_port(node: &str) -> String {
    format!("k8s-{node}")
}

/// The node's gateway router.
pub fn gateway_router(node: &str) -> String {
    format!("GR_{node}")
}

/// The switch between the node's gateway router and its bridge to the outside.
pub fn external_switch(node: &str) -> String {
    format!("ext_{node}")
}

/// Router port of the node's gateway router towards the outside.
pub fn gateway_to_external(node: &str) -> String {
    format!("rtoe-{}", gateway_router(node))
}

/// Switch port of the external switch towards the node's gateway router.
pub fn external_to_gateway(node: &str) -> String {
    format!("etor-{}", gateway_router(node))
}

/// Name under which the bridge to the outside is known to OVN (`ovn-bridge-mappings`).
pub const PHYSICAL_NETWORK: &str = "physnet";
/// The same for the second bridge to the outside.
pub const EXTERNAL_NETWORK: &str = "exgwphysnet";
/// What names of rows about the second bridge begin with; the rest is as for the first.
pub const EXTERNAL_PREFIX: &str = "exgw-";
/// `external_ids` key of the route that keeps masquerade addresses on the node.
pub const MASQUERADE_ROUTE: &str = "k8s.ovn.org/node-masquerade-subnet";

/// Switch port of a pod on the cluster network; also the `iface-id` of its interface.
pub fn pod_port(namespace: &str, pod: &str) -> String {
    format!("{namespace}_{pod}")
}

/// The row that pins a distributed gateway port to a chassis.
pub fn gateway_chassis(router_port: &str, chassis: &str) -> String {
    format!("{router_port}-{chassis}")
}

/// Load balancer of a service for one protocol; `scope` tells where it works.
pub fn load_balancer(service: &str, protocol: &str, scope: &str) -> String {
    format!("Service_{service}_{protocol}_{scope}")
}

/// Template variable with an address of each chassis; `family` as the API writes it, such as `IPv4`.
pub fn node_address_variable(family: &str, index: usize) -> String {
    format!("NODEIP_{family}_{index}")
}

/// Object ids of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectIds {
    primary: String,
    external_ids: Vec<(String, String)>,
}

impl ObjectIds {
    /// Ids for an object of the default network's controller; `keys` in the order the owner type declares them.
    pub fn new(owner_type: &str, keys: &[(&str, &str)]) -> ObjectIds {
        let mut primary = format!("{DEFAULT_CONTROLLER}:{owner_type}");
        let mut external_ids = vec![
            (OWNER_CONTROLLER.to_owned(), DEFAULT_CONTROLLER.to_owned()),
            (OWNER_TYPE.to_owned(), owner_type.to_owned()),
        ];
        for (key, value) in keys {
            primary.push(':');
            primary.push_str(value);
            external_ids.push(((*key).to_owned(), (*value).to_owned()));
        }
        external_ids.push((ID.to_owned(), primary.clone()));
        ObjectIds { primary, external_ids }
    }

    /// Ids whose only key is the object's name.
    pub fn named(owner_type: &str, name: &str) -> ObjectIds {
        ObjectIds::new(owner_type, &[(OBJECT_NAME, name)])
    }

    /// The primary id, unique in its table.
    pub fn primary(&self) -> &str {
        &self.primary
    }

    /// All external-ids of the row.
    pub fn external_ids(&self) -> &[(String, String)] {
        &self.external_ids
    }

    /// The row's name where names are hashes of ids (port groups, address sets).
    pub fn hashed_name(&self) -> String {
        hashed_name(&self.primary)
    }
}

/// `a` and the decimal FNV-1a hash (64 bit) of a primary id.
pub fn hashed_name(primary: &str) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in primary.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("a{hash}")
}

/// `MAC ip ip…`, the form of a logical switch port's addresses.
pub fn port_addresses(mac: impl std::fmt::Display, ips: impl IntoIterator<Item = IpAddr>) -> String {
    let mut text = mac.to_string();
    for ip in ips {
        text.push(' ');
        text.push_str(&ip.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashed_names_equal_the_recorded_ones() {
        let recorded = [
            (ObjectIds::named("Cluster", "clusterPortGroup"), "a13298398610555951118"),
            (ObjectIds::named("Cluster", "clusterRtrPortGroup"), "a4743249366342378346"),
            (ObjectIds::named("Namespace", "default"), "a5680351521869907322"),
            (
                ObjectIds::new("ClusterNodeIPs", &[(OBJECT_NAME, "node-ips"), ("ip-family", "v4")]),
                "a1042611113178530741",
            ),
        ];
        for (ids, name) in recorded {
            assert_eq!(ids.hashed_name(), name, "{}", ids.primary());
        }
    }
}
