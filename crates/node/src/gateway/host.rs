//! The host's side of the gateway bridge: addresses, routes, neighbours, rules and kernel settings on an interface that
//! carries the node's own network. Only the named objects are touched, and what of ours went out of date.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use kapi::annotations::GatewayMode;
use net::{Family, Mac};

use super::{Bridge, families};
use crate::mgmt_port::{MAIN_TABLE, Neighbour, Rule, Sysctl};
use crate::settings::Settings;

/// Firewall mark of egress traffic towards node addresses.
pub const EGRESS_MARK: u32 = 0x3f0;
/// Priority of the rule that keeps such traffic in the main table.
pub const EGRESS_RULE_PRIORITY: u32 = 5999;

/// An address on the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Address and prefix length.
    pub net: IpNet,
    /// Never a source address unless a route says so.
    pub deprecated: bool,
}

/// A route of the main table through the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Destination.
    pub dst: IpNet,
    /// Next hop; none is on-link.
    pub gateway: Option<IpAddr>,
    /// Source address.
    pub src: Option<IpAddr>,
    /// MTU of the path; none = the interface's.
    pub mtu: Option<u32>,
}

/// What the host must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// The bridge's interface.
    pub device: String,
    /// Addresses.
    pub addresses: Vec<Address>,
    /// Routes.
    pub routes: Vec<Route>,
    /// The dummy next hops: a route through one of them that is not wanted is an old one of ours.
    pub dummies: Vec<IpAddr>,
    /// Permanent neighbours.
    pub neighbours: Vec<Neighbour>,
    /// Rules.
    pub rules: Vec<Rule>,
    /// Kernel settings.
    pub sysctls: Vec<Sysctl>,
    /// The userspace datapath computes no checksums for packets that leave the node, so the kernel must.
    pub tx_checksum_off: bool,
}

/// What the host has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Addresses of the bridge.
    pub addresses: Vec<Address>,
    /// Unicast routes of the main table through it.
    pub routes: Vec<Route>,
    /// Permanent neighbours on it.
    pub neighbours: Vec<Neighbour>,
    /// All rules that compare only a firewall mark.
    pub rules: Vec<Rule>,
    /// The present value of each kernel setting asked for; absent = the kernel has no such setting.
    pub sysctls: BTreeMap<String, String>,
    /// Transmit checksum offload is on.
    pub tx_checksum: bool,
}

/// One change of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Write a kernel setting.
    SetSysctl(Sysctl),
    /// Switch transmit checksum offload off.
    TxChecksumOff,
    /// Add or correct an address.
    AddAddress(Address),
    /// Add a route, or replace the one with the same destination.
    ReplaceRoute(Route),
    /// Remove a route of ours.
    RemoveRoute(Route),
    /// Add or correct a permanent neighbour.
    ReplaceNeighbour(Neighbour),
    /// Add a rule.
    AddRule(Rule),
    /// Remove a rule of ours.
    RemoveRule(Rule),
}

/// What this bridge needs.
pub fn desired(settings: &Settings, bridge: &Bridge) -> Desired {
    let mut wanted = Desired {
        device: bridge.name.clone(),
        addresses: Vec::new(),
        routes: Vec::new(),
        dummies: Vec::new(),
        neighbours: Vec::new(),
        rules: rules(settings),
        sysctls: Vec::new(),
        tx_checksum_off: bridge.userspace,
    };
    let mtu = if settings.routable_mtu == 0 { settings.mtu } else { settings.routable_mtu };
    for (family, node, masquerade) in families(settings, bridge) {
        // The host's own IPv6 source must never be this one, except where a route says so.
        wanted.addresses.push(Address { net: masquerade.host, deprecated: family == Family::V6 });
        let services = settings.service_cidrs.iter().filter(|net| Family::of_net(net) == family);
        wanted.routes.extend(services.map(|net| Route {
            dst: net.trunc(),
            gateway: Some(masquerade.dummy),
            src: Some(masquerade.host.addr()),
            mtu: Some(mtu),
        }));
        let to_ovn = IpNet::from(masquerade.ovn);
        wanted.routes.push(Route { dst: to_ovn, gateway: None, src: Some(node.addr()), mtu: None });
        wanted.dummies.push(masquerade.dummy);
        for ip in [masquerade.ovn, masquerade.dummy] {
            wanted.neighbours.push(Neighbour { ip, mac: Mac::from_ip(ip) });
        }
        wanted.sysctls.push(match family {
            Family::V4 => Sysctl::new(&["net", "ipv4", "conf", &bridge.name, "forwarding"], "1", false),
            Family::V6 => Sysctl::new(&["net", "ipv6", "conf", &bridge.name, "force_forwarding"], "1", true),
        });
    }
    if settings.gateway.mode == GatewayMode::Local && settings.gateway.egress_ip {
        wanted.sysctls.push(Sysctl::new(&["net", "ipv4", "conf", "all", "src_valid_mark"], "1", false));
    }
    wanted
}

fn rules(settings: &Settings) -> Vec<Rule> {
    if settings.gateway.mode != GatewayMode::Local || !settings.gateway.egress_ip {
        return Vec::new();
    }
    let families: Vec<bool> = [false, true]
        .into_iter()
        .filter(|v6| settings.cluster_subnets.iter().any(|net| net.addr().is_ipv6() == *v6))
        .collect();
    let rule = |v6| Rule { v6, priority: EGRESS_RULE_PRIORITY, mark: EGRESS_MARK, table: MAIN_TABLE };
    families.into_iter().map(rule).collect()
}

/// The setting that stands in where the kernel cannot forward IPv6 on single interfaces.
fn global_v6_forwarding() -> Sysctl {
    Sysctl::new(&["net", "ipv6", "conf", "all", "forwarding"], "1", false)
}

/// All settings somebody must read before [`plan`] is asked.
pub fn settings_to_read(desired: &Desired) -> Vec<Sysctl> {
    let mut all = desired.sysctls.clone();
    if all.iter().any(|setting| setting.optional) {
        all.push(global_v6_forwarding());
    }
    all
}

/// The changes that lead from `observed` to `desired`, in an order the kernel accepts; empty when there is nothing to do.
pub fn plan(observed: &Observed, desired: &Desired) -> Vec<Change> {
    let mut changes = Vec::new();
    for wanted in &desired.sysctls {
        // Older kernels forward IPv6 everywhere or nowhere.
        let known = observed.sysctls.contains_key(&wanted.name()) || !wanted.optional;
        let wanted = if known { wanted.clone() } else { global_v6_forwarding() };
        if observed.sysctls.get(&wanted.name()) != Some(&wanted.value) {
            changes.push(Change::SetSysctl(wanted));
        }
    }
    if desired.tx_checksum_off && observed.tx_checksum {
        changes.push(Change::TxChecksumOff);
    }
    let missing = desired.addresses.iter().filter(|want| !observed.addresses.contains(want));
    changes.extend(missing.copied().map(Change::AddAddress));
    for route in &observed.routes {
        let ours = route.gateway.is_some_and(|gateway| desired.dummies.contains(&gateway));
        if ours && !desired.routes.iter().any(|want| want.dst == route.dst) {
            changes.push(Change::RemoveRoute(*route));
        }
    }
    let missing = desired.routes.iter().filter(|want| !observed.routes.contains(want));
    changes.extend(missing.copied().map(Change::ReplaceRoute));
    let missing = desired.neighbours.iter().filter(|want| !observed.neighbours.contains(want));
    changes.extend(missing.copied().map(Change::ReplaceNeighbour));
    let ours = |rule: &Rule| rule.priority == EGRESS_RULE_PRIORITY && rule.mark == EGRESS_MARK;
    let stale = observed.rules.iter().filter(|rule| ours(rule) && !desired.rules.contains(rule));
    changes.extend(stale.copied().map(Change::RemoveRule));
    let missing = desired.rules.iter().filter(|rule| !observed.rules.contains(rule));
    changes.extend(missing.copied().map(Change::AddRule));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::Dual;

    fn dual() -> (Settings, Bridge) {
        let mut settings = Settings::new(
            "node1",
            vec!["10.244.0.0/16".parse().unwrap(), "fd00:10:244::/48".parse().unwrap()],
            vec!["10.96.0.0/16".parse().unwrap(), "fd00:10:96::/112".parse().unwrap()],
        );
        settings.mtu = 1342;
        settings.gateway.egress_ip = true;
        let node = Dual {
            v4: Some("172.18.0.1/24".parse().unwrap()),
            v6: Some("fd00:172:18::1/64".parse().unwrap()),
        };
        let mac = "02:42:ac:12:00:01".parse().unwrap();
        (settings, Bridge { name: "breth0".into(), mac, node, userspace: true })
    }

    /// The recorded section of that title.
    fn section<'a>(recorded: &'a str, title: &str) -> Vec<&'a str> {
        let from = recorded.lines().skip_while(|line| *line != format!("### {title}")).skip(1);
        from.take_while(|line| !line.starts_with("###")).map(str::trim).collect()
    }

    fn words(route: &Route) -> Vec<String> {
        let mut words = vec![match route.dst.prefix_len() == route.dst.max_prefix_len() {
            true => route.dst.addr().to_string(),
            false => route.dst.to_string(),
        }];
        words.extend(route.gateway.map(|ip| format!("via {ip}")));
        words.push("dev breth0".into());
        words.extend(route.src.map(|ip| format!("src {ip}")));
        words.extend(route.mtu.map(|mtu| format!("mtu {mtu}")));
        words
    }

    #[test]
    fn addresses_routes_and_neighbours_as_recorded() {
        let (settings, bridge) = dual();
        let desired = desired(&settings, &bridge);
        let recorded = include_str!("../../tests/data/dual.host.txt");
        let routes = section(recorded, "ip route show table all");
        for route in &desired.routes {
            let words = words(route);
            let found = routes.iter().any(|line| words.iter().all(|word| line.contains(word.as_str())));
            assert!(found, "not recorded: {words:?}");
        }
        let neighbours = section(recorded, "ip neigh");
        for neighbour in &desired.neighbours {
            let line = format!("{} dev breth0 lladdr {} PERMANENT", neighbour.ip, neighbour.mac);
            assert!(neighbours.contains(&line.as_str()), "not recorded: {line}");
        }
        let addresses = section(recorded, "ip -br addr");
        let addresses = addresses.iter().find(|line| line.starts_with("breth0")).unwrap();
        for address in &desired.addresses {
            assert!(addresses.contains(&address.net.to_string()), "{address:?}");
        }
        assert_eq!(desired.rules, []);
    }

    #[test]
    fn the_rule_of_local_mode_as_recorded() {
        let (mut settings, bridge) = dual();
        settings.gateway.mode = GatewayMode::Local;
        let recorded = section(include_str!("../../tests/data/local.host.txt"), "ip rule");
        let rule = desired(&settings, &bridge).rules[0];
        let line = format!("{}:\tfrom all fwmark {:#x} lookup main", rule.priority, rule.mark);
        assert!(recorded.contains(&line.as_str()), "{line} is not in {recorded:?}");
        settings.gateway.egress_ip = false;
        assert_eq!(desired(&settings, &bridge).rules, []);
    }

    fn reached(desired: &Desired) -> Observed {
        Observed {
            addresses: desired.addresses.clone(),
            routes: desired.routes.clone(),
            neighbours: desired.neighbours.clone(),
            rules: desired.rules.clone(),
            sysctls: desired.sysctls.iter().map(|s| (s.name(), s.value.clone())).collect(),
            tx_checksum: false,
        }
    }

    #[test]
    fn once_reached_nothing_is_written_and_foreign_objects_stay() {
        let (settings, bridge) = dual();
        let desired = desired(&settings, &bridge);
        let mut observed = reached(&desired);
        observed.addresses.push(Address { net: "172.18.0.1/24".parse().unwrap(), deprecated: false });
        let default = Route {
            dst: "0.0.0.0/0".parse().unwrap(),
            gateway: "172.18.0.254".parse().ok(),
            src: None,
            mtu: None,
        };
        observed.routes.push(default);
        observed.neighbours.push(Neighbour { ip: "172.18.0.9".parse().unwrap(), mac: bridge.mac });
        assert_eq!(plan(&observed, &desired), []);
    }

    #[test]
    fn an_address_comes_before_the_route_that_names_it() {
        let (settings, bridge) = dual();
        let changes =
            plan(&Observed { tx_checksum: true, ..Observed::default() }, &desired(&settings, &bridge));
        let last_address = changes.iter().rposition(|c| matches!(c, Change::AddAddress(_))).unwrap();
        let first_route = changes.iter().position(|c| matches!(c, Change::ReplaceRoute(_))).unwrap();
        assert!(last_address < first_route, "{changes:?}");
    }

    #[test]
    fn routes_of_an_earlier_configuration_go() {
        let (mut settings, bridge) = dual();
        let before = reached(&desired(&settings, &bridge));
        settings.service_cidrs = vec!["10.97.0.0/16".parse().unwrap(), "fd00:10:96::/112".parse().unwrap()];
        settings.routable_mtu = 1300;
        let changes = plan(&before, &desired(&settings, &bridge));
        assert!(matches!(&changes[0], Change::RemoveRoute(route) if route.dst.to_string() == "10.96.0.0/16"));
        assert_eq!(changes.len(), 3, "the new range, and the new MTU of the other: {changes:?}");
    }

    #[test]
    fn a_kernel_that_forwards_all_or_nothing() {
        let (settings, bridge) = dual();
        let desired = desired(&settings, &bridge);
        let mut observed = reached(&desired);
        observed.sysctls.retain(|name, _| !name.contains("force_forwarding"));
        assert_eq!(plan(&observed, &desired), [Change::SetSysctl(global_v6_forwarding())]);
        observed.sysctls.insert(global_v6_forwarding().name(), "1".into());
        assert_eq!(plan(&observed, &desired), []);
    }
}
