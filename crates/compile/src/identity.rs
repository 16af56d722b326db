//! What a row found in a database is called, and whose it is.
//!
//! Names are what [`crate::Desired`] calls rows; owners are the keys whose compiled rows would contain it. Rows
//! without an owner here are somebody else's and never touched.

use std::net::IpAddr;

use kapi::{PodKey, ServiceKey};
use net::{Family, IpNet, Mac};
use ovn::names;
use ovsdb::{Row, Uuid};
use policy::{Direction, Kind, PolicyId};
use world::{Key, RuleKey};

use crate::settings::Settings;
use crate::table::{self, Table};

/// Owner type of the rules that say who may use a load balancer's addresses.
pub(crate) const SOURCE_RANGES: &str = "ServiceSourceRanges";

/// Looks rows up while an owner is determined.
pub trait Lookup {
    /// The row of `table` with this UUID.
    fn row(&self, table: Table, uuid: &Uuid) -> Option<&Row>;

    /// Names of the routers that list this row.
    fn routers_of(&self, uuid: &Uuid) -> Vec<&str>;
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

/// Name of a translation.
pub fn nat_name(kind: &str, logical: &str, external: &str, matching: &str) -> String {
    format!("{kind} {logical} {external} {matching}")
}

/// Name of a static neighbour.
pub fn binding_name(port: &str, ip: &str) -> String {
    format!("{port} {ip}")
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
        table::ACL | table::ADDRESS_SET | table::PORT_GROUP => external_id(row, names::ID).map(str::to_owned),
        table::STATIC_ROUTE => Some(route_name(
            text("ip_prefix")?,
            text("nexthop")?,
            text("policy").unwrap_or_default(),
            text("output_port").unwrap_or_default(),
        )),
        table::ROUTER_POLICY => Some(policy_name(number("priority"), text("match")?)),
        table::NAT => {
            let matching = text("match").unwrap_or_default();
            Some(nat_name(text("type")?, text("logical_ip")?, text("external_ip")?, matching))
        }
        table::STATIC_MAC_BINDING => Some(binding_name(text("logical_port")?, text("ip")?)),
        table::METER_BAND => Some(band_name(text("action")?, number("rate"), number("burst_size"))),
        table::CHASSIS_TEMPLATE_VAR => text("chassis").map(str::to_owned),
        table::ENCAP => Some(encap_name(text("type")?, text("ip")?)),
        _ => text("name").map(str::to_owned),
    }
}

/// The key a row belongs to, in the zone `settings` describes.
pub fn owner(table: Table, row: &Row, settings: &Settings, lookup: &dyn Lookup) -> Option<Key> {
    let local = settings.node.as_str();
    let name = row.str("name").unwrap_or_default();
    match table {
        table::SWITCH_PORT => switch_port_owner(row, name, local),
        table::ROUTER_PORT => router_port_owner(name, local),
        table::SWITCH => switch_owner(row, name, local, lookup),
        table::ROUTER if name == names::CLUSTER_ROUTER => Some(Key::Cluster),
        table::ROUTER => name.strip_prefix("GR_").map(|node| gateway_key(node, local)),
        table::STATIC_ROUTE => route_owner(row, settings, lookup),
        table::ROUTER_POLICY => policy_owner(row, local),
        table::NAT => nat_owner(row, settings, lookup),
        table::STATIC_MAC_BINDING => {
            let node = row.str("logical_port")?.strip_prefix("rtoe-GR_")?;
            let ip: IpAddr = row.str("ip")?.parse().ok()?;
            let masquerade = settings.masquerade.get(Family::of(ip));
            // One of an earlier range has the MAC that nobody but us makes of an address.
            let earlier = row.str("mac") == Some(&Mac::from_ip(ip).to_string());
            let ours = earlier || masquerade.is_some_and(|range| range.contains(&ip));
            ours.then(|| gateway_key(node, local))
        }
        table::ACL => match external_id(row, names::OWNER_TYPE)? {
            "NetpolDefault" => Some(Key::Cluster),
            "NetpolNode" => external_id(row, names::OBJECT_NAME).map(|node| node_key(node, local)),
            SOURCE_RANGES => {
                let (namespace, name) = external_id(row, names::OBJECT_NAME)?.split_once(':')?;
                Some(Key::Service(ServiceKey::new(namespace, name)))
            }
            owner => policy_owner_of(row, owner),
        },
        table::ADDRESS_SET => match external_id(row, names::OWNER_TYPE)? {
            "PodSelector" => external_id(row, names::OBJECT_NAME).map(|text| Key::PeerSet(text.to_owned())),
            owner => rule_owner(row, owner),
        },
        table::PORT_GROUP => match external_id(row, names::OWNER_TYPE)? {
            "Cluster" => Some(Key::Cluster),
            "Namespace" => external_id(row, names::OBJECT_NAME).map(|ns| Key::Namespace(ns.to_owned())),
            owner => policy_owner_of(row, owner),
        },
        table::LOAD_BALANCER => load_balancer_owner(row),
        table::CHASSIS_TEMPLATE_VAR => {
            let mut variables = row.get("variables")?.str_pairs();
            variables.any(|(name, _)| name.starts_with("NODEIP_")).then_some(Key::Templates)
        }
        table::GATEWAY_CHASSIS => {
            let local_port = format!("{}-", names::router_to_switch(local));
            name.starts_with(&local_port).then_some(Key::LocalNode)
        }
        table::CHASSIS => {
            let remote = row.key("other_config", "is-remote") == Some("true");
            let host = row.str("hostname")?;
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

/// The policy, or the isolation of a namespace, that a port group or rule is part of.
fn policy_owner_of(row: &Row, owner: &str) -> Option<Key> {
    if external_id(row, names::OWNER_CONTROLLER) != Some(names::DEFAULT_CONTROLLER) {
        return None;
    }
    let name = external_id(row, names::OBJECT_NAME)?;
    if owner == "NetpolNamespace" {
        return Some(Key::Isolation(name.to_owned()));
    }
    let kind = Kind::of(owner)?;
    let (namespace, name) = match kind {
        Kind::NetworkPolicy => name.split_once(':')?,
        _ => ("", name),
    };
    Some(Key::Policy(PolicyId::new(kind, namespace, name)))
}

/// The rule of an administrator's policy that an address set is of.
fn rule_owner(row: &Row, owner: &str) -> Option<Key> {
    let Key::Policy(policy) = policy_owner_of(row, owner)? else { return None };
    let word = external_id(row, "direction")?;
    let direction = Direction::ALL.into_iter().find(|direction| direction.name() == word)?;
    let index = external_id(row, "gress-index")?.parse().ok()?;
    (policy.kind != Kind::NetworkPolicy).then_some(Key::RuleSet(RuleKey { policy, direction, index }))
}

fn node_key(node: &str, local: &str) -> Key {
    if node == local { Key::LocalNode } else { Key::RemoteNode(node.to_owned()) }
}

fn gateway_key(node: &str, local: &str) -> Key {
    if node == local { Key::Gateway } else { Key::RemoteNode(node.to_owned()) }
}

/// The node whose gateway router lists the row.
fn gateway_of<'a>(row: &Row, lookup: &'a dyn Lookup) -> Option<&'a str> {
    lookup.routers_of(&row.uuid()).into_iter().find_map(|router| router.strip_prefix("GR_"))
}

/// Routes that lead to other zones say so. Those of the gateway have no ids: they are told by the router that lists
/// them and by next hops only we have, so that routes an administrator added stay.
fn route_owner(row: &Row, settings: &Settings, lookup: &dyn Lookup) -> Option<Key> {
    let local = settings.node.as_str();
    if let Some(node) = external_id(row, names::IC_NODE) {
        return Some(node_key(node, local));
    }
    let marked = row.get("external_ids").is_some_and(|ids| !ids.is_empty());
    let (prefix, hop) = (row.str("ip_prefix")?, row.str("nexthop")?);
    let next_hop: IpAddr = hop.parse().ok()?;
    let in_join = settings.join.get(Family::of(next_hop)).is_some_and(|net| net.contains(&next_hop));
    let by_source = row.str("policy") == Some("src-ip");
    if let Some(node) = gateway_of(row, lookup) {
        let outward = row.str("output_port") == Some(&names::gateway_to_external(node));
        let default = matches!(prefix, "0.0.0.0/0" | "::/0");
        let plain = row.get("options").is_none_or(|options| options.is_empty());
        let ours = external_id(row, names::MASQUERADE_ROUTE).is_some()
            || (!marked && !by_source && plain && ((outward && default) || (in_join && !outward)));
        return ours.then(|| gateway_key(node, local));
    }
    if marked || !lookup.routers_of(&row.uuid()).contains(&names::CLUSTER_ROUTER) {
        return None;
    }
    let to_management = prefix.parse::<IpNet>().is_ok_and(|net| net.contains(&next_hop));
    let ours = (by_source && (in_join || to_management)) || (in_join && prefix == hop);
    ours.then_some(Key::Gateway)
}

/// Translations of the gateway have no ids either; those of other features do.
fn nat_owner(row: &Row, settings: &Settings, lookup: &dyn Lookup) -> Option<Key> {
    let node = gateway_of(row, lookup)?;
    let plain = row.str("type") == Some("snat")
        && row.key("options", "stateless") == Some("false")
        && row.get("external_ids").is_none_or(|ids| ids.is_empty());
    let logical: IpAddr = row.str("logical_ip")?.split('/').next()?.parse().ok()?;
    let family = Family::of(logical);
    let in_join = settings.join.get(family).is_some_and(|net| net.contains(&logical));
    let is_cluster =
        settings.cluster_cidrs.iter().any(|net| Some(&*net.to_string()) == row.str("logical_ip"));
    (plain && (in_join || is_cluster)).then(|| gateway_key(node, settings.node.as_str()))
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
    let first = name.strip_prefix(names::EXTERNAL_PREFIX).unwrap_or(name);
    if let Some(node) = name.strip_prefix("jtor-GR_").or_else(|| first.strip_prefix("etor-GR_")) {
        return Some(gateway_key(node, local));
    }
    let networks = [names::PHYSICAL_NETWORK, names::EXTERNAL_NETWORK];
    let is_ours = |network: &str| networks.contains(&network);
    if row.str("type") == Some("localnet") && row.key("options", "network_name").is_some_and(is_ours) {
        return name.rsplit_once('_').map(|(_, node)| gateway_key(node, local));
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
    let first = name.strip_prefix(names::EXTERNAL_PREFIX).unwrap_or(name);
    if let Some(node) = name.strip_prefix("rtoj-GR_").or_else(|| first.strip_prefix("rtoe-GR_")) {
        return Some(gateway_key(node, local));
    }
    let node = name.strip_prefix("rtots-").or_else(|| name.strip_prefix("rtos-"));
    node.map(|node| node_key(node, local))
}

fn switch_owner(row: &Row, name: &str, local: &str, lookup: &dyn Lookup) -> Option<Key> {
    if name == names::JOIN_SWITCH || name == names::TRANSIT_SWITCH {
        return Some(Key::Cluster);
    }
    let (prefix, first) = match name.strip_prefix(names::EXTERNAL_PREFIX) {
        Some(first) => (names::EXTERNAL_PREFIX, first),
        None => ("", name),
    };
    if let Some(node) = first.strip_prefix("ext_") {
        let port = format!("{prefix}{}", names::external_to_gateway(node));
        return lists_port(row, &port, lookup).then(|| gateway_key(node, local));
    }
    // A switch of ours is known by the port that leads to the cluster router.
    let uplink = names::switch_to_router(name);
    (name == local || lists_port(row, &uplink, lookup)).then(|| node_key(name, local))
}

fn lists_port(switch: &Row, name: &str, lookup: &dyn Lookup) -> bool {
    let ports = switch.get("ports").into_iter().flat_map(|ports| ports.uuids());
    ports.filter_map(|uuid| lookup.row(table::SWITCH_PORT, &uuid)).any(|port| port.str("name") == Some(name))
}

/// Load balancers of user-defined networks carry their network; they belong to another controller.
fn load_balancer_owner(row: &Row) -> Option<Key> {
    let other = external_id(row, names::NETWORK).is_some_and(|net| net != kapi::annotations::DEFAULT_NETWORK);
    if other || external_id(row, names::KIND) != Some("Service") {
        return None;
    }
    ServiceKey::parse(external_id(row, names::OWNER)?).map(Key::Service)
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
