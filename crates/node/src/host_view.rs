//! What the agent sees of its host, read in one go. Reading changes nothing.

use std::collections::BTreeMap;

use host::{Handle, Result};
use net::Mac;

use crate::addresses::HostAddress;
use crate::host_plan::MAIN_TABLE;
use crate::mgmt_port;
use crate::uplink::DefaultRoute;

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
    /// The management port's interface exists.
    pub has_mgmt_port: bool,
}

/// Reads the host.
pub fn observe(handle: &Handle) -> Result<HostView> {
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
    for route in routes.iter().filter(|r| r.dst.prefix_len() == 0 && r.table == MAIN_TABLE) {
        let single = route.gateway.zip(route.oif);
        let several = route.nexthops.iter().filter_map(|hop| hop.gateway.zip(hop.oif));
        for (gateway, oif) in single.into_iter().chain(several) {
            let Some(interface) = name_of(oif) else { continue };
            let metric = route.metric.unwrap_or(0);
            view.default_routes.push(DefaultRoute { interface: interface.to_owned(), gateway, metric });
        }
    }
    view.has_mgmt_port = links.iter().any(|link| link.name == mgmt_port::NAME);
    Ok(view)
}
