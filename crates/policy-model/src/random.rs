//! Random clusters with random policies, from a seed: small, and full of what is easily got wrong.

mod objects;
mod policies;
mod selectors;

use serde_json::Value;

use crate::cluster::{Cluster, Party, Protocol, Traffic};

/// How large the clusters are.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Nodes.
    pub nodes: usize,
    /// Pods, at most.
    pub pods: usize,
    /// Policies of each kind, at most.
    pub policies: usize,
    /// Whether pods have IPv6 addresses as well.
    pub dual: bool,
}

impl Shape {
    /// Two nodes, a dozen pods.
    pub const SMALL: Shape = Shape { nodes: 2, pods: 12, policies: 4, dual: true };
}

/// A sequence of numbers that looks random and is the same for the same seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number below `bound`; 0 if there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % bound.max(1) as u64).unwrap_or(0)
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }
}

/// The objects of a random cluster: nodes, namespaces, pods and policies of all kinds.
pub fn cluster(seed: u64, shape: Shape) -> Vec<Value> {
    let mut dice = Dice::new(seed);
    let mut objects = objects::objects(&mut dice, shape);
    let policies = policies::policies(&mut dice, shape, &objects);
    objects.extend(policies);
    objects
}

/// Random policies of all kinds for objects that exist.
pub fn policies(dice: &mut Dice, shape: Shape, objects: &[Value]) -> Vec<Value> {
    policies::policies(dice, shape, objects)
}

/// Random labels as the selectors of random policies look at them: of a namespace, or of a pod.
pub fn labels(dice: &mut Dice, of_namespace: bool) -> Value {
    objects::labels(dice, if of_namespace { &["team", "env"] } else { &objects::KEYS })
}

/// Ports that connections are tried on: those the policies name, their neighbours, and others.
pub const PORTS: [u16; 6] = [53, 79, 80, 81, 8080, 8443];

/// Addresses outside the cluster that policies may name.
pub const OUTSIDE: [&str; 4] = ["203.0.113.7", "198.51.100.200", "2001:db8::7", "2001:db8:1::9"];

/// Every connection worth asking about: from and to every pod, node and some addresses outside, on every port.
pub fn traffic(cluster: &Cluster) -> Vec<Traffic> {
    let mut parties: Vec<Party> =
        cluster.pods.keys().map(|(namespace, name)| Party::Pod(namespace.clone(), name.clone())).collect();
    parties.extend(cluster.nodes.keys().cloned().map(Party::Node));
    parties.extend(OUTSIDE.iter().filter_map(|ip| ip.parse().ok()).map(Party::Address));
    let is_pod = |party: &Party| matches!(party, Party::Pod(..));
    let mut all = Vec::new();
    for from in &parties {
        for to in parties.iter().filter(|to| is_pod(from) || is_pod(to)) {
            for v6 in [false, true] {
                if cluster.source(from, v6).is_none() || cluster.destination(to, v6).is_none() {
                    continue;
                }
                let ask = |protocol, port| Traffic { from: from.clone(), to: to.clone(), v6, protocol, port };
                all.push(ask(Protocol::Icmp, 0));
                for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
                    all.extend(PORTS.iter().map(|port| ask(protocol, *port)));
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::verdict::{Why, verdict};

    #[test]
    fn a_seed_gives_the_same_cluster_again_and_another_one_another() {
        assert_eq!(cluster(7, Shape::SMALL), cluster(7, Shape::SMALL));
        assert_ne!(cluster(7, Shape::SMALL), cluster(8, Shape::SMALL));
    }

    /// Clusters in which nothing is ever denied, or one kind never decides, would show nothing.
    #[test]
    fn every_kind_decides_both_ways() {
        let mut seen: BTreeMap<(&str, bool), usize> = BTreeMap::new();
        for seed in 0..60 {
            let cluster = Cluster::new(&cluster(seed, Shape::SMALL));
            for traffic in traffic(&cluster).iter().step_by(11) {
                let Some(verdict) = verdict(&cluster, traffic) else { continue };
                for decision in [verdict.egress, verdict.ingress] {
                    let kind = match &decision.why {
                        Why::Rules(rules) => rules[0].policy.kind,
                        Why::Isolated(_) => "isolated",
                        Why::Default => "default",
                        Why::NoPod | Why::Itself | Why::OwnNode => "exempt",
                    };
                    *seen.entry((kind, decision.allowed)).or_default() += 1;
                }
            }
        }
        let total: usize = seen.values().sum();
        for wanted in [
            ("NetworkPolicy", true),
            ("AdminNetworkPolicy", true),
            ("AdminNetworkPolicy", false),
            ("BaselineAdminNetworkPolicy", true),
            ("BaselineAdminNetworkPolicy", false),
            ("ClusterNetworkPolicy", true),
            ("ClusterNetworkPolicy", false),
            ("isolated", false),
            ("default", true),
            ("exempt", true),
        ] {
            let count = seen.get(&wanted).copied().unwrap_or(0);
            assert!(count * 1000 > total, "{wanted:?} decides {count} of {total}: {seen:?}");
        }
    }
}
