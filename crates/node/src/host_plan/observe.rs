//! Reads the host as a plan wants to compare it. Reading changes nothing.

use host::{Error, Handle, sysctl};
use net::Mac;

use super::{Address, HostPlan, Neighbour, Observed, Route, Rule, RuleKind, Sysctl};

/// Metric the kernel gives IPv6 routes that name none.
const DEFAULT_METRIC_V6: u32 = 1024;
/// Ordinary routes.
const UNICAST: u8 = 1;

pub(super) fn observe(handle: &Handle, plan: &HostPlan) -> Result<Observed, Error> {
    let rules = handle.rules()?.iter().filter_map(mark_rule).collect();
    let Some(link) = handle.link(&plan.device)? else { return Ok(Observed { rules, ..Observed::default() }) };
    let addresses = handle.addresses(Some(link.index))?;
    let routes = handle.routes(None)?;
    let through = routes.iter().filter(|route| route.oif == Some(link.index) && route.kind == UNICAST);
    Ok(Observed {
        index: Some(link.index),
        up: link.up,
        addresses: addresses
            .iter()
            .filter(|a| a.index == link.index)
            .map(|a| Address { net: a.net, deprecated: a.is_deprecated() })
            .collect(),
        routes: through.map(route).collect(),
        neighbours: neighbours(handle, link.index)?,
        rules,
        sysctls: settings(plan).iter().filter_map(read).collect(),
        tx_checksum: handle.tx_checksum(&plan.device)?,
    })
}

fn route(route: &host::route::Route) -> Route {
    let default = if route.dst.addr().is_ipv6() { DEFAULT_METRIC_V6 } else { 0 };
    Route {
        table: route.table,
        dst: route.dst,
        gateway: route.gateway,
        src: route.src,
        mtu: route.mtu,
        metric: route.metric.filter(|metric| *metric != default),
    }
}

fn neighbours(handle: &Handle, index: u32) -> Result<Vec<Neighbour>, Error> {
    let all = handle.neighbours(Some(index))?;
    let permanent = all.iter().filter(|neighbour| neighbour.permanent);
    // The kernel keeps permanent entries of its own for multicast groups.
    let hosts = permanent.filter(|neighbour| !neighbour.ip.is_multicast());
    Ok(hosts.filter_map(|n| Some(Neighbour { ip: n.ip, mac: Mac(n.mac?) })).collect())
}

/// A rule that compares the whole mark and nothing else.
fn mark_rule(rule: &host::rule::Rule) -> Option<Rule> {
    let mark = rule.fwmark?;
    let plain = rule.src.is_none() && rule.dst.is_none() && rule.iif.is_none() && rule.oif.is_none();
    let whole = rule.fwmask.is_none_or(|mask| mask == u32::MAX);
    let kind = RuleKind { priority: rule.priority, mark };
    (plain && whole).then_some(Rule { v6: rule.v6, kind, table: rule.table })
}

/// All settings that are compared.
fn settings(plan: &HostPlan) -> Vec<Sysctl> {
    let mut all = plan.sysctls.clone();
    if all.iter().any(|setting| setting.newer) {
        all.push(Sysctl::global_v6_forwarding());
    }
    all
}

fn read(sysctl: &Sysctl) -> Option<(String, String)> {
    let key: Vec<&str> = sysctl.key.iter().map(String::as_str).collect();
    sysctl::get(&key).ok().map(|value| (sysctl.name(), value))
}
