//! Nodes of other zones: their port on the transit switch, the routes to their pods, their chassis.

use net::{Dual, Family, IpNet, Mac};
use ovn::names;
use world::{NodeState, World};

use crate::desired::{Desired, RowId};
use crate::routes::{self, Route};
use crate::settings::Settings;
use crate::table;

pub(crate) fn rows(world: &World, settings: &Settings, name: &str) -> Option<Desired> {
    let mut desired = Desired::default();
    let Some(node) = world.node(name).filter(|_| name != world.local_name()) else { return Some(desired) };
    if world.refusal(name).is_some() {
        return Some(desired);
    }
    // The node is about to be announced in full; meanwhile the routes it may have had before stay.
    if node.missing_for_routing().is_some() {
        return None;
    }
    let (id, chassis) = (node.id?, node.chassis.as_deref()?);
    transit_port(&mut desired, settings, node, id, chassis);
    route_all(&mut desired, settings, node, id);
    remote_chassis(&mut desired, settings, node, chassis);
    Some(desired)
}

fn transit_addresses(settings: &Settings, node: &NodeState) -> Dual<IpNet> {
    let kept = node.transit.families().filter(|(family, _)| settings.has_family(*family));
    Dual::from_nets(kept.map(|(_, net)| *net)).unwrap_or_default()
}

fn transit_port(desired: &mut Desired, settings: &Settings, node: &NodeState, id: u32, chassis: &str) {
    let addresses = transit_addresses(settings, node);
    let Some(first) = addresses.first() else { return };
    let mut text = Mac::from_ip(first.addr()).to_string();
    for address in addresses.iter() {
        text.push(' ');
        text.push_str(&address.to_string());
    }
    let name = names::transit_to_router(&node.name);
    let row = desired.row(table::SWITCH_PORT, &*name);
    row.set("name", name)
        .set("type", "remote")
        .set("addresses", text)
        .map("options", [("requested-tnl-key", id.to_string()), ("requested-chassis", chassis.to_owned())])
        .entries("external_ids", [("node", node.name.as_str())]);
    let child = row.id.clone();
    desired.member(RowId::new(table::SWITCH, names::TRANSIT_SWITCH), "ports", child);
}

fn route_all(desired: &mut Desired, settings: &Settings, node: &NodeState, id: u32) {
    let transit = transit_addresses(settings, node);
    let join = settings.numbered(&settings.join, id);
    let marks = [(names::IC_NODE, node.name.as_str()), (names::NETWORK, kapi::annotations::DEFAULT_NETWORK)];
    for family in [Family::V4, Family::V6] {
        let Some(next_hop) = transit.get(family).map(|net| net.addr().to_string()) else { continue };
        if let Some(subnet) = node.subnets.get(family) {
            let route = Route { prefix: &subnet.to_string(), next_hop: &next_hop, ..Route::default() };
            routes::add(desired, names::CLUSTER_ROUTER, route).entries("external_ids", marks);
        }
        if let Some(address) = join.get(family) {
            let host = format!("{}/{}", address.addr(), family.host_prefix());
            let route = Route { prefix: &host, next_hop: &next_hop, ..Route::default() };
            routes::add(desired, names::CLUSTER_ROUTER, route).entries("external_ids", marks);
        }
    }
}

fn remote_chassis(desired: &mut Desired, settings: &Settings, node: &NodeState, chassis: &str) {
    let mut options = vec![("csum", "true".to_owned())];
    if settings.encap_port != 6081 {
        options.push(("dst_port", settings.encap_port.to_string()));
    }
    let mut encaps = Vec::new();
    for ip in &node.encap_ips {
        let row =
            desired.row(table::ENCAP, crate::identity::encap_name(&settings.encap_type, &ip.to_string()));
        row.set("type", &*settings.encap_type)
            .set("ip", ip.to_string())
            .set("chassis_name", chassis)
            .map("options", options.clone());
        encaps.push(row.id.clone());
    }
    desired
        .row(table::CHASSIS, chassis)
        .set("name", chassis)
        .set("hostname", &*node.name)
        .entries("other_config", [("is-remote", "true")])
        .refs("encaps", encaps);
}
