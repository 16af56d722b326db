//! What a change opens and closes.

use std::collections::BTreeMap;

use net::Family;
use serde::Serialize;

use super::classes::{Class, classes};
use super::cluster::Cluster;
use super::decide::{Decision, PolicyName, Reason};
use super::party::family_name;
use super::ports::{PortSet, Spans};
use super::reach::{Side, allowed, decisions, families};

/// What changes between two states of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Changes, each for a group of sources and a group of destinations.
    pub changes: Vec<Change>,
    /// Pairs of a pod and a pod, node or range outside for which anything changes.
    pub pairs: usize,
    /// Pairs that were compared.
    pub compared: usize,
}

/// The same change for every source with every destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// `IPv4` or `IPv6`; none if it is the same over both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<&'static str>,
    /// Sources.
    pub from: Vec<String>,
    /// Destinations.
    pub to: Vec<String>,
    /// What passes afterwards and did not before.
    #[serde(skip_serializing_if = "PortSet::is_empty")]
    pub opened: PortSet,
    /// What passed before and does not afterwards.
    #[serde(skip_serializing_if = "PortSet::is_empty")]
    pub closed: PortSet,
    /// Policies that decide about it: those that deny it afterwards, or allow it.
    pub because: Vec<PolicyName>,
}

type Effect = (Option<&'static str>, PortSet, PortSet, Vec<PolicyName>);

/// A class's examples in one cluster over one family.
struct Faces<'a> {
    source: Option<Side<'a>>,
    destination: Option<Side<'a>>,
    /// Another one, to be the destination of connections within the class.
    second: Option<Side<'a>>,
}

/// The families a connection can be over; none where no end has an address yet.
const FAMILIES: [Option<Family>; 3] = [None, Some(Family::V4), Some(Family::V6)];

impl<'a> Faces<'a> {
    /// For every class, one of each of [`FAMILIES`].
    fn of(cluster: &'a Cluster, classes: &'a [Class]) -> Vec<[Faces<'a>; 3]> {
        let face = |class: &'a Class, family| Faces {
            source: Side::new(cluster, &class.example, family, true),
            destination: Side::new(cluster, &class.example, family, false),
            second: class.second.as_ref().and_then(|second| Side::new(cluster, second, family, false)),
        };
        classes.iter().map(|class| FAMILIES.map(|family| face(class, family))).collect()
    }
}

/// Compares two states; only parties that exist in both. `progress` is told how many of how many classes are done.
pub fn diff(before: &Cluster, after: &Cluster, mut progress: impl FnMut(usize, usize)) -> Diff {
    let both = [before, after];
    let spans = Spans::of(before.policies().chain(after.policies()), &both);
    let classes = classes(&both);
    let comparison = Comparison {
        before: (before, Faces::of(before, &classes)),
        after: (after, Faces::of(after, &classes)),
        spans,
    };
    let mut diff = Diff::default();
    // First sources with the same effect on one class of destinations come together, then destinations.
    let mut rows: BTreeMap<(Vec<usize>, Effect), Vec<usize>> = BTreeMap::new();
    for (at, to) in classes.iter().enumerate() {
        let mut effects: BTreeMap<Effect, Vec<usize>> = BTreeMap::new();
        for (source, from) in classes.iter().enumerate() {
            if !from.is_pods && !to.is_pods {
                continue;
            }
            let same = usize::from(source == at);
            let pairs = from.names.len() * (to.names.len() - same);
            diff.compared += pairs;
            let found = comparison.effects((source, from), (at, to));
            diff.pairs += if found.is_empty() { 0 } else { pairs };
            for effect in found {
                effects.entry(effect).or_default().push(source);
            }
        }
        for (effect, sources) in effects {
            rows.entry((sources, effect)).or_default().push(at);
        }
        progress(at + 1, classes.len());
    }
    let names = |indexes: &[usize]| -> Vec<String> {
        indexes.iter().flat_map(|index| &classes[*index].names).cloned().collect()
    };
    for ((sources, (family, opened, closed, because)), destinations) in rows {
        let (from, to) = (names(&sources), names(&destinations));
        diff.changes.push(Change { family, from, to, opened, closed, because });
    }
    diff.changes.sort_by(|a, b| (&a.to, &a.from, a.family).cmp(&(&b.to, &b.from, b.family)));
    diff
}

struct Comparison<'a> {
    before: (&'a Cluster, Vec<[Faces<'a>; 3]>),
    after: (&'a Cluster, Vec<[Faces<'a>; 3]>),
    spans: Spans,
}

impl Comparison<'_> {
    /// The effects on one pair of classes: one without a family if all families see the same.
    fn effects(&self, (source, from): (usize, &Class), (destination, to): (usize, &Class)) -> Vec<Effect> {
        let mut effects = Vec::new();
        let families = families(self.after.0, from, to);
        for (place, family) in FAMILIES.iter().enumerate().filter(|(_, family)| families.contains(family)) {
            let (Some(old), Some(new)) = (
                pair(&self.before.1, source, destination, place),
                pair(&self.after.1, source, destination, place),
            ) else {
                continue;
            };
            let was = allowed(self.before.0, old.0, old.1, &self.spans);
            let is = allowed(self.after.0, new.0, new.1, &self.spans);
            if was == is {
                continue;
            }
            let opened = self.spans.filter(|traffic| is.contains(traffic) && !was.contains(traffic));
            let closed = self.spans.filter(|traffic| was.contains(traffic) && !is.contains(traffic));
            let mut because = Vec::new();
            for traffic in self.spans.samples(&opened).chain(self.spans.samples(&closed)) {
                let denied = closed.contains(traffic);
                for decision in decisions(self.after.0, new.0, new.1, traffic) {
                    if decision.allowed != denied {
                        because.extend(deciders(decision));
                    }
                }
            }
            because.sort_unstable();
            because.dedup();
            effects.push((family.map(family_name), opened, closed, because));
        }
        if let [first, others @ ..] = &mut effects[..]
            && others.iter().all(|other| (&other.1, &other.2, &other.3) == (&first.1, &first.2, &first.3))
            && others.len() + 1 == families.len()
        {
            first.0 = None;
            effects.truncate(1);
        }
        effects
    }
}

/// Both ends of a connection between two classes, or within one.
fn pair<'f, 'a>(
    faces: &'f [[Faces<'a>; 3]],
    source: usize,
    destination: usize,
    place: usize,
) -> Option<(&'f Side<'a>, &'f Side<'a>)> {
    let to = &faces[destination][place];
    let to = if source == destination { &to.second } else { &to.destination };
    Some((faces[source][place].source.as_ref()?, to.as_ref()?))
}

fn deciders(decision: Decision) -> Vec<PolicyName> {
    match decision.reason {
        Reason::Rule(rule) => vec![rule.policy],
        Reason::Isolated { policies, .. } => policies,
        _ => Vec::new(),
    }
}
