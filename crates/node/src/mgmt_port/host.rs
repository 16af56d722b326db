//! The host state the management port needs, derived from settings and subnets.

use ipnet::IpNet;
use net::nth_address;

use super::{Facts, NAME};
use crate::host_plan::{Address, HostPlan, MAIN_TABLE, Neighbour, Ours, Route, Rule, RuleKind, Sysctl};
use crate::settings::Settings;

/// Routing table that sends service traffic through the management port.
pub const SERVICE_TABLE: u32 = 7;
/// Firewall mark of traffic to services with internalTrafficPolicy Local.
pub const SERVICE_MARK: u32 = 0x17_45ec;
/// The rule that leads there.
pub const SERVICE_RULE: RuleKind = RuleKind { priority: 30, mark: SERVICE_MARK };

/// A plan that takes everything off the management port.
pub(crate) fn nothing() -> HostPlan {
    HostPlan::nothing(NAME, Ours::Everything, SERVICE_RULE)
}

/// What the host must look like for these subnets.
pub fn desired(settings: &Settings, facts: &Facts, userspace_datapath: bool) -> HostPlan {
    let mut routes = Vec::new();
    let mut rules = Vec::new();
    let path_mtu = (settings.routable_mtu != 0).then_some(settings.routable_mtu);
    let via = |table, dst: IpNet, mtu| {
        let gateway = facts.gateway_for(dst.addr())?;
        Some(Route { table, dst, gateway: Some(gateway), src: None, mtu, metric: None })
    };

    routes.extend(settings.cluster_subnets.iter().filter_map(|net| via(MAIN_TABLE, net.trunc(), path_mtu)));
    // Replies to services with externalTrafficPolicy Local come back through this address.
    for net in [IpNet::V4(settings.gateway.masquerade_v4), IpNet::V6(settings.gateway.masquerade_v6)] {
        routes.extend(nth_address(&net, 3).and_then(|ip| via(MAIN_TABLE, IpNet::from(ip), None)));
    }
    for net in &settings.service_cidrs {
        let Some(route) = via(SERVICE_TABLE, net.trunc(), None) else { continue };
        let rule = Rule { v6: net.addr().is_ipv6(), kind: SERVICE_RULE, table: SERVICE_TABLE };
        routes.push(route);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    HostPlan {
        addresses: facts.addresses.iter().map(|&net| Address { net, deprecated: false }).collect(),
        routes,
        neighbours: facts.gateways.iter().map(|&ip| Neighbour { ip, mac: facts.router_mac }).collect(),
        rules,
        sysctls: sysctls(settings, facts),
        tx_checksum_off: userspace_datapath,
        ..nothing()
    }
}

fn sysctls(settings: &Settings, facts: &Facts) -> Vec<Sysctl> {
    let mut all = Vec::new();
    if facts.addresses.iter().any(|a| a.addr().is_ipv4()) {
        all.push(Sysctl::forwarding(false, NAME));
        if settings.gateway.node_port {
            // Node port traffic leaves by another interface than it came in; strict filtering would drop it.
            all.push(Sysctl::new(&["net", "ipv4", "conf", NAME, "rp_filter"], "2"));
        }
    }
    if facts.addresses.iter().any(|a| a.addr().is_ipv6()) {
        all.push(Sysctl::forwarding(true, NAME));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::host_plan::{Change, Observed};

    fn dual() -> (Settings, Facts) {
        let mut settings = Settings::new(
            "node1",
            vec!["10.244.0.0/16".parse().unwrap(), "fd00:10:244::/48".parse().unwrap()],
            vec!["10.96.0.0/16".parse().unwrap(), "fd00:10:96::/112".parse().unwrap()],
        );
        settings.gateway.node_port = true;
        let subnets = ["10.244.0.0/24".parse().unwrap(), "fd00:10:244:1::/64".parse().unwrap()];
        let facts = Facts::from_subnets("node1", &subnets).unwrap();
        (settings, facts)
    }

    fn text(route: &Route) -> String {
        format!("{} via {} table {}", route.dst, route.gateway.unwrap(), route.table)
    }

    #[test]
    fn the_recorded_dual_stack_node() {
        let (settings, facts) = dual();
        let desired = desired(&settings, &facts, true);
        let routes: Vec<_> = desired.routes.iter().map(text).collect();
        assert_eq!(
            routes,
            [
                "10.244.0.0/16 via 10.244.0.1 table 254",
                "fd00:10:244::/48 via fd00:10:244:1::1 table 254",
                "169.254.169.3/32 via 10.244.0.1 table 254",
                "fd69::3/128 via fd00:10:244:1::1 table 254",
                "10.96.0.0/16 via 10.244.0.1 table 7",
                "fd00:10:96::/112 via fd00:10:244:1::1 table 7",
            ]
        );
        assert_eq!(
            desired.rules.iter().map(|r| (r.v6, r.kind.priority, r.kind.mark)).collect::<Vec<_>>(),
            [(false, 30, 0x1745ec), (true, 30, 0x1745ec)]
        );
        let neighbours: Vec<_> = desired.neighbours.iter().map(|n| format!("{} {}", n.ip, n.mac)).collect();
        assert_eq!(neighbours, ["10.244.0.1 0a:58:0a:f4:00:01", "fd00:10:244:1::1 0a:58:0a:f4:00:01"]);
        assert!(desired.tx_checksum_off);
    }

    #[test]
    fn a_family_the_node_has_no_subnet_of_gets_nothing() {
        let (settings, _) = dual();
        let facts = Facts::from_subnets("node1", &["10.244.0.0/24".parse().unwrap()]).unwrap();
        let desired = desired(&settings, &facts, false);
        assert!(desired.routes.iter().all(|r| r.dst.addr().is_ipv4()), "{:?}", desired.routes);
        assert!(desired.rules.iter().all(|r| !r.v6));
        assert!(desired.sysctls.iter().all(|s| s.key[1] == "ipv4"));
        assert!(!desired.tx_checksum_off);
    }

    #[test]
    fn migration_mtu_goes_on_pod_routes_only() {
        let (mut settings, facts) = dual();
        settings.routable_mtu = 1300;
        for route in desired(&settings, &facts, false).routes {
            let pods = settings.cluster_subnets.contains(&route.dst);
            assert_eq!(route.mtu, pods.then_some(1300), "{route:?}");
        }
    }

    #[test]
    fn reverse_path_filter_is_loosened_for_node_ports_only() {
        let (mut settings, facts) = dual();
        let has =
            |s: &Settings| desired(s, &facts, false).sysctls.iter().any(|s| s.name().ends_with("rp_filter"));
        assert!(has(&settings));
        settings.gateway.node_port = false;
        assert!(!has(&settings));
    }

    fn wanted() -> HostPlan {
        let settings = Settings::new(
            "node1",
            vec!["10.244.0.0/16".parse().unwrap()],
            vec!["10.96.0.0/16".parse().unwrap()],
        );
        let facts = Facts::from_subnets("node1", &["10.244.0.0/24".parse().unwrap()]).unwrap();
        desired(&settings, &facts, true)
    }

    fn address(net: &str) -> Address {
        Address { net: net.parse().unwrap(), deprecated: false }
    }

    fn foreign(priority: u32, mark: u32, table: u32) -> Rule {
        Rule { v6: false, kind: RuleKind { priority, mark }, table }
    }

    /// What the kernel shows once every change has been made.
    fn reached(desired: &HostPlan) -> Observed {
        Observed {
            index: Some(7),
            up: true,
            addresses: desired.addresses.clone(),
            routes: desired.routes.clone(),
            neighbours: desired.neighbours.clone(),
            rules: desired.rules.clone(),
            sysctls: desired.sysctls.iter().map(|s| (s.name(), s.value.clone())).collect(),
            tx_checksum: false,
        }
    }

    #[test]
    fn nothing_to_do_once_reached() {
        let desired = wanted();
        assert_eq!(desired.changes(&reached(&desired)), []);
    }

    #[test]
    fn a_fresh_interface_gets_everything_in_an_order_the_kernel_accepts() {
        let desired = wanted();
        let changes = desired.changes(&Observed { index: Some(7), tx_checksum: true, ..Observed::default() });
        let at = |wanted: fn(&Change) -> bool| changes.iter().position(wanted).unwrap();
        let address = at(|c| matches!(c, Change::AddAddress(_)));
        let up = at(|c| matches!(c, Change::Up));
        let route = at(|c| matches!(c, Change::ReplaceRoute(_)));
        assert!(address < up && up < route, "{changes:?}");
        assert!(changes.contains(&Change::TxChecksumOff));
        assert_eq!(changes.iter().filter(|c| matches!(c, Change::AddRule(_))).count(), 1);
    }

    #[test]
    fn whatever_somebody_removes_comes_back_and_nothing_else_is_written() {
        let desired = wanted();
        let full = reached(&desired);
        let without_address = Observed { addresses: vec![], ..full.clone() };
        assert_eq!(desired.changes(&without_address), [Change::AddAddress(desired.addresses[0])]);
        let down = Observed { up: false, ..full.clone() };
        assert_eq!(desired.changes(&down), [Change::Up]);
        let without_route = Observed { routes: full.routes[1..].to_vec(), ..full.clone() };
        assert_eq!(desired.changes(&without_route), [Change::ReplaceRoute(desired.routes[0])]);
        let without_rule = Observed { rules: vec![], ..full };
        assert_eq!(desired.changes(&without_rule), [Change::AddRule(desired.rules[0])]);
    }

    #[test]
    fn a_new_subnet_replaces_the_old_one() {
        let old = reached(&wanted());
        let settings = Settings::new(
            "node1",
            vec!["10.244.0.0/16".parse().unwrap()],
            vec!["10.96.0.0/16".parse().unwrap()],
        );
        let facts = Facts::from_subnets("node1", &["10.244.9.0/24".parse().unwrap()]).unwrap();
        let new = desired(&settings, &facts, true);
        let changes = new.changes(&old);
        let gateway: IpAddr = "10.244.0.1".parse().unwrap();
        assert!(changes.contains(&Change::RemoveAddress("10.244.0.2/24".parse().unwrap())));
        assert!(changes.contains(&Change::RemoveNeighbour(gateway)));
        assert_eq!(changes.iter().filter(|c| matches!(c, Change::ReplaceRoute(_))).count(), new.routes.len());
        assert!(
            !changes.iter().any(|c| matches!(c, Change::RemoveRoute(_) | Change::RemoveRule(_))),
            "{changes:?}"
        );
    }

    #[test]
    fn foreign_rules_and_link_local_addresses_stay() {
        let desired = wanted();
        let mut observed = reached(&desired);
        observed.addresses.push(address("fe80::858:aff:fef4:2/64"));
        observed.rules.push(foreign(30, 0x99, 7));
        observed.rules.push(foreign(31, SERVICE_MARK, 9));
        assert_eq!(desired.changes(&observed), []);
        observed.rules.push(foreign(30, SERVICE_MARK, 9));
        assert_eq!(desired.changes(&observed).len(), 1);
    }

    #[test]
    fn foreign_routes_and_addresses_on_our_interface_go() {
        let desired = wanted();
        let mut observed = reached(&desired);
        observed.addresses.push(address("192.0.2.1/24"));
        let foreign = Route { table: 254, dst: "10.9.0.0/16".parse().unwrap(), ..desired.routes[0] };
        let beside = Route { metric: Some(50), ..desired.routes[0] };
        observed.routes.extend([foreign, beside]);
        assert_eq!(
            desired.changes(&observed),
            [
                Change::RemoveAddress("192.0.2.1/24".parse().unwrap()),
                Change::RemoveRoute(foreign),
                Change::RemoveRoute(beside),
            ]
        );
    }
}
