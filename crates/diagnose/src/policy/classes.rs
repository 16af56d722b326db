//! Parties that policies cannot tell apart, so that one of them can be asked for all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kapi::PodKey;
use net::{Family, IpNet};
use policy::{Block, Peer, Peers, Policy, Selection};

use super::cluster::{Cluster, PodView};
use super::party::Party;

/// Parties that are treated alike.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    /// One of them.
    pub(crate) example: Party,
    /// Another one.
    pub(crate) second: Option<Party>,
    /// All of them in words.
    pub(crate) names: Vec<String>,
    pub(crate) is_pods: bool,
}

/// What the policies of some clusters look at.
struct Eyes<'a> {
    selections: BTreeSet<&'a Selection>,
    blocks: BTreeSet<&'a Block>,
}

impl<'a> Eyes<'a> {
    fn of(clusters: &[&'a Cluster]) -> Eyes<'a> {
        let mut eyes = Eyes { selections: BTreeSet::new(), blocks: BTreeSet::new() };
        for policy in clusters.iter().flat_map(|cluster| cluster.policies.values()) {
            eyes.selections.insert(&policy.subject);
            for peer in peers(policy) {
                match peer {
                    Peer::Pods(selection) => drop(eyes.selections.insert(selection)),
                    Peer::Block(block) => drop(eyes.blocks.insert(block)),
                    Peer::Nodes(_) => {}
                }
            }
        }
        eyes
    }

    /// What the policies see of a pod.
    fn look(&self, clusters: &[&Cluster], key: &PodKey) -> Option<Vec<u8>> {
        let mut seen = Vec::new();
        for cluster in clusters {
            let pod = cluster.pods.get(key)?;
            let selected = |selection: &&Selection| {
                cluster.selects_namespace(selection, &key.namespace) && selection.matches_labels(&pod.labels)
            };
            seen.extend(self.selections.iter().map(|selection| u8::from(selected(selection))));
            for family in [Family::V4, Family::V6] {
                let ip = pod.addresses.iter().find(|ip| Family::of(**ip) == family);
                seen.push(u8::from(ip.is_some()));
                seen.extend(
                    self.blocks.iter().map(|block| u8::from(ip.is_some_and(|ip| block.contains(*ip)))),
                );
            }
            for port in &pod.ports {
                seen.extend(port.name.bytes());
                seen.push(b'/');
                seen.extend(port.protocol.bytes());
                seen.extend(port.port.to_be_bytes());
            }
            // Policies of its own namespace isolate it.
            seen.extend(key.namespace.bytes());
        }
        Some(seen)
    }
}

fn peers(policy: &Policy) -> impl Iterator<Item = &Peer> {
    policy.rules.iter().flat_map(|rule| match &rule.peers {
        Peers::Any => &[][..],
        Peers::Of(peers) => peers,
    })
}

/// Pods of all clusters with a network of their own, classed by what the policies see of them; then nodes, then the
/// outside by the ranges that policies name.
pub(crate) fn classes(clusters: &[&Cluster]) -> Vec<Class> {
    let eyes = Eyes::of(clusters);
    let Some(last) = clusters.last() else { return Vec::new() };
    let mut by_look: BTreeMap<Vec<u8>, Vec<&PodKey>> = BTreeMap::new();
    let lives =
        |key: &PodKey| clusters.iter().all(|cluster| cluster.pods.get(key).is_some_and(PodView::is_policed));
    for key in last.pods.keys().filter(|key| lives(key)) {
        if let Some(look) = eyes.look(clusters, key) {
            by_look.entry(look).or_default().push(key);
        }
    }
    let mut classes: Vec<Class> = by_look
        .into_values()
        .map(|keys| Class {
            example: Party::Pod(keys[0].clone()),
            second: keys.get(1).map(|key| Party::Pod((*key).clone())),
            names: keys.iter().map(ToString::to_string).collect(),
            is_pods: true,
        })
        .collect();
    classes.sort_by(|a, b| a.names.cmp(&b.names));
    classes.extend(last.nodes.keys().map(|name| Class {
        example: Party::Node(name.clone()),
        second: None,
        names: vec![format!("node/{name}")],
        is_pods: false,
    }));
    classes.extend(outside(&eyes).into_iter().map(|(range, ip)| Class {
        example: Party::Address(ip),
        second: None,
        names: vec![format!("outside {range}")],
        is_pods: false,
    }));
    classes
}

/// Ranges that policies name and everything else, each with an address that is in no smaller one and no pod's.
fn outside(eyes: &Eyes<'_>) -> Vec<(IpNet, IpAddr)> {
    let everywhere = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|range| range.parse().ok());
    let named = eyes.blocks.iter().flat_map(|block| block.except.iter().chain([&block.range]).copied());
    let ranges: BTreeSet<IpNet> = everywhere.chain(named).collect();
    ranges.iter().filter_map(|range| Some((*range, address_of(*range, &ranges)?))).collect()
}

/// An address of `range` that none of `ranges` inside of it holds.
fn address_of(range: IpNet, ranges: &BTreeSet<IpNet>) -> Option<IpAddr> {
    let inside: Vec<&IpNet> =
        ranges.iter().filter(|other| **other != range && range.contains(*other)).collect();
    // Behind the end of one of them, or at the beginning of all.
    let behind = inside.iter().filter_map(|other| next(other.broadcast()));
    let mut candidates = behind.chain([range.network()]);
    candidates.find(|ip| range.contains(ip) && !inside.iter().any(|other| other.contains(ip)))
}

fn next(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).checked_add(1).map(|next| IpAddr::V4(next.into())),
        IpAddr::V6(ip) => u128::from(ip).checked_add(1).map(|next| IpAddr::V6(next.into())),
    }
}

impl Class {
    /// Families in which the class can be asked.
    pub(crate) fn families(&self, cluster: &Cluster) -> Vec<Option<Family>> {
        let of = |list: &[IpAddr]| -> Vec<Option<Family>> {
            let families: BTreeSet<Family> = list.iter().map(|ip| Family::of(*ip)).collect();
            families.into_iter().map(Some).collect()
        };
        match &self.example {
            Party::Address(ip) => of(&[*ip]),
            Party::Node(name) => cluster.nodes.get(name).map(|node| of(&node.addresses)).unwrap_or_default(),
            Party::Pod(key) => cluster.pods.get(key).map(|pod| of(&pod.addresses)).unwrap_or_default(),
        }
    }
}
