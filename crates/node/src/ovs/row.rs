//! The one row of table Open_vSwitch: keys for ovn-controller. Foreign keys are never touched.

use std::net::IpAddr;
use std::sync::Arc;

use ovsdb::{Cache, Op, Row};

use super::{edit_map, mutate};
use crate::settings::Settings;

/// The values that are not settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnKeys {
    /// The chassis id.
    pub system_id: String,
    /// Tunnel addresses; empty leaves what is there, until the node's address is known.
    pub encap_ips: Vec<IpAddr>,
}

/// The Open_vSwitch row; none if the database was never initialised.
pub fn root(cache: &Cache) -> Option<&Arc<Row>> {
    cache.rows("Open_vSwitch").next()
}

/// The chassis id the row holds.
pub fn system_id(cache: &Cache) -> Option<&str> {
    root(cache)?.key("external_ids", "system-id").filter(|id| !id.is_empty())
}

/// Keys of the row the agent writes from settings alone; what `remove_own_keys` takes away again.
const OWN: &[&str] = &[
    "ovn-bridge-remote-probe-interval",
    "ovn-enable-lflow-cache",
    "ovn-encap-ip",
    "ovn-encap-type",
    "ovn-is-interconn",
    "ovn-limit-lflow-cache",
    "ovn-memlimit-lflow-cache-kb",
    "ovn-monitor-all",
    "ovn-ofctrl-wait-before-clear",
    "ovn-remote",
    "ovn-remote-probe-interval",
    "ovn-set-local-ip",
];

fn wanted(settings: &Settings, own: &OwnKeys) -> Vec<(String, Option<String>)> {
    let tuning = &settings.ovn_controller;
    let mut keys = Vec::new();
    let mut set = |key: &str, value: String| keys.push((key.to_owned(), Some(value)));
    set("system-id", own.system_id.clone());
    // The name Kubernetes knows, not the machine's: the chassis is looked up by it.
    set("hostname", settings.node.clone());
    set("ovn-remote", settings.ovn_remote.clone());
    set("ovn-encap-type", settings.encap.kind.clone());
    if !own.encap_ips.is_empty() {
        let ips: Vec<String> = own.encap_ips.iter().map(ToString::to_string).collect();
        set("ovn-encap-ip", ips.join(","));
    }
    set("ovn-remote-probe-interval", tuning.inactivity_probe_ms.to_string());
    set("ovn-bridge-remote-probe-interval", tuning.openflow_probe_s.to_string());
    set("ovn-is-interconn", "true".to_owned());
    set("ovn-monitor-all", tuning.monitor_all.to_string());
    set("ovn-ofctrl-wait-before-clear", tuning.ofctrl_wait_before_clear_ms.to_string());
    set("ovn-enable-lflow-cache", tuning.lflow_cache.to_string());
    set("ovn-set-local-ip", "true".to_owned());
    if tuning.lflow_cache_limit > 0 {
        set("ovn-limit-lflow-cache", tuning.lflow_cache_limit.to_string());
    }
    if tuning.lflow_cache_limit_kb > 0 {
        set("ovn-memlimit-lflow-cache-kb", tuning.lflow_cache_limit_kb.to_string());
    }
    keys
}

/// Sets our keys; nothing if they are set.
pub fn set_keys(root: &Row, settings: &Settings, own: &OwnKeys) -> Option<Op> {
    let mut mutations = edit_map(root, "external_ids", &wanted(settings, own));
    let idle = ("bundle-idle-timeout".to_owned(), Some(settings.ovn_controller.openflow_probe_s.to_string()));
    mutations.extend(edit_map(root, "other_config", &[idle]));
    mutate("Open_vSwitch", root, mutations)
}

/// Removes the keys the agent sets. The chassis id and the host name stay: they belong to the machine.
pub fn remove_own_keys(root: &Row) -> Option<Op> {
    let gone: Vec<_> = OWN.iter().map(|key| ((*key).to_owned(), None)).collect();
    let mut mutations = edit_map(root, "external_ids", &gone);
    mutations.extend(edit_map(root, "other_config", &[("bundle-idle-timeout".to_owned(), None)]));
    mutate("Open_vSwitch", root, mutations)
}

#[cfg(test)]
mod tests {
    use ovsdb::{Datum, Mutation};

    use super::*;
    use crate::ovs::testing;

    fn settings() -> Settings {
        let mut settings = Settings::new("node1", vec!["10.244.0.0/16".parse().unwrap()], vec![]);
        settings.ovn_controller.inactivity_probe_ms = 180_000;
        settings
    }

    fn own() -> OwnKeys {
        OwnKeys {
            system_id: "00000000-0000-4000-8000-000000000001".into(),
            encap_ips: vec!["172.18.0.1".parse().unwrap()],
        }
    }

    fn mutations(op: Option<Op>) -> Vec<Mutation> {
        match op {
            None => vec![],
            Some(Op::Mutate { mutations, .. }) => mutations,
            Some(other) => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn the_recorded_row_needs_no_write() {
        let cache = testing::recorded_node();
        assert_eq!(set_keys(root(&cache).unwrap(), &settings(), &own()), None);
    }

    #[test]
    fn an_empty_row_ends_as_recorded() {
        let cache = testing::cache([testing::root_row(&[], &[])]);
        let mutations = mutations(set_keys(root(&cache).unwrap(), &settings(), &own()));
        let recorded = testing::recorded_node();
        let mut expected = root(&recorded).unwrap().get("external_ids").unwrap().to_str_map();
        expected.remove("ovn-bridge-mappings");
        expected.remove("ovn-bridge-datapath-type");
        assert_eq!(
            mutations,
            [
                Mutation::insert("external_ids", Datum::map(expected)),
                Mutation::insert("other_config", Datum::map([("bundle-idle-timeout", "0")])),
            ]
        );
    }

    #[test]
    fn only_what_differs_is_written_and_foreign_keys_stay() {
        let cache = testing::recorded_node();
        let mut settings = settings();
        settings.ovn_controller.inactivity_probe_ms = 60_000;
        settings.ovn_controller.lflow_cache_limit = 500;
        assert_eq!(
            mutations(set_keys(root(&cache).unwrap(), &settings, &own())),
            [
                Mutation::delete("external_ids", Datum::set(["ovn-remote-probe-interval"])),
                Mutation::insert(
                    "external_ids",
                    Datum::map([("ovn-limit-lflow-cache", "500"), ("ovn-remote-probe-interval", "60000")])
                ),
            ]
        );
    }

    #[test]
    fn several_tunnel_addresses_and_none_yet() {
        let cache = testing::recorded_node();
        let root = root(&cache).unwrap();
        let unknown = OwnKeys { encap_ips: vec![], ..own() };
        assert_eq!(
            set_keys(root, &settings(), &unknown),
            None,
            "an address that is there stays until ours is known"
        );
        let two =
            OwnKeys { encap_ips: vec!["172.18.0.1".parse().unwrap(), "10.9.0.1".parse().unwrap()], ..own() };
        let mutations = mutations(set_keys(root, &settings(), &two));
        assert_eq!(
            mutations[1],
            Mutation::insert("external_ids", Datum::map([("ovn-encap-ip", "172.18.0.1,10.9.0.1")]))
        );
    }

    #[test]
    fn clean_up_removes_ours_and_nothing_else() {
        let cache = testing::recorded_node();
        let mutations = mutations(remove_own_keys(root(&cache).unwrap()));
        let removed: Vec<_> = mutations[0].value.strs().collect();
        for kept in ["system-id", "hostname", "ovn-bridge-mappings", "ovn-bridge-datapath-type"] {
            assert!(!removed.contains(&kept), "{kept} must stay");
        }
        assert!(removed.contains(&"ovn-remote") && removed.contains(&"ovn-encap-ip"));
        assert_eq!(mutations[1], Mutation::delete("other_config", Datum::set(["bundle-idle-timeout"])));
        let empty = testing::cache([testing::root_row(&[], &[])]);
        assert_eq!(remove_own_keys(super::root(&empty).unwrap()), None);
    }
}
