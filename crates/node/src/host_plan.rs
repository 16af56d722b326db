//! How one interface of the host, and the rules that go with it, must be; what differs; and the changes that mend it.
//!
//! ```text
//!  mgmt_port::desired ─┐                       observe
//!                      ├─▶ HostPlan ──changes(Observed)──▶ [Change] ──▶ apply
//!  gateway::desired ───┘
//! ```
//! The management port belongs to the agent as a whole; of the gateway bridge, which carries the node's own network, only
//! the masquerade addresses and what leads to them. A plan that wants nothing takes away what is ours.

mod apply;
mod changes;
mod observe;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use net::Mac;

pub use self::apply::Failures;
pub(crate) use self::apply::{carry_out, gone};
use crate::addresses::is_usable;

/// The main routing table.
pub const MAIN_TABLE: u32 = 254;

/// An address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Address and prefix length.
    pub net: IpNet,
    /// Never a source address unless a route says so.
    pub deprecated: bool,
}

/// A route through the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Routing table.
    pub table: u32,
    /// Destination.
    pub dst: IpNet,
    /// Next hop; `None` = on-link.
    pub gateway: Option<IpAddr>,
    /// Source address.
    pub src: Option<IpAddr>,
    /// MTU of the path; `None` = the interface's.
    pub mtu: Option<u32>,
    /// Metric; `None` = the kernel's default of the family.
    pub metric: Option<u32>,
}

/// A permanent neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// Its address.
    pub ip: IpAddr,
    /// Its MAC.
    pub mac: Mac,
}

/// A rule that sends marked packets to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// IPv6 rule.
    pub v6: bool,
    /// Priority and mark.
    pub kind: RuleKind,
    /// Routing table.
    pub table: u32,
}

/// What tells our rules from others'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleKind {
    /// Priority.
    pub priority: u32,
    /// Firewall mark, all bits compared.
    pub mark: u32,
}

/// A kernel setting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sysctl {
    /// Key, dots between the parts, interface names as they are.
    pub key: Vec<String>,
    /// Value.
    pub value: String,
    /// Older kernels do not have it, and forward IPv6 everywhere or nowhere.
    pub newer: bool,
}

/// What of an interface is ours, so that it goes when it is not wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ours {
    /// Everything: nobody else has any business there.
    Everything,
    /// These addresses, their neighbour entries, and routes to them or over them.
    Addresses(Vec<IpAddr>),
}

/// How an interface must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlan {
    /// The interface.
    pub device: String,
    /// What of it is ours.
    pub ours: Ours,
    /// Addresses, IPv4 first.
    pub addresses: Vec<Address>,
    /// Routes.
    pub routes: Vec<Route>,
    /// Permanent neighbours.
    pub neighbours: Vec<Neighbour>,
    /// Rules.
    pub rules: Vec<Rule>,
    /// The rules that are ours, wanted or not.
    pub rule_kinds: Vec<RuleKind>,
    /// Kernel settings.
    pub sysctls: Vec<Sysctl>,
    /// The userspace datapath computes no checksums for packets that leave the node, so the kernel must.
    pub tx_checksum_off: bool,
}

/// How it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// The interface's index; none while there is no such interface.
    pub index: Option<u32>,
    /// The interface is administratively up.
    pub up: bool,
    /// Addresses on it, link-local ones included.
    pub addresses: Vec<Address>,
    /// Unicast routes through it.
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
    /// Remove an address.
    RemoveAddress(IpNet),
    /// Add or correct an address.
    AddAddress(Address),
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

/// Whether the kernel can forward IPv6 on single interfaces.
pub(crate) fn forwards_single_v6() -> bool {
    host::sysctl::get(&["net", "ipv6", "conf", "all", "force_forwarding"]).is_ok()
}

// === impl Sysctl ===

impl Sysctl {
    pub(crate) fn new(key: &[&str], value: &str) -> Self {
        Sysctl { key: key.iter().map(|&k| k.to_owned()).collect(), value: value.to_owned(), newer: false }
    }

    /// Lets an interface forward packets of the family.
    pub(crate) fn forwarding(v6: bool, device: &str) -> Self {
        match v6 {
            false => Sysctl::new(&["net", "ipv4", "conf", device, "forwarding"], "1"),
            true => Sysctl {
                newer: true,
                ..Sysctl::new(&["net", "ipv6", "conf", device, "force_forwarding"], "1")
            },
        }
    }

    /// What stands in where the kernel cannot forward IPv6 on single interfaces.
    pub(crate) fn global_v6_forwarding() -> Self {
        Sysctl::new(&["net", "ipv6", "conf", "all", "forwarding"], "1")
    }

    /// The key as `sysctl` prints it.
    pub fn name(&self) -> String {
        self.key.join(".")
    }
}

// === impl Ours ===

impl Ours {
    fn address(&self, ip: IpAddr) -> bool {
        match self {
            Ours::Everything => is_usable(ip),
            Ours::Addresses(ours) => ours.contains(&ip),
        }
    }

    fn neighbour(&self, ip: IpAddr) -> bool {
        match self {
            Ours::Everything => true,
            Ours::Addresses(ours) => ours.contains(&ip),
        }
    }

    fn route(&self, route: &Route) -> bool {
        match self {
            Ours::Everything => route.gateway.is_some(),
            Ours::Addresses(ours) => {
                let single = route.dst.prefix_len() == route.dst.max_prefix_len();
                route.gateway.is_some_and(|gateway| ours.contains(&gateway))
                    || (single && ours.contains(&route.dst.addr()))
            }
        }
    }
}

// === impl HostPlan ===

impl HostPlan {
    /// A plan that wants nothing: what is ours goes.
    pub fn nothing(device: &str, ours: Ours, rule_kind: RuleKind) -> HostPlan {
        HostPlan {
            device: device.to_owned(),
            ours,
            addresses: Vec::new(),
            routes: Vec::new(),
            neighbours: Vec::new(),
            rules: Vec::new(),
            rule_kinds: vec![rule_kind],
            sysctls: Vec::new(),
            tx_checksum_off: false,
        }
    }

    /// The changes that lead from `observed` to this, in an order the kernel accepts; empty when there is nothing to do.
    pub fn changes(&self, observed: &Observed) -> Vec<Change> {
        changes::changes(self, observed)
    }
}
