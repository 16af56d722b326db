//! What a pod on the cluster network is told: addresses, gateways and routes of its annotation.

use std::net::IpAddr;

use kapi::annotations::{PodNetwork, PodRoute, Role};
use net::{Dual, Family, IpNet, Mac, nth_address};

use crate::settings::Settings;

/// The attachment of a pod that got `ips` out of the node's `subnets`. Routes lead to the cluster's pods, to
/// Services, to the hairpin address and to the join network, each through `.1` of the node subnet.
pub fn attachment(settings: &Settings, subnets: &Dual<IpNet>, ips: &Dual<IpAddr>) -> Option<PodNetwork> {
    let mac = Mac::from_ip(*ips.first()?);
    let mut network = PodNetwork {
        ips: Vec::new(),
        mac,
        gateways: Vec::new(),
        routes: Vec::new(),
        tunnel_id: 0,
        role: Some(Role::Primary),
    };
    for (family, ip) in ips.families() {
        let subnet = subnets.get(family)?;
        network.ips.push(IpNet::new(*ip, subnet.prefix_len()).ok()?);
        let gateway = nth_address(subnet, 1)?;
        network.gateways.push(gateway);
        let of_family = |net: &&IpNet| Family::of_net(net) == family;
        let mut dests: Vec<IpNet> = settings.cluster_cidrs.iter().filter(of_family).copied().collect();
        dests.extend(settings.service_cidrs.iter().filter(of_family));
        dests.extend(settings.hairpin().get(family).map(|ip| IpNet::from(*ip)));
        dests.extend(settings.join.get(family).map(IpNet::trunc));
        network.routes.extend(dests.into_iter().map(|dest| PodRoute { dest, next_hop: Some(gateway) }));
    }
    Some(network)
}

/// Addresses of a node subnet that are never given to pods: `.1` is the router, `.2` the management port, `.3`
/// the hybrid overlay's gateway where that is on.
pub fn reserved(settings: &Settings, subnet: &IpNet) -> impl Iterator<Item = IpAddr> {
    let last = if settings.hybrid_overlay { 3 } else { 2 };
    let subnet = *subnet;
    (1..=last).filter_map(move |offset| nth_address(&subnet, offset))
}
