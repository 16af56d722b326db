//! What a row found in a database is called, and whose it is.
//!
//! Names are what [`crate::Desired`] calls rows; owners are the keys whose compiled rows would contain it. Rows
//! without an owner here are somebody else's and never touched.

use kapi::PodKey;
use ovn::names;
use ovsdb::{Row, Uuid};
use world::Key;

use crate::table::{self, Table};

/// Looks rows up while an owner is determined.
pub trait Lookup {
    /// The row of `table` with this UUID.
    fn row(&self, table: Table, uuid: &Uuid) -> Option<&Row>;
}

/// Name of a static route.
pub fn route_name(prefix: &str, next_hop: &str, policy: &str, output_port: &str) -> String {
    let policy = if policy.is_empty() { "dst-ip" } else { policy };
    format!("{prefix} via {next_hop} {policy} {output_port}")
}

/// Name of a router policy.
pub fn policy_name(priority: i64, matching: &str) -> String {
    format!("{priority} {matching}")
}

/// Name of a meter band.
pub fn band_name(action: &str, rate: i64, burst: i64) -> String {
    format!("{action} {rate} {burst}")
}

/// Name of an encapsulation; no two may have the same (Southbound index on type and ip).
pub fn encap_name(kind: &str, ip: &str) -> String {
    format!("{kind} {ip}")
}

/// The name of a row, unique in its table among rows of the default network; `None` when it has none.
pub fn name(table: Table, row: &Row) -> Option<String> {
    let text = |column: &str| row.get(column).and_then(|datum| datum.as_str());
    let number = |column: &str| row.get(column).and_then(|datum| datum.as_int()).unwrap_or_default();
    match table {
        table::ACL | table::PORT_GROUP => external_id(row, names::ID).map(str::to_owned),
        table::STATIC_ROUTE => Some(route_name(
            text("ip_prefix")?,
            text("nexthop")?,
            text("policy").unwrap_or_default(),
            text("output_port").unwrap_or_default(),
        )),
        table::ROUTER_POLICY => Some(policy_name(number("priority"), text("match")?)),
        table::METER_BAND => Some(band_name(text("action")?, number("rate"), number("burst_size"))),
        table::ENCAP => Some(encap_name(text("type")?, text("ip")?)),
        _ => text("name").map(str::to_owned),
    }
}

/// The key a row belongs to, in the zone of node `local`.
pub fn owner(table: Table, row: &Row, local: &str, lookup: &dyn Lookup) -> Option<Key> {
    let name = row.get("name").and_then(|datum| datum.as_str()).unwrap_or_default();
    match table {
        table::SWITCH_PORT => switch_port_owner(row, name, local),
        table::ROUTER_PORT => router_port_owner(name, local),
        table::SWITCH => switch_owner(row, name, local, lookup),
        table::ROUTER => (name == names::CLUSTER_ROUTER).then_some(Key::Cluster),
        table::STATIC_ROUTE => external_id(row, names::IC_NODE).map(|node| node_key(node, local)),
        table::ROUTER_POLICY => policy_owner(row, local),
        table::ACL => match external_id(row, names::OWNER_TYPE)? {
            "NetpolDefault" => Some(Key::Cluster),
            "NetpolNode" => external_id(row, names::OBJECT_NAME).map(|node| node_key(node, local)),
            _ => None,
        },
        table::PORT_GROUP => match external_id(row, names::OWNER_TYPE)? {
            "Cluster" => Some(Key::Cluster),
            "Namespace" => external_id(row, names::OBJECT_NAME).map(|ns| Key::Namespace(ns.to_owned())),
            _ => None,
        },
        table::GATEWAY_CHASSIS => {
            let local_port = format!("{}-", names::router_to_switch(local));
            name.starts_with(&local_port).then_some(Key::LocalNode)
        }
        table::CHASSIS => {
            let remote = row.get("other_config").and_then(|config| config.get("is-remote")) == Some("true");
            let host = row.get("hostname").and_then(|datum| datum.as_str())?;
            (remote && host != local).then(|| Key::RemoteNode(host.to_owned()))
        }
        _ => None,
    }
}

/// Whether the lists of this row are ours to correct: all but port groups made by others.
pub fn lists_are_ours(table: Table, row: &Row) -> bool {
    table != table::PORT_GROUP || external_id(row, names::OWNER_CONTROLLER) == Some(names::DEFAULT_CONTROLLER)
}

/// Addresses of a pod's port, as text, for a port whose pod is gone.
pub fn port_ips(row: &Row) -> impl Iterator<Item = std::net::IpAddr> {
    let words =
        row.get("addresses").into_iter().flat_map(|datum| datum.strs().flat_map(str::split_whitespace));
    words.filter_map(|word| word.parse().ok())
}

fn external_id<'a>(row: &'a Row, key: &str) -> Option<&'a str> {
    row.get("external_ids").and_then(|ids| ids.get(key))
}

fn node_key(node: &str, local: &str) -> Key {
    if node == local { Key::LocalNode } else { Key::RemoteNode(node.to_owned()) }
}

fn switch_port_owner(row: &Row, name: &str, local: &str) -> Option<Key> {
    if external_id(row, "pod") == Some("true") {
        // Ports of user-defined networks carry their network; they belong to another controller.
        if external_id(row, names::NETWORK).is_some_and(|net| net != kapi::annotations::DEFAULT_NETWORK) {
            return None;
        }
        let namespace = external_id(row, "namespace")?;
        let pod = name.strip_prefix(namespace)?.strip_prefix('_')?;
        return Some(Key::Pod(PodKey::new(namespace, pod)));
    }
    if name == names::join_to_router(names::CLUSTER_ROUTER) {
        return Some(Key::Cluster);
    }
    let kind = row.get("type").and_then(|datum| datum.as_str()).unwrap_or_default();
    let node = match kind {
        "router" | "remote" if name.starts_with("tstor-") => name.strip_prefix("tstor-"),
        "router" => name.strip_prefix("stor-"),
        "" => name.strip_prefix("k8s-"),
        _ => None,
    };
    node.map(|node| node_key(node, local))
}

fn router_port_owner(name: &str, local: &str) -> Option<Key> {
    if name == names::router_to_join(names::CLUSTER_ROUTER) {
        return Some(Key::Cluster);
    }
    let node = name.strip_prefix("rtots-").or_else(|| name.strip_prefix("rtos-"));
    node.map(|node| node_key(node, local))
}

fn switch_owner(row: &Row, name: &str, local: &str, lookup: &dyn Lookup) -> Option<Key> {
    if name == names::JOIN_SWITCH || name == names::TRANSIT_SWITCH {
        return Some(Key::Cluster);
    }
    // A switch of ours is known by the port that leads to the cluster router.
    let uplink = names::switch_to_router(name);
    let ports = row.get("ports").into_iter().flat_map(|ports| ports.uuids());
    let is_node_switch = ports
        .filter_map(|uuid| lookup.row(table::SWITCH_PORT, &uuid))
        .any(|port| port.get("name").and_then(|datum| datum.as_str()) == Some(&uplink));
    (name == local || is_node_switch).then(|| node_key(name, local))
}

/// Policies that lead to a node's own addresses have no ids; the comment in their match names the node.
fn policy_owner(row: &Row, local: &str) -> Option<Key> {
    if row.get("priority").and_then(|datum| datum.as_int()) != Some(1004)
        || external_id(row, names::ID).is_some()
    {
        return None;
    }
    let matching = row.get("match").and_then(|datum| datum.as_str())?;
    let node = matching.strip_suffix(" */")?.rsplit_once("/* ")?.1;
    matching
        .starts_with(&format!("inport == \"{}\"", names::router_to_switch(node)))
        .then(|| node_key(node, local))
}
