//! `ovn-bridge-mappings`: which bridge carries which physical network. Others' entries stay.

use ovsdb::{Op, Row};

use super::{edit_map, mutate};

/// The default network's name on the gateway bridge.
pub const PHYSICAL_NETWORK: &str = "physnet";

const KEY: &str = "ovn-bridge-mappings";

/// The mappings with the bridge of the default network set or removed.
fn edited(mappings: &str, bridge: Option<&str>) -> String {
    let mut found = false;
    let mut entries: Vec<String> = Vec::new();
    for entry in mappings.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        if entry.split(':').next() != Some(PHYSICAL_NETWORK) {
            entries.push(entry.to_owned());
        } else if let Some(bridge) = bridge.filter(|_| !std::mem::replace(&mut found, true)) {
            entries.push(format!("{PHYSICAL_NETWORK}:{bridge}"));
        }
    }
    if let Some(bridge) = bridge.filter(|_| !found) {
        entries.push(format!("{PHYSICAL_NETWORK}:{bridge}"));
    }
    entries.join(",")
}

/// Sets the bridge of the default network, or removes its entry; nothing if it is as wanted.
pub fn set_mapping(root: &Row, bridge: Option<&str>) -> Option<Op> {
    let wanted = edited(root.key("external_ids", KEY).unwrap_or_default(), bridge);
    let wanted = (!wanted.is_empty()).then_some(wanted);
    mutate("Open_vSwitch", root, edit_map(root, "external_ids", &[(KEY.to_owned(), wanted)]))
}

/// The bridge of the default network.
pub fn mapped_bridge(root: &Row) -> Option<&str> {
    let mut entries = root.key("external_ids", KEY)?.split(',').map(str::trim);
    entries.find_map(|entry| entry.strip_prefix(PHYSICAL_NETWORK)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ovs::{root, testing};

    #[test]
    fn only_our_entry_is_touched() {
        assert_eq!(edited("", Some("breth0")), "physnet:breth0");
        assert_eq!(edited("a:b, physnet:old,c:d", Some("breth0")), "a:b,physnet:breth0,c:d");
        assert_eq!(edited("physnet:x,physnet:y", Some("breth0")), "physnet:breth0");
        assert_eq!(edited("physnetwork:x", Some("breth0")), "physnetwork:x,physnet:breth0");
        assert_eq!(edited("a:b,physnet:old", None), "a:b");
    }

    #[test]
    fn the_recorded_mapping_needs_no_write() {
        let cache = testing::recorded_node();
        let root = root(&cache).unwrap();
        assert_eq!(mapped_bridge(root), Some("breth0"));
        assert_eq!(set_mapping(root, Some("breth0")), None);
        assert!(set_mapping(root, Some("br1")).is_some() && set_mapping(root, None).is_some());
    }
}
