//! What a change opens and closes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::classes::{Class, classes};
use super::cluster::Cluster;
use super::decide::{Decision, PolicyName, Reason};
use super::party::family_name;
use super::ports::{PortSet, Spans};
use super::reach::{Side, allowed, decisions, examples, families};

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

/// Compares two states; only parties that exist in both. `progress` is told how many of how many pairs of classes are done.
pub fn diff(before: &Cluster, after: &Cluster, mut progress: impl FnMut(usize, usize)) -> Diff {
    let both = [before, after];
    let spans = Spans::of(before.policies().chain(after.policies()), &both);
    let classes = classes(&both);
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
            let found = compare(before, after, from, to, &spans);
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

/// The effects on one pair of classes: one without a family if all families see the same.
fn compare(before: &Cluster, after: &Cluster, from: &Class, to: &Class, spans: &Spans) -> Vec<Effect> {
    let Some((source, destination)) = examples(from, to) else { return Vec::new() };
    let mut effects = Vec::new();
    let families = families(after, from, to);
    for family in &families {
        let sides = |cluster| {
            Some((
                Side::new(cluster, source, *family, true)?,
                Side::new(cluster, destination, *family, false)?,
            ))
        };
        let (Some(old), Some(new)) = (sides(before), sides(after)) else { continue };
        let was = allowed(before, &old.0, &old.1, spans);
        let is = allowed(after, &new.0, &new.1, spans);
        if was == is {
            continue;
        }
        let opened = spans.filter(|traffic| is.contains(traffic) && !was.contains(traffic));
        let closed = spans.filter(|traffic| was.contains(traffic) && !is.contains(traffic));
        let mut because = Vec::new();
        for traffic in spans.samples(&opened).chain(spans.samples(&closed)) {
            let denied = closed.contains(traffic);
            for decision in decisions(after, &new.0, &new.1, traffic) {
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

fn deciders(decision: Decision) -> Vec<PolicyName> {
    match decision.reason {
        Reason::Rule(rule) => vec![rule.policy],
        Reason::Isolated { policies, .. } => policies,
        _ => Vec::new(),
    }
}
