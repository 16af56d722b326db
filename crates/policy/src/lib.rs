//! Network policies of all kinds in one form.
//!
//! NetworkPolicy, AdminNetworkPolicy, BaselineAdminNetworkPolicy and ClusterNetworkPolicy say the same things in
//! different words: which pods, and in order which traffic of theirs is allowed, denied or left to the next tier.
//! [`Policy`] is that form; defaults are filled in, addresses and ports are parsed. Pure: reading and matching only.
//!
//! What cannot be read fails like this, and is named in [`Policy::problems`]:
//!
//! - A value (address range, port, selector) that means nothing matches nothing. The rest of the rule, the other
//!   rules and the isolation of the pods stay: a NetworkPolicy with a bad rule allows less, never more.
//! - A peer or port of an unknown kind in an administrator's policy fails closed as its API asks: an Allow rule
//!   matches nothing then, a Deny or Pass rule becomes "deny all".
//! - A subject that means nothing selects no pods: the policy has no effect.

mod admin;
mod cidr;
mod id;
mod logging;
mod network;
mod ports;
mod rule;
mod selection;

pub use id::{Kind, PolicyId};
pub use logging::{ACL_LOGGING, Logging, Severity};
pub use ports::{Port, PortNumbers, Ports, Protocol};
pub use rule::{Action, Block, Direction, Peer, Peers, Rule};
pub use selection::{Namespaces, Selection};

use kapi::Meta;

/// Annotation of a NetworkPolicy whose connections are not tracked (`"true"`).
pub const ACL_STATELESS: &str = "k8s.ovn.org/acl-stateless";

/// The order in which policies are asked; the first tier that decides wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Administrators' policies.
    Admin,
    /// NetworkPolicies.
    Network,
    /// What holds when nothing else decides.
    Baseline,
}

/// Which directions something is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Directions {
    /// Traffic to the pods.
    pub ingress: bool,
    /// Traffic from the pods.
    pub egress: bool,
}

impl Directions {
    /// Whether `direction` is among them.
    pub fn contains(self, direction: Direction) -> bool {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }
}

/// One policy object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Which object.
    pub id: PolicyId,
    /// UID of the object.
    pub uid: String,
    /// Generation of the object the form was made of.
    pub generation: Option<i64>,
    /// When it is asked.
    pub tier: Tier,
    /// Within its tier the lower number is asked first; 0 for NetworkPolicies, which have no order.
    pub priority: u32,
    /// The pods it is for; never pods on the host's network.
    pub subject: Selection,
    /// Directions in which traffic of the pods is denied unless a rule allows it (NetworkPolicies only).
    pub isolates: Directions,
    /// Ingress rules in order, then egress rules in order.
    pub rules: Vec<Rule>,
    /// Whether its annotation asks for rules without connection tracking.
    pub stateless: bool,
    /// What to log, by the policy's own annotation; a NetworkPolicy goes by its namespace's.
    pub logging: Logging,
    /// What of the object cannot be used, in words.
    pub problems: Vec<String>,
}

impl Policy {
    fn empty(kind: Kind, meta: &Meta, tier: Tier, subject: Selection) -> Policy {
        Policy {
            id: PolicyId { kind, namespace: meta.namespace.clone(), name: meta.name.clone() },
            uid: meta.uid.clone(),
            generation: meta.generation,
            tier,
            priority: 0,
            subject,
            isolates: Directions::default(),
            rules: Vec::new(),
            stateless: false,
            logging: Logging::default(),
            problems: Vec::new(),
        }
    }

    /// The rules of one direction, in order.
    pub fn rules_of(&self, direction: Direction) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.direction == direction)
    }
}
