//! The integration bridge.

use ovsdb::{Cache, Datum, Mutation, Op, Uuid};

use super::{named, root};
use crate::uplink::Bridge;

/// Name of the bridge OVN programs.
pub const INTEGRATION_BRIDGE: &str = "br-int";

/// Creates the integration bridge if nobody has yet, as ovn-controller would: closed until it has flows. An
/// existing bridge is ovn-controller's business. Whoever loses the race is refused and plans again.
pub fn ensure_integration_bridge(cache: &Cache) -> Vec<Op> {
    let Some(root) = root(cache) else { return Vec::new() };
    if named(cache, "Bridge", INTEGRATION_BRIDGE).is_some() {
        return Vec::new();
    }
    let id = |kind: &str| Uuid::v5(&root.uuid(), format!("{kind} {INTEGRATION_BRIDGE}").as_bytes());
    let mut bridge = vec![
        ("name".into(), INTEGRATION_BRIDGE.into()),
        ("ports".into(), Datum::set([id("Port")])),
        ("fail_mode".into(), "secure".into()),
        ("other_config".into(), Datum::map([("disable-in-band", "true")])),
    ];
    if let Some(datapath) = root.key("external_ids", "ovn-bridge-datapath-type") {
        bridge.push(("datapath_type".into(), datapath.into()));
    }
    vec![
        Op::insert(
            "Interface",
            id("Interface"),
            vec![("name".into(), INTEGRATION_BRIDGE.into()), ("type".into(), "internal".into())],
        ),
        Op::insert(
            "Port",
            id("Port"),
            vec![
                ("name".into(), INTEGRATION_BRIDGE.into()),
                ("interfaces".into(), Datum::set([id("Interface")])),
            ],
        ),
        Op::insert("Bridge", id("Bridge"), bridge),
        Op::mutate(
            "Open_vSwitch",
            root.uuid(),
            vec![Mutation::insert("bridges", Datum::set([id("Bridge")]))],
        ),
    ]
}

/// Whether pods are switched in userspace, where nobody finishes the checksums the kernel left open.
pub fn userspace_datapath(cache: &Cache) -> bool {
    named(cache, "Bridge", INTEGRATION_BRIDGE)
        .is_some_and(|bridge| bridge.str("datapath_type") == Some("netdev"))
}

/// Bridges other than the integration bridge, by name, with the interfaces of their ports.
pub fn other_bridges(cache: &Cache) -> Vec<Bridge> {
    let mut found: Vec<Bridge> = cache
        .rows("Bridge")
        .filter_map(|row| {
            let name = row.str("name").filter(|name| *name != INTEGRATION_BRIDGE)?;
            let ports = row.get("ports")?.uuids().filter_map(|port| cache.row("Port", &port));
            let interfaces = ports.filter_map(|port| port.get("interfaces")).flat_map(Datum::uuids);
            let interfaces =
                interfaces.filter_map(|interface| cache.row("Interface", &interface)?.str("name"));
            Some(Bridge { name: name.to_owned(), interfaces: interfaces.map(str::to_owned).collect() })
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ovs::testing;

    #[test]
    fn an_existing_bridge_is_left_alone() {
        assert_eq!(ensure_integration_bridge(&testing::recorded_node()), []);
    }

    #[test]
    fn created_closed_and_with_the_datapath_ovn_controller_would_choose() {
        let cache = testing::cache([testing::root_row(&[("ovn-bridge-datapath-type", "netdev")], &[])]);
        let ops = ensure_integration_bridge(&cache);
        let Some(Op::Insert { row, .. }) = ops.iter().find(|op| op.table() == Some("Bridge")) else {
            panic!("no bridge in {ops:?}")
        };
        let column =
            |name: &str| row.iter().find(|(column, _)| column == name).map(|(_, value)| value.clone());
        assert_eq!(column("fail_mode"), Some("secure".into()));
        assert_eq!(column("datapath_type"), Some("netdev".into()));
        let plain = testing::cache([testing::root_row(&[], &[])]);
        assert!(!format!("{:?}", ensure_integration_bridge(&plain)).contains("datapath_type"));
        assert_eq!(ensure_integration_bridge(&plain), ensure_integration_bridge(&plain), "safe to repeat");
    }

    #[test]
    fn bridges_and_datapath_of_the_recorded_node() {
        let cache = testing::recorded_node();
        assert!(userspace_datapath(&cache));
        let bridges = other_bridges(&cache);
        assert_eq!(bridges.len(), 1);
        assert_eq!(bridges[0].name, "breth0");
        assert!(bridges[0].interfaces.iter().any(|name| name == "eth0"));
    }
}
