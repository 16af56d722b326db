//! The management port's rows: a port of the integration bridge with one internal interface.

use std::sync::Arc;

use net::Mac;
use ovsdb::{Cache, Datum, Mutation, Op, Row, Uuid};

use super::{INTEGRATION_BRIDGE, edit_map, named};
use crate::mgmt_port;

/// What the port's rows shall say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    /// Name of port and interface.
    pub name: String,
    /// Name of the logical port.
    pub iface_id: String,
    /// MAC of the interface.
    pub mac: Mac,
    /// MTU of the interface.
    pub mtu: u32,
}

/// Name of the node's management port in OVN.
pub fn iface_id(node: &str) -> String {
    format!("k8s-{node}")
}

/// Whether ovn-controller says that the port's flows are in place.
pub fn is_installed(cache: &Cache, name: &str) -> bool {
    named(cache, "Interface", name)
        .is_some_and(|interface| interface.key("external_ids", "ovn-installed") == Some("true"))
}

/// Creates or corrects the port; nothing if it is as wanted. Needs the integration bridge.
pub fn ensure_port(cache: &Cache, spec: &PortSpec) -> Vec<Op> {
    let Some(bridge) = named(cache, "Bridge", INTEGRATION_BRIDGE) else { return Vec::new() };
    let mut ops = Vec::new();
    let Some(port) = named(cache, "Port", &spec.name) else {
        let id = |kind: &str| Uuid::v5(&bridge.uuid(), format!("{kind} {}", spec.name).as_bytes());
        ops.push(Op::insert(
            "Interface",
            id("Interface"),
            vec![
                ("name".into(), spec.name.as_str().into()),
                ("type".into(), "internal".into()),
                ("mac".into(), spec.mac.to_string().into()),
                ("mtu_request".into(), i64::from(spec.mtu).into()),
                ("external_ids".into(), Datum::map([("iface-id", spec.iface_id.as_str())])),
            ],
        ));
        ops.push(Op::insert(
            "Port",
            id("Port"),
            vec![
                ("name".into(), spec.name.as_str().into()),
                ("interfaces".into(), Datum::set([id("Interface")])),
            ],
        ));
        ops.push(attach(bridge, id("Port")));
        return ops;
    };
    for other in
        cache.rows("Bridge").filter(|other| other.uuid() != bridge.uuid() && holds(other, port.uuid()))
    {
        ops.push(detach(other, port.uuid()));
    }
    if !holds(bridge, port.uuid()) {
        ops.push(attach(bridge, port.uuid()));
    }
    if let Some(interface) = named(cache, "Interface", &spec.name) {
        ops.extend(correct_interface(interface, spec));
    }
    ops
}

fn correct_interface(interface: &Arc<Row>, spec: &PortSpec) -> Vec<Op> {
    let wanted: [(&'static str, Datum); 3] = [
        ("type", "internal".into()),
        ("mac", spec.mac.to_string().into()),
        ("mtu_request", i64::from(spec.mtu).into()),
    ];
    let differs = |(column, value): &(&'static str, Datum)| interface.get(column) != Some(value);
    let row: Vec<_> =
        wanted.into_iter().filter(differs).map(|(column, value)| (column.into(), value)).collect();
    let ids = edit_map(interface, "external_ids", &[("iface-id".to_owned(), Some(spec.iface_id.clone()))]);
    let mut ops = Vec::new();
    if !row.is_empty() {
        ops.push(Op::update("Interface", interface.uuid(), row));
    }
    ops.extend(super::mutate("Interface", interface, ids));
    ops
}

/// Removes the port under the name older releases gave it.
pub fn remove_legacy_port(cache: &Cache, node: &str) -> Vec<Op> {
    let name = mgmt_port::legacy_name(node);
    // The name alone could be somebody else's port; the logical port it carries tells.
    let ours = named(cache, "Interface", &name)
        .is_some_and(|interface| interface.key("external_ids", "iface-id") == Some(iface_id(node).as_str()));
    if ours { remove_port(cache, &name) } else { Vec::new() }
}

/// Takes a port off every bridge; its rows go with the last reference.
pub fn remove_port(cache: &Cache, name: &str) -> Vec<Op> {
    let Some(port) = named(cache, "Port", name) else { return Vec::new() };
    cache
        .rows("Bridge")
        .filter(|bridge| holds(bridge, port.uuid()))
        .map(|bridge| detach(bridge, port.uuid()))
        .collect()
}

fn holds(bridge: &Row, port: Uuid) -> bool {
    bridge.get("ports").is_some_and(|ports| ports.contains(&port.into()))
}

fn attach(bridge: &Row, port: Uuid) -> Op {
    Op::mutate("Bridge", bridge.uuid(), vec![Mutation::insert("ports", Datum::set([port]))])
}

fn detach(bridge: &Row, port: Uuid) -> Op {
    Op::mutate("Bridge", bridge.uuid(), vec![Mutation::delete("ports", Datum::set([port]))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ovs::testing;

    fn spec() -> PortSpec {
        PortSpec {
            name: mgmt_port::NAME.into(),
            iface_id: iface_id("node1"),
            mac: "0a:58:0a:f4:00:02".parse().unwrap(),
            mtu: 1342,
        }
    }

    #[test]
    fn the_recorded_port_needs_no_write() {
        let cache = testing::recorded_node();
        assert_eq!(ensure_port(&cache, &spec()), []);
        assert!(is_installed(&cache, mgmt_port::NAME));
        assert!(!is_installed(&cache, "breth0"));
    }

    #[test]
    fn only_what_differs_is_corrected_and_installed_stays() {
        let cache = testing::recorded_node();
        let interface = named(&cache, "Interface", mgmt_port::NAME).unwrap().uuid();
        let bigger = PortSpec { mtu: 1400, ..spec() };
        assert_eq!(
            ensure_port(&cache, &bigger),
            [Op::update("Interface", interface, vec![("mtu_request".into(), 1400i64.into())])]
        );
        let renamed = PortSpec { iface_id: "k8s-other".into(), ..spec() };
        assert_eq!(
            ensure_port(&cache, &renamed),
            [Op::mutate(
                "Interface",
                interface,
                vec![
                    Mutation::delete("external_ids", Datum::set(["iface-id"])),
                    Mutation::insert("external_ids", Datum::map([("iface-id", "k8s-other")])),
                ]
            )]
        );
    }

    #[test]
    fn created_once_and_moved_from_a_wrong_bridge() {
        let cache = testing::recorded_node();
        let fresh = PortSpec { name: "ovn-k8s-mp9".into(), ..spec() };
        let ops = ensure_port(&cache, &fresh);
        assert_eq!(ops.iter().filter_map(Op::table).collect::<Vec<_>>(), ["Interface", "Port", "Bridge"]);
        assert_eq!(ops, ensure_port(&cache, &fresh), "the same identities each time, so a retry is safe");
        let strayed = PortSpec { name: "eth0".into(), ..spec() };
        let ops = ensure_port(&cache, &strayed);
        assert_eq!(ops.iter().filter(|op| op.table() == Some("Bridge")).count(), 2, "{ops:?}");
    }

    #[test]
    fn an_old_name_goes_only_if_it_is_our_port() {
        assert_eq!(remove_legacy_port(&testing::recorded_node(), "node1"), []);
        let ours = testing::node_with_legacy_port("node1", "k8s-node1");
        assert_eq!(remove_legacy_port(&ours, "node1").len(), 1);
        let foreign = testing::node_with_legacy_port("node1", "something-else");
        assert_eq!(remove_legacy_port(&foreign, "node1"), []);
    }
}
