//! The host's side of the gateway bridge: addresses, routes, neighbours, rules and kernel settings on an interface that
//! carries the node's own network.

use std::net::IpAddr;

use ipnet::IpNet;
use kapi::annotations::GatewayMode;
use net::{Dual, Family, Mac, nth_address};

use super::{Bridge, families};
use crate::host_plan::{Address, HostPlan, MAIN_TABLE, Neighbour, Ours, Route, Rule, RuleKind, Sysctl};
use crate::settings::Settings;

/// Firewall mark of egress traffic towards node addresses.
pub const EGRESS_MARK: u32 = 0x3f0;
/// The rule that keeps such traffic in the main table.
pub const EGRESS_RULE: RuleKind = RuleKind { priority: 5999, mark: EGRESS_MARK };
/// How many of the first addresses of a masquerade range are ours on every node.
const OUR_ADDRESSES: u32 = 4;

/// A plan that takes everything of ours off a bridge. `earlier` are the masquerade ranges the node had before.
pub(crate) fn nothing(settings: &Settings, device: &str, earlier: &Dual<IpNet>) -> HostPlan {
    let now = [settings.gateway.masquerade_v4.into(), settings.gateway.masquerade_v6.into()];
    let ranges = now.iter().chain(earlier.iter());
    let ours = ranges.flat_map(|range| (1..=OUR_ADDRESSES).filter_map(|nth| nth_address(range, nth.into())));
    let mut ours: Vec<IpAddr> = ours.collect();
    ours.sort_unstable();
    ours.dedup();
    HostPlan::nothing(device, Ours::Addresses(ours), EGRESS_RULE)
}

/// What this bridge needs. `earlier` are the masquerade ranges the node had before.
pub fn desired(settings: &Settings, bridge: &Bridge, earlier: &Dual<IpNet>) -> HostPlan {
    let mut wanted = HostPlan {
        rules: rules(settings),
        tx_checksum_off: bridge.userspace,
        ..nothing(settings, &bridge.name, earlier)
    };
    let mtu = if settings.routable_mtu == 0 { settings.mtu } else { settings.routable_mtu };
    for (family, node, masquerade) in families(settings, bridge) {
        // The host's own IPv6 source must never be this one, except where a route says so.
        wanted.addresses.push(Address { net: masquerade.host, deprecated: family == Family::V6 });
        let services = settings.service_cidrs.iter().filter(|net| Family::of_net(net) == family);
        wanted.routes.extend(services.map(|net| Route {
            table: MAIN_TABLE,
            dst: net.trunc(),
            gateway: Some(masquerade.dummy),
            src: Some(masquerade.host.addr()),
            mtu: Some(mtu),
            metric: None,
        }));
        wanted.routes.push(Route {
            table: MAIN_TABLE,
            dst: IpNet::from(masquerade.ovn),
            gateway: None,
            src: Some(node.addr()),
            mtu: None,
            metric: None,
        });
        for ip in [masquerade.ovn, masquerade.dummy] {
            wanted.neighbours.push(Neighbour { ip, mac: Mac::from_ip(ip) });
        }
        wanted.sysctls.push(Sysctl::forwarding(family == Family::V6, &bridge.name));
    }
    if settings.gateway.mode == GatewayMode::Local && settings.gateway.egress_ip {
        wanted.sysctls.push(Sysctl::new(&["net", "ipv4", "conf", "all", "src_valid_mark"], "1"));
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
    let rule = |v6| Rule { v6, kind: EGRESS_RULE, table: MAIN_TABLE };
    families.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_plan::{Change, Observed};

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
        let desired = desired(&settings, &bridge, &Dual::default());
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
        let rule = desired(&settings, &bridge, &Dual::default()).rules[0];
        let line = format!("{}:\tfrom all fwmark {:#x} lookup main", rule.kind.priority, rule.kind.mark);
        assert!(recorded.contains(&line.as_str()), "{line} is not in {recorded:?}");
        settings.gateway.egress_ip = false;
        assert_eq!(desired(&settings, &bridge, &Dual::default()).rules, []);
    }

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
    fn once_reached_nothing_is_written_and_foreign_objects_stay() {
        let (settings, bridge) = dual();
        let desired = desired(&settings, &bridge, &Dual::default());
        let mut observed = reached(&desired);
        observed.addresses.push(Address { net: "172.18.0.1/24".parse().unwrap(), deprecated: false });
        let default = Route {
            table: MAIN_TABLE,
            metric: None,
            dst: "0.0.0.0/0".parse().unwrap(),
            gateway: "172.18.0.254".parse().ok(),
            src: None,
            mtu: None,
        };
        observed.routes.push(default);
        observed.neighbours.push(Neighbour { ip: "172.18.0.9".parse().unwrap(), mac: bridge.mac });
        assert_eq!(desired.changes(&observed), []);
    }

    #[test]
    fn an_address_comes_before_the_route_that_names_it() {
        let (settings, bridge) = dual();
        let changes = desired(&settings, &bridge, &Dual::default()).changes(&Observed {
            index: Some(7),
            tx_checksum: true,
            ..Observed::default()
        });
        let last_address = changes.iter().rposition(|c| matches!(c, Change::AddAddress(_))).unwrap();
        let first_route = changes.iter().position(|c| matches!(c, Change::ReplaceRoute(_))).unwrap();
        assert!(last_address < first_route, "{changes:?}");
    }

    #[test]
    fn routes_of_an_earlier_configuration_go() {
        let (mut settings, bridge) = dual();
        let before = reached(&desired(&settings, &bridge, &Dual::default()));
        settings.service_cidrs = vec!["10.97.0.0/16".parse().unwrap(), "fd00:10:96::/112".parse().unwrap()];
        settings.routable_mtu = 1300;
        let changes = desired(&settings, &bridge, &Dual::default()).changes(&before);
        assert!(matches!(&changes[0], Change::RemoveRoute(route) if route.dst.to_string() == "10.96.0.0/16"));
        assert_eq!(changes.len(), 3, "the new range, and the new MTU of the other: {changes:?}");
    }

    #[test]
    fn a_kernel_that_forwards_all_or_nothing() {
        let (settings, bridge) = dual();
        let desired = desired(&settings, &bridge, &Dual::default());
        let mut observed = reached(&desired);
        observed.sysctls.retain(|name, _| !name.contains("force_forwarding"));
        assert_eq!(desired.changes(&observed), [Change::SetSysctl(Sysctl::global_v6_forwarding())]);
        observed.sysctls.insert(Sysctl::global_v6_forwarding().name(), "1".into());
        assert_eq!(desired.changes(&observed), []);
    }

    #[test]
    fn nothing_of_an_earlier_masquerade_range_stays() {
        let (mut settings, bridge) = dual();
        let before = reached(&desired(&settings, &bridge, &Dual::default()));
        let earlier = Dual {
            v4: Some(settings.gateway.masquerade_v4.into()),
            v6: Some(settings.gateway.masquerade_v6.into()),
        };
        settings.gateway.masquerade_v4 = "169.254.0.0/17".parse().unwrap();
        settings.gateway.masquerade_v6 = "fd70::/112".parse().unwrap();
        let after = desired(&settings, &bridge, &earlier);
        let changes = after.changes(&before);
        for old in &before.addresses {
            assert!(changes.contains(&Change::RemoveAddress(old.net)), "{old:?}");
        }
        for old in &before.neighbours {
            assert!(changes.contains(&Change::RemoveNeighbour(old.ip)), "{old:?}");
        }
        let gone = before.routes.iter().filter(|old| !after.routes.iter().any(|new| new.dst == old.dst));
        assert_eq!(gone.clone().count(), 2, "the routes to OVN's side");
        for old in gone {
            assert!(changes.contains(&Change::RemoveRoute(*old)), "{old:?}");
        }
        assert_eq!(after.changes(&reached(&after)), []);
    }

    #[test]
    fn switched_off_only_ours_goes() {
        let (settings, bridge) = dual();
        let mut observed = reached(&desired(&settings, &bridge, &Dual::default()));
        let ours = observed.addresses.len() + observed.routes.len() + observed.neighbours.len();
        let node = "172.18.0.1/24".parse().unwrap();
        observed.addresses.push(Address { net: node, deprecated: false });
        let metadata = "169.254.169.254/32".parse().unwrap();
        observed.routes.push(Route { dst: metadata, ..observed.routes[0] });
        observed.routes.last_mut().unwrap().gateway = "172.18.0.254".parse().ok();
        let changes = nothing(&settings, &bridge.name, &Dual::default()).changes(&observed);
        assert_eq!(changes.len(), ours, "{changes:?}");
        assert!(!changes.contains(&Change::RemoveAddress(node)));
    }
}
