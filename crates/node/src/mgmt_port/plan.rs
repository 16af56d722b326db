//! Observed against desired host state: the least list of changes, in an order the kernel accepts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::host::{Desired, Neighbour, Route, Rule, SERVICE_RULE_PRIORITY, Sysctl};
use crate::addresses::is_usable;

/// What the host looks like around the management port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// The interface is administratively up.
    pub up: bool,
    /// Addresses on it, link-local ones included.
    pub addresses: Vec<IpNet>,
    /// Unicast routes through it that have a next hop.
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
    /// Remove an address from the interface.
    RemoveAddress(IpNet),
    /// Add an address to the interface.
    AddAddress(IpNet),
    /// Set the interface up.
    Up,
    /// Add a route, or replace the one with the same destination and table.
    ReplaceRoute(Route),
    /// Remove a route.
    RemoveRoute(Route),
    /// Add or correct a permanent neighbour.
    ReplaceNeighbour(Neighbour),
    /// Remove a permanent neighbour.
    RemoveNeighbour(IpAddr),
    /// Add a rule.
    AddRule(Rule),
    /// Remove a rule of ours that leads elsewhere.
    RemoveRule(Rule),
}

/// The changes that lead from `observed` to `desired`; empty when there is nothing to do.
pub fn plan(observed: &Observed, desired: &Desired) -> Vec<Change> {
    let mut changes = Vec::new();
    for sysctl in &desired.sysctls {
        match observed.sysctls.get(&sysctl.name()) {
            Some(value) if *value == sysctl.value => {}
            None if sysctl.optional => {}
            _ => changes.push(Change::SetSysctl(sysctl.clone())),
        }
    }
    if desired.tx_checksum_off && observed.tx_checksum {
        changes.push(Change::TxChecksumOff);
    }
    addresses(observed, desired, &mut changes);
    if !observed.up {
        changes.push(Change::Up);
    }
    routes(observed, desired, &mut changes);
    for neighbour in &observed.neighbours {
        if !desired.neighbours.iter().any(|want| want.ip == neighbour.ip) {
            changes.push(Change::RemoveNeighbour(neighbour.ip));
        }
    }
    let missing = desired.neighbours.iter().filter(|want| !observed.neighbours.contains(want));
    changes.extend(missing.copied().map(Change::ReplaceNeighbour));
    rules(observed, desired, &mut changes);
    changes
}

/// Wrong addresses go first: a stale subnet's connected route would otherwise win over the new one's.
fn addresses(observed: &Observed, desired: &Desired, changes: &mut Vec<Change>) {
    let stale = observed.addresses.iter().filter(|a| is_usable(a.addr()) && !desired.addresses.contains(a));
    changes.extend(stale.copied().map(Change::RemoveAddress));
    let missing = desired.addresses.iter().filter(|a| !observed.addresses.contains(a));
    changes.extend(missing.copied().map(Change::AddAddress));
}

fn routes(observed: &Observed, desired: &Desired, changes: &mut Vec<Change>) {
    for route in &observed.routes {
        // A route of the same key is replaced below; one with another metric would stand beside ours for ever.
        let same_key =
            |want: &Route| want.dst == route.dst && want.table == route.table && want.metric == route.metric;
        if !desired.routes.iter().any(same_key) {
            changes.push(Change::RemoveRoute(route.clone()));
        }
    }
    let missing = desired.routes.iter().filter(|want| !observed.routes.contains(want));
    changes.extend(missing.cloned().map(Change::ReplaceRoute));
}

fn rules(observed: &Observed, desired: &Desired, changes: &mut Vec<Change>) {
    let ours = |rule: &Rule| rule.priority == SERVICE_RULE_PRIORITY && rule.mark == super::SERVICE_MARK;
    let stale = observed.rules.iter().filter(|rule| ours(rule) && !desired.rules.contains(rule));
    changes.extend(stale.copied().map(Change::RemoveRule));
    let missing = desired.rules.iter().filter(|rule| !observed.rules.contains(rule));
    changes.extend(missing.copied().map(Change::AddRule));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mgmt_port::{Facts, desired};
    use crate::settings::Settings;

    fn wanted() -> Desired {
        let settings = Settings::new(
            "node1",
            vec!["10.244.0.0/16".parse().unwrap()],
            vec!["10.96.0.0/16".parse().unwrap()],
        );
        let facts = Facts::from_subnets("node1", &["10.244.0.0/24".parse().unwrap()]).unwrap();
        desired(&settings, &facts, true)
    }

    /// What the kernel shows once every change has been made.
    fn reached(desired: &Desired) -> Observed {
        Observed {
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
        assert_eq!(plan(&reached(&desired), &desired), []);
    }

    #[test]
    fn a_fresh_interface_gets_everything_in_an_order_the_kernel_accepts() {
        let desired = wanted();
        let changes = plan(&Observed { tx_checksum: true, ..Observed::default() }, &desired);
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
        assert_eq!(plan(&without_address, &desired), [Change::AddAddress(desired.addresses[0])]);
        let down = Observed { up: false, ..full.clone() };
        assert_eq!(plan(&down, &desired), [Change::Up]);
        let without_route = Observed { routes: full.routes[1..].to_vec(), ..full.clone() };
        assert_eq!(plan(&without_route, &desired), [Change::ReplaceRoute(desired.routes[0].clone())]);
        let without_rule = Observed { rules: vec![], ..full };
        assert_eq!(plan(&without_rule, &desired), [Change::AddRule(desired.rules[0])]);
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
        let changes = plan(&old, &new);
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
        observed.addresses.push("fe80::858:aff:fef4:2/64".parse().unwrap());
        observed.rules.push(Rule { v6: false, priority: 30, mark: 0x99, table: 7 });
        observed.rules.push(Rule { v6: false, priority: 31, mark: 0x1745ec, table: 9 });
        assert_eq!(plan(&observed, &desired), []);
        observed.rules.push(Rule { v6: false, priority: 30, mark: 0x1745ec, table: 9 });
        assert_eq!(plan(&observed, &desired).len(), 1);
    }

    #[test]
    fn foreign_routes_and_addresses_on_our_interface_go() {
        let desired = wanted();
        let mut observed = reached(&desired);
        observed.addresses.push("192.0.2.1/24".parse().unwrap());
        let foreign = Route { table: 254, dst: "10.9.0.0/16".parse().unwrap(), ..desired.routes[0].clone() };
        let beside = Route { metric: Some(50), ..desired.routes[0].clone() };
        observed.routes.extend([foreign.clone(), beside.clone()]);
        assert_eq!(
            plan(&observed, &desired),
            [
                Change::RemoveAddress("192.0.2.1/24".parse().unwrap()),
                Change::RemoveRoute(foreign),
                Change::RemoveRoute(beside),
            ]
        );
    }
}
