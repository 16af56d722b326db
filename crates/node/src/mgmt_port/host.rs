//! The host state the management port needs, derived from settings and subnets.

use std::net::IpAddr;

use ipnet::IpNet;
use net::{Mac, nth_address};

use super::{Facts, NAME};
use crate::settings::Settings;

/// Routing table that sends service traffic through the management port.
pub const SERVICE_TABLE: u32 = 7;
/// Priority of the rule that leads there.
pub const SERVICE_RULE_PRIORITY: u32 = 30;
/// Firewall mark of traffic to services with internalTrafficPolicy Local.
pub const SERVICE_MARK: u32 = 0x17_45ec;
/// The main routing table.
pub const MAIN_TABLE: u32 = 254;

/// A route through the management port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Routing table.
    pub table: u32,
    /// Destination.
    pub dst: IpNet,
    /// Next hop.
    pub gateway: IpAddr,
    /// MTU of the path; `None` = the interface's.
    pub mtu: Option<u32>,
    /// Metric; `None` = the kernel's default of the family.
    pub metric: Option<u32>,
}

/// A rule that sends marked packets to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// IPv6 rule.
    pub v6: bool,
    /// Priority.
    pub priority: u32,
    /// Firewall mark, all bits compared.
    pub mark: u32,
    /// Routing table.
    pub table: u32,
}

/// A permanent neighbour on the management port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// Its address.
    pub ip: IpAddr,
    /// Its MAC.
    pub mac: Mac,
}

/// A kernel setting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sysctl {
    /// Key, dots between the parts, interface names as they are.
    pub key: Vec<String>,
    /// Value.
    pub value: String,
    /// Newer kernels have it; older ones do without.
    pub optional: bool,
}

impl Sysctl {
    pub(crate) fn new(key: &[&str], value: &str, optional: bool) -> Self {
        Sysctl { key: key.iter().map(|&k| k.to_owned()).collect(), value: value.to_owned(), optional }
    }

    /// The key as `sysctl` prints it.
    pub fn name(&self) -> String {
        self.key.join(".")
    }
}

/// All the host state of the management port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// Addresses, IPv4 first.
    pub addresses: Vec<IpNet>,
    /// Routes.
    pub routes: Vec<Route>,
    /// Permanent neighbours.
    pub neighbours: Vec<Neighbour>,
    /// Rules.
    pub rules: Vec<Rule>,
    /// Kernel settings.
    pub sysctls: Vec<Sysctl>,
    /// The userspace datapath computes no checksums for packets that leave the node, so the kernel must.
    pub tx_checksum_off: bool,
}

pub(super) fn desired(settings: &Settings, facts: &Facts, userspace_datapath: bool) -> Desired {
    let mut routes = Vec::new();
    let mut rules = Vec::new();
    let path_mtu = (settings.routable_mtu != 0).then_some(settings.routable_mtu);
    let via = |table, dst: IpNet, mtu| {
        facts.gateway_for(dst.addr()).map(|gateway| Route { table, dst, gateway, mtu, metric: None })
    };

    routes.extend(settings.cluster_subnets.iter().filter_map(|net| via(MAIN_TABLE, net.trunc(), path_mtu)));
    // Replies to services with externalTrafficPolicy Local come back through this address.
    for net in [IpNet::V4(settings.gateway.masquerade_v4), IpNet::V6(settings.gateway.masquerade_v6)] {
        routes.extend(nth_address(&net, 3).and_then(|ip| via(MAIN_TABLE, IpNet::from(ip), None)));
    }
    for net in &settings.service_cidrs {
        let Some(route) = via(SERVICE_TABLE, net.trunc(), None) else { continue };
        let rule = Rule {
            v6: net.addr().is_ipv6(),
            priority: SERVICE_RULE_PRIORITY,
            mark: SERVICE_MARK,
            table: SERVICE_TABLE,
        };
        routes.push(route);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    Desired {
        addresses: facts.addresses.clone(),
        routes,
        neighbours: facts.gateways.iter().map(|&ip| Neighbour { ip, mac: facts.router_mac }).collect(),
        rules,
        sysctls: sysctls(settings, facts),
        tx_checksum_off: userspace_datapath,
    }
}

fn sysctls(settings: &Settings, facts: &Facts) -> Vec<Sysctl> {
    let mut all = Vec::new();
    if facts.addresses.iter().any(|a| a.addr().is_ipv4()) {
        all.push(Sysctl::new(&["net", "ipv4", "conf", NAME, "forwarding"], "1", false));
        if settings.gateway.node_port {
            // Node port traffic leaves by another interface than it came in; strict filtering would drop it.
            all.push(Sysctl::new(&["net", "ipv4", "conf", NAME, "rp_filter"], "2", false));
        }
    }
    if facts.addresses.iter().any(|a| a.addr().is_ipv6()) {
        all.push(Sysctl::new(&["net", "ipv6", "conf", NAME, "force_forwarding"], "1", true));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

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
        format!("{} via {} table {}", route.dst, route.gateway, route.table)
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
            desired.rules.iter().map(|r| (r.v6, r.priority, r.mark)).collect::<Vec<_>>(),
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
}
