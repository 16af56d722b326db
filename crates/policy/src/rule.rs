//! Rules and their peers.

use std::net::IpAddr;

use kapi::LabelSelector;
use net::IpNet;

use crate::{Ports, Selection};

/// Which way traffic goes, seen from the pods a policy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To the pods.
    Ingress,
    /// From the pods.
    Egress,
}

impl Direction {
    /// Both, ingress first.
    pub const ALL: [Direction; 2] = [Direction::Ingress, Direction::Egress];

    /// `Ingress` or `Egress`.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Ingress => "Ingress",
            Direction::Egress => "Egress",
        }
    }
}

/// What becomes of traffic a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It may pass, and what answers it.
    Allow,
    /// It is dropped.
    Deny,
    /// The next tier decides.
    Pass,
}

/// One rule: traffic of `direction` whose other end is one of `peers` at one of `ports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The direction.
    pub direction: Direction,
    /// Place in the policy's list of rules of this direction, from 0.
    pub index: usize,
    /// What people call it; often nothing.
    pub name: String,
    /// What becomes of the traffic.
    pub action: Action,
    /// The other end.
    pub peers: Peers,
    /// Destination ports.
    pub ports: Ports,
}

/// The other ends a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peers {
    /// Everything, inside and outside of the cluster.
    Any,
    /// Any of these; an empty list matches nothing.
    Of(Vec<Peer>),
}

/// One kind of other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// Pods.
    Pods(Selection),
    /// A range of addresses, perhaps with parts left out.
    Block(Block),
    /// The addresses of nodes with these labels.
    Nodes(LabelSelector),
}

/// A range of addresses without some parts of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// The range, without host bits.
    pub range: IpNet,
    /// What of it is left out, without host bits.
    pub except: Vec<IpNet>,
}

impl Block {
    /// Whether the address is in the range and in none of the parts left out.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.range.contains(&ip) && !self.except.iter().any(|part| part.contains(&ip))
    }
}
