//! `ovn-bridge-mappings`: which bridge carries which physical network. Others' entries stay.

use ovsdb::{Op, Row};

use super::{edit_map, mutate};

/// The default network's name on the gateway bridge.
pub const PHYSICAL_NETWORK: &str = "physnet";

/// The name of the second bridge's network.
pub const EXTERNAL_NETWORK: &str = "exgwphysnet";

const KEY: &str = "ovn-bridge-mappings";

/// The mappings with the bridge of a network set or removed.
fn edited(mappings: &str, network: &str, bridge: Option<&str>) -> String {
    let mut found = false;
    let mut entries: Vec<String> = Vec::new();
    for entry in mappings.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        if entry.split(':').next() != Some(network) {
            entries.push(entry.to_owned());
        } else if let Some(bridge) = bridge.filter(|_| !std::mem::replace(&mut found, true)) {
            entries.push(format!("{network}:{bridge}"));
        }
    }
    if let Some(bridge) = bridge.filter(|_| !found) {
        entries.push(format!("{network}:{bridge}"));
    }
    entries.join(",")
}

/// Sets the bridges of networks, or removes their entries; nothing if all is as wanted.
pub fn set_mappings(root: &Row, bridges: &[(&str, Option<&str>)]) -> Option<Op> {
    let before = root.key("external_ids", KEY).unwrap_or_default();
    let wanted =
        bridges.iter().fold(before.to_owned(), |all, (network, bridge)| edited(&all, network, *bridge));
    if bridges.is_empty() {
        return None;
    }
    let wanted = (!wanted.is_empty()).then_some(wanted);
    mutate("Open_vSwitch", root, edit_map(root, "external_ids", &[(KEY.to_owned(), wanted)]))
}

/// The bridge of a network.
pub fn mapped_bridge<'a>(root: &'a Row, network: &str) -> Option<&'a str> {
    let mut entries = root.key("external_ids", KEY)?.split(',').map(str::trim);
    entries.find_map(|entry| entry.strip_prefix(network)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ovs::{root, testing};

    #[test]
    fn only_our_entry_is_touched() {
        assert_eq!(edited("", PHYSICAL_NETWORK, Some("breth0")), "physnet:breth0");
        assert_eq!(
            edited("a:b, physnet:old,c:d", PHYSICAL_NETWORK, Some("breth0")),
            "a:b,physnet:breth0,c:d"
        );
        assert_eq!(edited("physnet:x,physnet:y", PHYSICAL_NETWORK, Some("breth0")), "physnet:breth0");
        assert_eq!(edited("physnetwork:x", PHYSICAL_NETWORK, Some("breth0")), "physnetwork:x,physnet:breth0");
        assert_eq!(edited("a:b,physnet:old", PHYSICAL_NETWORK, None), "a:b");
        assert_eq!(edited("physnet:x", EXTERNAL_NETWORK, Some("y")), "physnet:x,exgwphysnet:y");
    }

    #[test]
    fn the_recorded_mapping_needs_no_write() {
        let cache = testing::recorded_node();
        let root = root(&cache).unwrap();
        assert_eq!(mapped_bridge(root, PHYSICAL_NETWORK), Some("breth0"));
        let set = |bridge| set_mappings(root, &[(PHYSICAL_NETWORK, bridge)]);
        assert_eq!(set(Some("breth0")), None);
        assert!(set(Some("br1")).is_some() && set(None).is_some());
        assert!(set_mappings(root, &[(EXTERNAL_NETWORK, Some("br1"))]).is_some());
        assert_eq!(set_mappings(root, &[(EXTERNAL_NETWORK, None)]), None);
    }
}
