//! The node's way out of the cluster: what the host, its firewall and the gateway bridge must look like.
//!
//! ```text
//!  uplink, settings, ofports ──▶ Bridge ──▶ flows ──▶ one bundle of ovs-ofctl, only what differs
//!                                  ├──────▶ host  ──▶ addresses, routes, neighbours, rules, sysctls
//!  management port, remote nodes ──┴──────▶ nft   ──▶ one transaction of nft, our table only
//! ```
//! The first part of every arrow is pure. Flows are told apart by their cookies, firewall rules by their table; nothing
//! else is touched. Programs are started only when something is to be changed, or after a start of ours or of
//! ovs-vswitchd, to find out whether.

pub(crate) mod apply;
pub(crate) mod fdb;
pub mod flows;
mod guard;
pub mod host;
pub mod nft;
pub(crate) mod nft_text;
pub(crate) mod ofctl;
pub(crate) mod service_flows;
pub mod takeover;

use std::net::IpAddr;

use ipnet::IpNet;
use kapi::annotations::GatewayMode;
use net::{Dual, Family, Mac, nth_address};

pub use self::flows::Flow;
use crate::settings::Settings;
use crate::uplink::Uplink;

/// The gateway bridge as far as flows and host state follow from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// Its name, which is also that of its interface on the host.
    pub name: String,
    /// Its MAC, which the gateway router shares.
    pub mac: Mac,
    /// The node's address of each family the cluster uses.
    pub node: Dual<IpNet>,
    /// Its MTU-relevant datapath: whether packets are switched in userspace.
    pub userspace: bool,
}

impl Bridge {
    /// The bridge behind the uplink; none while there is no bridge, or no address on it, or gateways are switched off.
    pub fn of(settings: &Settings, uplink: &Uplink, userspace: bool) -> Option<Bridge> {
        if settings.gateway.mode == GatewayMode::Disabled || !uplink.is_bridge || uplink.addresses.is_empty()
        {
            return None;
        }
        Some(Bridge { name: uplink.device.clone(), mac: uplink.mac?, node: uplink.addresses, userspace })
    }
}

/// The OpenFlow ports of the bridge that flows name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// The network card; none on a bridge that has no way out.
    pub uplink: Option<u16>,
    /// The patch port to the integration bridge.
    pub patch: u16,
}

/// Addresses of one family that exist on every node and never leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masquerade {
    /// OVN's side.
    pub ovn: IpAddr,
    /// The host's side, with the range's prefix length.
    pub host: IpNet,
    /// Where OVN offers node ports with local endpoints only.
    pub local_only: IpAddr,
    /// A next hop that nobody has.
    pub dummy: IpAddr,
}

impl Masquerade {
    /// The addresses of a family.
    pub fn of(settings: &Settings, family: Family) -> Option<Masquerade> {
        let range: IpNet = match family {
            Family::V4 => settings.gateway.masquerade_v4.into(),
            Family::V6 => settings.gateway.masquerade_v6.into(),
        };
        Some(Masquerade {
            ovn: nth_address(&range, 1)?,
            host: IpNet::new(nth_address(&range, 2)?, range.prefix_len()).ok()?,
            local_only: nth_address(&range, 3)?,
            dummy: nth_address(&range, 4)?,
        })
    }
}

/// The families in which the node is a gateway, with its address and the masquerade addresses.
pub(crate) fn families(
    settings: &Settings,
    bridge: &Bridge,
) -> impl Iterator<Item = (Family, IpNet, Masquerade)> {
    let nodes = [(Family::V4, bridge.node.v4), (Family::V6, bridge.node.v6)];
    nodes
        .into_iter()
        .filter_map(|(family, node)| Some((family, node?, Masquerade::of(settings, family)?)))
        .collect::<Vec<_>>()
        .into_iter()
}
