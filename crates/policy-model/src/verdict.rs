//! The question and the answer.

use std::fmt;

use crate::admin::{self, Tier};
use crate::cluster::{Cluster, End, Pod, Protocol, Traffic};
use crate::network_policy;

/// Whether a connection passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What is said where it leaves its source.
    pub egress: Decision,
    /// What is said where it reaches its destination.
    pub ingress: Decision,
}

/// What one end says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it passes here.
    pub allowed: bool,
    /// Who says so.
    pub why: Why,
}

/// Who decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Policies are about pods with an address of their own; this end is none.
    NoPod,
    /// A pod always reaches itself.
    Itself,
    /// A pod's own node always reaches it.
    OwnNode,
    /// No policy says anything.
    Default,
    /// These policies isolate the pod and no rule of theirs allows the connection.
    Isolated(Vec<PolicyName>),
    /// These rules; several only where they all allow.
    Rules(Vec<Rule>),
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyName {
    /// Kind.
    pub kind: &'static str,
    /// Namespace; empty for kinds without.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// The policy.
    pub policy: PolicyName,
    /// Which of its two lists.
    pub direction: Direction,
    /// Place in the list, from 0.
    pub index: usize,
}

/// Which way a rule looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To the subject.
    Ingress,
    /// From the subject.
    Egress,
}

/// What one end's policies are asked.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) direction: Direction,
    /// The pod whose policies are asked.
    pub(crate) subject: &'a Pod,
    /// The other end.
    pub(crate) peer: End<'a>,
    /// The end whose port is meant: the subject for ingress, the peer for egress.
    pub(crate) destination: End<'a>,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

/// Whether `traffic` passes in `cluster`; none if it cannot exist: an end is gone, or has no address of the family.
pub fn verdict(cluster: &Cluster, traffic: &Traffic) -> Option<Verdict> {
    let from = cluster.source(&traffic.from, traffic.v6)?;
    let to = cluster.destination(&traffic.to, traffic.v6)?;
    let decide = |direction, subject: Option<&Pod>, peer| {
        if let (Some(from), Some(to)) = (from.pod, to.pod)
            && (&from.namespace, &from.name) == (&to.namespace, &to.name)
        {
            return Decision { allowed: true, why: Why::Itself };
        }
        let Some(subject) = subject else { return Decision { allowed: true, why: Why::NoPod } };
        if direction == Direction::Ingress && from.node == Some(subject.node.as_str()) {
            return Decision { allowed: true, why: Why::OwnNode };
        }
        let (protocol, port) = (traffic.protocol, traffic.port);
        let question = Question { direction, subject, peer, destination: to, protocol, port };
        let tier = |tier| admin::decide(cluster, tier, &question);
        tier(Tier::Admin)
            .or_else(|| network_policy::decide(cluster, &question))
            .or_else(|| tier(Tier::Baseline))
            .unwrap_or(Decision { allowed: true, why: Why::Default })
    };
    let egress = decide(Direction::Egress, from.pod, to);
    let ingress = decide(Direction::Ingress, to.pod, from);
    Some(Verdict { egress, ingress })
}

impl Verdict {
    /// Whether the connection comes about.
    pub fn allowed(&self) -> bool {
        self.egress.allowed && self.ingress.allowed
    }
}

impl Direction {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Direction::Ingress => "Ingress",
            Direction::Egress => "Egress",
        }
    }

    /// The list of rules in a policy's spec.
    pub(crate) fn member(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }

    /// The list of peers in a rule.
    pub(crate) fn peers(self) -> &'static str {
        match self {
            Direction::Ingress => "from",
            Direction::Egress => "to",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "egress {}, ingress {}", self.egress, self.ingress)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.allowed { "allowed" } else { "denied" };
        write!(f, "{word} by {:?}", self.why)
    }
}
