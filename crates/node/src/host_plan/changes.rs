//! Observed against wanted: the least list of changes.

use super::{Change, HostPlan, Observed, Route, Sysctl};

pub(super) fn changes(plan: &HostPlan, observed: &Observed) -> Vec<Change> {
    let mut changes = Vec::new();
    // Rules name no interface: old ones attract traffic also where it is gone.
    let ours = |rule: &&super::Rule| plan.rule_kinds.contains(&rule.kind);
    let stale = observed.rules.iter().filter(ours).filter(|rule| !plan.rules.contains(rule));
    let stale_rules = stale.copied().map(Change::RemoveRule);
    if observed.index.is_none() {
        return stale_rules.collect();
    }
    sysctls(plan, observed, &mut changes);
    if plan.tx_checksum_off && observed.tx_checksum {
        changes.push(Change::TxChecksumOff);
    }
    addresses(plan, observed, &mut changes);
    let in_use = !plan.addresses.is_empty();
    if in_use && !observed.up {
        changes.push(Change::Up);
    }
    routes(plan, observed, &mut changes);
    for neighbour in &observed.neighbours {
        let wanted = plan.neighbours.iter().any(|want| want.ip == neighbour.ip);
        if plan.ours.neighbour(neighbour.ip) && !wanted {
            changes.push(Change::RemoveNeighbour(neighbour.ip));
        }
    }
    let missing = plan.neighbours.iter().filter(|want| !observed.neighbours.contains(want));
    changes.extend(missing.copied().map(Change::ReplaceNeighbour));
    changes.extend(stale_rules);
    let missing = plan.rules.iter().filter(|rule| !observed.rules.contains(rule));
    changes.extend(missing.copied().map(Change::AddRule));
    changes
}

fn sysctls(plan: &HostPlan, observed: &Observed, changes: &mut Vec<Change>) {
    for wanted in &plan.sysctls {
        let known = observed.sysctls.contains_key(&wanted.name()) || !wanted.newer;
        let wanted = if known { wanted.clone() } else { Sysctl::global_v6_forwarding() };
        if observed.sysctls.get(&wanted.name()) != Some(&wanted.value) {
            changes.push(Change::SetSysctl(wanted));
        }
    }
}

/// Old addresses go first: the connected route of a stale prefix would otherwise win over the new one's.
fn addresses(plan: &HostPlan, observed: &Observed, changes: &mut Vec<Change>) {
    let wanted = |net| plan.addresses.iter().any(|want| want.net == net);
    let stale = observed.addresses.iter().filter(|a| plan.ours.address(a.net.addr()) && !wanted(a.net));
    changes.extend(stale.map(|address| Change::RemoveAddress(address.net)));
    let missing = plan.addresses.iter().filter(|a| !observed.addresses.contains(a));
    changes.extend(missing.copied().map(Change::AddAddress));
}

fn routes(plan: &HostPlan, observed: &Observed, changes: &mut Vec<Change>) {
    for route in &observed.routes {
        // A route of the same key is replaced below; one with another metric would stand beside ours for ever.
        let same_key =
            |want: &Route| (want.dst, want.table, want.metric) == (route.dst, route.table, route.metric);
        if plan.ours.route(route) && !plan.routes.iter().any(same_key) {
            changes.push(Change::RemoveRoute(*route));
        }
    }
    let missing = plan.routes.iter().filter(|want| !observed.routes.contains(want));
    changes.extend(missing.copied().map(Change::ReplaceRoute));
}
