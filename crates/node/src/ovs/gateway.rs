//! The gateway bridge as the database shows it.

use ovsdb::{Cache, Datum, Op, Row, Uuid};

use super::named;
use crate::gateway::Ports;

/// The bridge's ports as OpenFlow numbers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortView {
    /// Everything has its number.
    Ready(Ports),
    /// ovn-controller has not made the patch port, or the switch has not numbered it.
    NoPatch,
    /// There is no network card in the bridge, or the switch cannot use it.
    NoUplink {
        /// The number of the patch port.
        patch: u16,
    },
}

/// The patch port ovn-controller makes for the gateway of `node`.
pub fn patch_port(bridge: &str, node: &str) -> String {
    format!("patch-{bridge}_{node}-to-br-int")
}

/// Whether the bridge is switched in userspace.
pub fn is_userspace(cache: &Cache, bridge: &str) -> bool {
    named(cache, "Bridge", bridge).is_some_and(|row| row.str("datapath_type") == Some("netdev"))
}

/// The bridge's ports.
pub fn ports(cache: &Cache, bridge: &str, node: &str) -> PortView {
    let number = |name: &str| {
        let row = named(cache, "Interface", name)?;
        row.get("ofport")?.as_int().and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)
    };
    let Some(patch) = number(&patch_port(bridge, node)) else { return PortView::NoPatch };
    match uplink(cache, bridge).as_deref().and_then(number) {
        Some(uplink) => PortView::Ready(Ports { uplink: Some(uplink), patch }),
        None => PortView::NoUplink { patch },
    }
}

/// The network card of a bridge: what its row says, else the only real interface, else the one it is named after.
pub fn uplink(cache: &Cache, bridge: &str) -> Option<String> {
    let row = named(cache, "Bridge", bridge)?;
    if let Some(said) = row.key("external_ids", "bridge-uplink") {
        return Some(said.to_owned());
    }
    let ports = row.get("ports")?.uuids().filter_map(|port| cache.row("Port", &port));
    let interfaces = ports.filter_map(|port| port.get("interfaces")).flat_map(Datum::uuids);
    let interfaces = interfaces.filter_map(|interface| cache.row("Interface", &interface));
    let real: Vec<&str> = interfaces.filter(|row| is_real(row)).filter_map(|row| row.str("name")).collect();
    let named_after = bridge.strip_prefix("br");
    match real.as_slice() {
        [only] => Some((*only).to_owned()),
        several => several.iter().find(|name| Some(**name) == named_after).map(|name| (*name).to_owned()),
    }
}

/// Puts the host's side of the bridge into a VLAN, or out of the one it was in before; nothing if it is as wanted. The row
/// goes with the bridge.
pub fn set_host_vlan(cache: &Cache, bridge: &str, vlan: u16, before: u16) -> Option<Op> {
    let port = named(cache, "Port", bridge)?;
    let tag = port.get("tag").and_then(Datum::as_int);
    let wanted: Datum = match vlan {
        // A tag somebody gave the port of an untagged node is not ours to remove.
        0 if before == 0 || tag != Some(i64::from(before)) => return None,
        0 => Datum::set(std::iter::empty::<Uuid>()),
        _ if tag == Some(i64::from(vlan)) => return None,
        _ => i64::from(vlan).into(),
    };
    Some(Op::update("Port", port.uuid(), vec![("tag".into(), wanted)]))
}

fn is_real(interface: &Row) -> bool {
    matches!(interface.str("type"), None | Some("" | "system"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ovs::testing;

    #[test]
    fn the_recorded_bridge() {
        let cache = testing::recorded_node();
        assert_eq!(uplink(&cache, "breth0").as_deref(), Some("eth0"));
        assert_eq!(uplink(&cache, "br9"), None);
        assert_eq!(set_host_vlan(&cache, "breth0", 0, 0), None);
        assert_eq!(set_host_vlan(&cache, "breth0", 0, 100), None);
        assert!(set_host_vlan(&cache, "breth0", 100, 0).is_some());
        assert!(is_userspace(&cache, "breth0"));
        assert_eq!(ports(&cache, "breth0", "node1"), PortView::NoPatch);
        let cache = testing::node_with_patch_port("breth0", "node1");
        assert_eq!(ports(&cache, "breth0", "node1"), PortView::Ready(Ports { uplink: Some(1), patch: 2 }));
    }
}
