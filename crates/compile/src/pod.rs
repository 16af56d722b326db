//! Pods of this zone's node: one switch port each.

use kapi::PodKey;
use net::Dual;
use ovn::names;
use world::{NodeState, World};

use crate::desired::{Desired, RowId};
use crate::gateway;
use crate::namespace;
use crate::policies;
use crate::settings::Settings;
use crate::table;

pub(crate) fn rows(world: &World, settings: &Settings, node: &NodeState, key: &PodKey) -> Desired {
    let mut desired = Desired::default();
    let Some(pod) = world.pod(key) else { return desired };
    let name = names::pod_port(&key.namespace, &key.name);
    let addresses = names::port_addresses(pod.network.mac, pod.network.addresses());
    let mut options = vec![("iface-id-ver", pod.uid.clone())];
    if let (true, Some(chassis)) = (settings.requested_chassis, &node.chassis) {
        options.push(("requested-chassis", chassis.clone()));
    }
    let id = RowId::new(table::SWITCH_PORT, &*name);
    desired
        .row(table::SWITCH_PORT, &*name)
        .set("name", name)
        .set("addresses", &*addresses)
        .set("port_security", addresses)
        .map("options", options)
        .entries("external_ids", [("namespace", key.namespace.as_str()), ("pod", "true")]);
    desired.member(RowId::new(table::SWITCH, &*node.name), "ports", id.clone());
    if settings.namespace_groups {
        desired.member(namespace::group(&key.namespace), "ports", id.clone());
    }
    for group in policies::groups_of(world, key) {
        desired.required_member(group, "ports", id.clone());
    }
    let ips = Dual::from_ips(pod.network.addresses());
    gateway::pod_translation(&mut desired, settings, node, &ips);
    desired
}
