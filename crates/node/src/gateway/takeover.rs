//! Makes a network card the uplink of a new bridge `br<card>`: the node's addresses and routes move to the bridge.
//!
//! ```text
//!  save ─▶ bridge up, addresses on both ─▶ card into the bridge ─▶ routes ─▶ addresses off the card ─▶ forget
//! ```
//! What is to be moved is first written into the bridge's row, in the transaction that makes the bridge. Every later step
//! follows from what is saved and what there is, so whoever starts after a crash goes on where the last one ended. At
//! each step the node can be reached: the card's addresses go only when the bridge has them and the card is its port.
//! Addresses that appear on the card later, because a DHCP client renews them there or the machine was started anew, move
//! likewise and last as long as whoever gave them says.

mod apply;
mod plan;

use std::net::IpAddr;

use ipnet::IpNet;
use net::Mac;
use serde::{Deserialize, Serialize};

pub(crate) use self::apply::taken_cards;
pub use self::apply::{apply, observe, observe_undo, take_back};
pub use self::plan::{Next, next, undo};

/// Key of the bridge's `external_ids` that holds what is being moved.
pub const SAVED: &str = "ovnkube-takeover";
/// Length limit of interface names.
const NAME_MAX: usize = 15;

/// The bridge made for a network card; none if that name would be too long.
pub fn bridge_name(card: &str) -> Option<String> {
    let name = format!("br{card}");
    (name.len() <= NAME_MAX).then_some(name)
}

/// An address that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Address and prefix length.
    pub net: IpNet,
    /// Seconds until it expires, as a DHCP client or a router said; none is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<u32>,
    /// Seconds until it is no source address any more; none is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<u32>,
    /// The route to its prefix is somebody's own, and moves as such.
    #[serde(default)]
    pub noprefixroute: bool,
}

impl Address {
    /// Whether it will be there longer.
    fn outlives(&self, other: &Address) -> bool {
        let until = |address: &Address| address.valid.unwrap_or(u32::MAX);
        until(self) > until(other)
    }
}

/// One of several ways of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// Next hop; none is on-link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Another interface, which it keeps; none is the one that moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    /// Weight among them, 1 and up.
    pub weight: u16,
}

/// A route that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination.
    pub dst: IpNet,
    /// Next hop; none is on-link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Several ways; empty for the usual single one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<Hop>,
    /// Source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<IpAddr>,
    /// Metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// MTU of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Routing table.
    pub table: u32,
    /// Who installed it.
    pub proto: u8,
    /// The next hop needs no prefix that covers it.
    #[serde(default)]
    pub onlink: bool,
}

impl Route {
    /// Whether the kernel keeps only one of the two.
    fn same_place(&self, other: &Route) -> bool {
        (self.dst, self.table, self.metric) == (other.dst, other.table, other.metric)
    }

    /// Whether packets go the same way.
    fn same_way(&self, other: &Route) -> bool {
        self.same_place(other)
            && (self.gateway, self.src, self.mtu, &self.hops)
                == (other.gateway, other.src, other.mtu, &other.hops)
    }
}

/// What moves from a network card to its bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The card.
    pub card: String,
    /// Its MAC, which the bridge takes over.
    pub mac: Mac,
    /// Addresses in their order.
    pub addresses: Vec<Address>,
    /// Routes, on-link ones first.
    pub routes: Vec<Route>,
    /// Permanent neighbours.
    pub neighbours: Vec<(IpAddr, Mac)>,
}

/// An interface as far as moving needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Index.
    pub index: u32,
    /// Administratively up.
    pub up: bool,
    /// Its addresses that other hosts can use.
    pub addresses: Vec<Address>,
    /// Unicast routes through it that somebody installed.
    pub routes: Vec<Route>,
    /// Permanent neighbours on it.
    pub neighbours: Vec<(IpAddr, Mac)>,
}

impl Device {
    fn address(&self, net: &IpNet) -> Option<&Address> {
        self.addresses.iter().find(|address| address.net == *net)
    }
}

/// The bridge's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeRow {
    /// The card is one of its ports.
    pub has_card: bool,
    /// The switch has taken the card.
    pub card_attached: bool,
    /// What is being moved.
    pub saved: Option<Saved>,
}

/// Everything there is to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Name of the card.
    pub card_name: String,
    /// Its MAC.
    pub mac: Mac,
    /// The card.
    pub card: Device,
    /// The bridge's row, if there is one.
    pub row: Option<BridgeRow>,
    /// The bridge's interface, if there is one.
    pub bridge: Option<Device>,
}

/// One of the two interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The network card.
    Card,
    /// The bridge.
    Bridge,
}

/// One thing to do; a crash before or after it is made up for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write down what moves; makes the bridge where there is none.
    Save(Saved),
    /// Set an interface up.
    Up(Side),
    /// Add an address, or let it last longer.
    AddAddress(Side, Address),
    /// Add a permanent neighbour.
    AddNeighbour(Side, IpAddr, Mac),
    /// Make the card a port of the bridge.
    Attach,
    /// Let a route lead through this interface; takes it off the other one.
    MoveRoute(Side, Route),
    /// Remove a route that was left behind.
    RemoveRoute(Side, Route),
    /// Remove an address.
    RemoveAddress(Side, IpNet),
    /// Remove a permanent neighbour.
    RemoveNeighbour(Side, IpAddr),
    /// Everything has moved.
    Forget,
    /// Remove the bridge.
    RemoveBridge,
}
