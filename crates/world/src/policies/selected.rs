//! A selection in use, with its members.

use std::collections::{BTreeMap, BTreeSet};

use policy::{Direction, Namespaces, Peer, Peers, Policy, PolicyId, PortNumbers, Ports, Rule, Selection};

use super::RuleKey;
use super::named::{Counts, PortName};

/// A pod by its place in the table.
pub(super) type PodId = u32;
/// A selection by its place in the table.
pub(super) type SelectedId = u32;

/// Who asks for a selection, and so hears of changes of its members.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum User {
    /// A policy that is for these pods.
    Subject(PolicyId),
    /// The address set of the selection, shared by all rules of NetworkPolicies that name it.
    PeerSet,
    /// A rule of an administrator's policy, with an address set of its own.
    Rule(RuleKey),
    /// A policy with a rule that names a port of these pods.
    Port(PolicyId, PortName),
}

/// A selection in use.
#[derive(Debug)]
pub(super) struct Selected {
    /// What is selected.
    pub(super) selection: Selection,
    /// The pods selected.
    pub(super) members: BTreeSet<PodId>,
    /// Who uses it, and how often.
    pub(super) users: BTreeMap<User, usize>,
    /// What the port names asked for stand for.
    pub(super) ports: BTreeMap<PortName, Counts>,
}

/// Everything a policy asks for, with repetitions.
pub(super) fn uses(policy: &Policy) -> Vec<(Selection, User)> {
    let mut uses = vec![(policy.subject.clone(), User::Subject(policy.id.clone()))];
    for rule in &policy.rules {
        for selection in selections(rule) {
            let user = match policy.id.kind {
                policy::Kind::NetworkPolicy => User::PeerSet,
                _ => User::Rule(key(policy, rule)),
            };
            uses.push((selection.clone(), user));
        }
        for (selection, port) in port_uses(policy, rule) {
            uses.push((selection, User::Port(policy.id.clone(), port)));
        }
    }
    uses
}

/// The key of a policy's rule.
pub(super) fn key(policy: &Policy, rule: &Rule) -> RuleKey {
    RuleKey { policy: policy.id.clone(), direction: rule.direction, index: rule.index }
}

/// The selections of pods among a rule's peers.
fn selections(rule: &Rule) -> impl Iterator<Item = &Selection> {
    let peers = match &rule.peers {
        Peers::Any => [].iter(),
        Peers::Of(peers) => peers.iter(),
    };
    peers.filter_map(|peer| match peer {
        Peer::Pods(selection) => Some(selection),
        _ => None,
    })
}

/// The pods a rule's traffic can go to, as far as names of ports have a meaning there: the policy's own pods for
/// ingress, the peers for egress, and all pods where peers are not given as pods.
pub(super) fn destinations(policy: &Policy, rule: &Rule) -> Vec<Selection> {
    let all = || Selection {
        namespaces: Namespaces::Labelled(Default::default()),
        pods: Some(Default::default()),
        host_pods: true,
        nodes: false,
    };
    match (rule.direction, &rule.peers) {
        (Direction::Ingress, _) => vec![policy.subject.clone()],
        (Direction::Egress, Peers::Of(peers)) if peers.iter().all(|peer| matches!(peer, Peer::Pods(_))) => {
            let mut selections: Vec<Selection> =
                selections(rule).map(|selection| Selection { nodes: false, ..selection.clone() }).collect();
            selections.sort();
            selections.dedup();
            selections
        }
        (Direction::Egress, _) => vec![all()],
    }
}

fn port_uses(policy: &Policy, rule: &Rule) -> Vec<(Selection, PortName)> {
    let Ports::Of(ports) = &rule.ports else { return Vec::new() };
    let names = ports.iter().filter_map(|port| match &port.numbers {
        PortNumbers::Named(name) => Some(PortName { protocol: port.protocol, name: name.clone() }),
        _ => None,
    });
    let names: BTreeSet<PortName> = names.collect();
    if names.is_empty() {
        return Vec::new();
    }
    let destinations = destinations(policy, rule);
    let each =
        names.iter().flat_map(|name| destinations.iter().map(move |pods| (pods.clone(), name.clone())));
    each.collect()
}
