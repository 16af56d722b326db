//! What of a node matters to its load balancers.

use std::net::IpAddr;

use kapi::annotations::GatewayMode;
use net::{Family, IpNet};
use ovn::names;
use world::NodeState;

use crate::settings::Settings;

/// Place in the masquerade range of the address under which the gateway router reaches its own host.
const HOST: u128 = 2;
/// Place in the masquerade range of the address the host sends traffic to that has to stay on the node.
const KEPT: u128 = 3;

/// This zone's node, as its load balancers see it.
pub(super) struct Site<'a> {
    settings: &'a Settings,
    /// Its name, which is its switch's.
    pub(super) node: &'a str,
    /// Its gateway router.
    pub(super) router: Option<String>,
    host: Vec<IpAddr>,
    gateway: Vec<IpAddr>,
}

impl<'a> Site<'a> {
    pub(super) fn new(settings: &'a Settings, node: &'a NodeState) -> Site<'a> {
        let config = node.gateway.as_ref().filter(|config| config.mode != GatewayMode::Disabled);
        let mut host: Vec<IpAddr> = match config.filter(|config| config.node_port) {
            Some(_) => node.host_cidrs.iter().map(IpNet::addr).collect(),
            None => Vec::new(),
        };
        host.sort_unstable();
        host.dedup();
        let gateway = config.into_iter().flat_map(|config| &config.addresses).map(IpNet::addr).collect();
        let router = config.map(|_| names::gateway_router(&node.name));
        Site { settings, node: &node.name, router, host, gateway }
    }

    /// The addresses node ports are served at; none where node ports are switched off.
    pub(super) fn addresses(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        self.host.iter().copied().filter(move |ip| Family::of(*ip) == family)
    }

    /// What the gateway router sends to instead of `ip`: its own host has the same address as the router itself.
    pub(super) fn through_router(&self, ip: IpAddr) -> IpAddr {
        let own = self.gateway.contains(&ip);
        let host = own.then(|| self.settings.masqueraded(Family::of(ip), HOST)).flatten();
        host.unwrap_or(ip)
    }

    /// Where the host sends traffic for a node port that has to stay on the node.
    pub(super) fn kept(&self, family: Family) -> Option<IpAddr> {
        self.settings.masqueraded(family, KEPT)
    }

    /// Whether an endpoint is on a host's network rather than the cluster's.
    pub(super) fn is_outside(&self, ip: IpAddr) -> bool {
        !self.settings.cluster_cidrs.iter().any(|net| net.contains(&ip))
    }
}
