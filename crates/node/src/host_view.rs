//! What the agent sees of its host, read in one go. Reading changes nothing.

use std::collections::BTreeMap;

use host::{Handle, Result, sysctl};
use net::Mac;

use crate::addresses::HostAddress;
use crate::gateway::host as gateway;
use crate::mgmt_port::{self, Neighbour, Observed, Route, Rule, Sysctl};
use crate::uplink::DefaultRoute;

/// Metric the kernel gives IPv6 routes that name none.
const DEFAULT_METRIC_V6: u32 = 1024;

/// The host as the planning functions want it.
#[derive(Debug, Clone, Default)]
pub struct HostView {
    /// Usable and other addresses of every interface, in the kernel's order.
    pub addresses: Vec<HostAddress>,
    /// MACs of interfaces that have one.
    pub macs: Vec<(String, Mac)>,
    /// MTUs of all interfaces.
    pub mtus: BTreeMap<String, u32>,
    /// Default routes of the main table.
    pub default_routes: Vec<DefaultRoute>,
    /// The management port, once its interface exists.
    pub mgmt_port: Option<(u32, Observed)>,
}

/// The gateway bridge's side of the host, with the interface's index; none while there is no such interface.
pub fn observe_gateway(
    handle: &Handle,
    desired: &gateway::Desired,
) -> Result<Option<(u32, gateway::Observed)>> {
    let Some(link) = handle.link(&desired.device)? else { return Ok(None) };
    let addresses = handle.addresses(Some(link.index))?;
    let routes = handle.routes(Some(mgmt_port::MAIN_TABLE))?;
    let through = routes.iter().filter(|route| route.oif == Some(link.index));
    let observed = gateway::Observed {
        addresses: addresses
            .iter()
            .filter(|a| a.index == link.index)
            .map(|a| gateway::Address { net: a.net, deprecated: a.is_deprecated() })
            .collect(),
        routes: through
            .map(|r| gateway::Route { dst: r.dst, gateway: r.gateway, src: r.src, mtu: r.mtu })
            .collect(),
        neighbours: neighbours(handle, link.index)?,
        rules: handle.rules()?.iter().filter_map(mark_rule).collect(),
        sysctls: gateway::settings_to_read(desired).iter().filter_map(read).collect(),
        tx_checksum: handle.tx_checksum(&desired.device)?,
    };
    Ok(Some((link.index, observed)))
}

/// Reads the host. `sysctls` are the settings somebody will compare.
pub fn observe(handle: &Handle, sysctls: &[Sysctl]) -> Result<HostView> {
    let links = handle.links()?;
    let name_of = |index: u32| links.iter().find(|link| link.index == index).map(|link| link.name.as_str());
    let mut view = HostView::default();
    for link in &links {
        view.mtus.insert(link.name.clone(), link.mtu);
        view.macs.extend(link.mac.map(|mac| (link.name.clone(), Mac(mac))));
    }
    let addresses = handle.addresses(None)?;
    for address in &addresses {
        // An address another host was found to own is none others can rely on.
        if address.is_dad_failed() {
            continue;
        }
        if let Some(interface) = name_of(address.index) {
            view.addresses.push(HostAddress { interface: interface.to_owned(), net: address.net });
        }
    }
    let routes = handle.routes(None)?;
    for route in routes.iter().filter(|r| r.dst.prefix_len() == 0 && r.table == mgmt_port::MAIN_TABLE) {
        let single = route.gateway.zip(route.oif);
        let several = route.nexthops.iter().filter_map(|hop| hop.gateway.zip(hop.oif));
        for (gateway, oif) in single.into_iter().chain(several) {
            let Some(interface) = name_of(oif) else { continue };
            let metric = route.metric.unwrap_or(0);
            view.default_routes.push(DefaultRoute { interface: interface.to_owned(), gateway, metric });
        }
    }
    let Some(link) = links.iter().find(|link| link.name == mgmt_port::NAME) else { return Ok(view) };
    let ours = routes.iter().filter(|route| route.oif == Some(link.index)).filter_map(our_route);
    let observed = Observed {
        up: link.up,
        addresses: addresses.iter().filter(|a| a.index == link.index).map(|a| a.net).collect(),
        routes: ours.collect(),
        neighbours: neighbours(handle, link.index)?,
        rules: handle.rules()?.iter().filter_map(mark_rule).collect(),
        sysctls: sysctls.iter().filter_map(read).collect(),
        tx_checksum: handle.tx_checksum(mgmt_port::NAME)?,
    };
    view.mgmt_port = Some((link.index, observed));
    Ok(view)
}

fn our_route(route: &host::route::Route) -> Option<Route> {
    let default = if route.dst.addr().is_ipv6() { DEFAULT_METRIC_V6 } else { 0 };
    Some(Route {
        table: route.table,
        dst: route.dst,
        gateway: route.gateway?,
        mtu: route.mtu,
        metric: route.metric.filter(|metric| *metric != default),
    })
}

fn neighbours(handle: &Handle, index: u32) -> Result<Vec<Neighbour>> {
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
    (plain && whole).then_some(Rule { v6: rule.v6, priority: rule.priority, mark, table: rule.table })
}

fn read(sysctl: &Sysctl) -> Option<(String, String)> {
    let key: Vec<&str> = sysctl.key.iter().map(String::as_str).collect();
    sysctl::get(&key).ok().map(|value| (sysctl.name(), value))
}
