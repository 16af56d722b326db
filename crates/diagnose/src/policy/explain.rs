//! Everything policies say about one pod.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kapi::PodKey;
use policy::{Direction, Policy, Tier};
use serde::Serialize;

use super::classes::{Class, classes};
use super::cluster::Cluster;
use super::decide::{PolicyName, direction_name};
use super::describe;
use super::party::{Party, PartyError, family_name};
use super::ports::{PortSet, Spans};
use super::reach::{Side, allowed, families};

/// Everything policies say about one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `namespace/name`.
    pub pod: String,
    /// Node it is bound to.
    pub node: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Why no policy can be for it, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exempt: Option<&'static str>,
    /// The policies for it, in the order they are asked.
    pub policies: Vec<Selected>,
    /// What becomes of traffic to it that no rule mentions.
    pub ingress: Isolation,
    /// What becomes of traffic from it that no rule mentions.
    pub egress: Isolation,
    /// Who can reach it, and where.
    pub reached_by: Vec<Reach>,
    /// Whom it can reach, and where.
    pub reaches: Vec<Reach>,
}

/// A policy for the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Selected {
    /// The policy.
    pub policy: PolicyName,
    /// `admin`, `network` or `baseline`.
    pub tier: &'static str,
    /// Within the tier lower numbers are asked first; none for NetworkPolicies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Directions in which it isolates the pod.
    pub isolates: Vec<&'static str>,
    /// Its rules in words.
    pub rules: Vec<RuleText>,
    /// What of the object cannot be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A rule in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleText {
    /// `ingress` or `egress`.
    pub direction: &'static str,
    /// Place in the list, from 0.
    pub index: usize,
    /// What people call it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it says.
    pub says: String,
}

/// What becomes of traffic that no rule mentions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Isolation {
    /// Whether it is denied.
    pub isolated: bool,
    /// The policies that deny it.
    pub by: Vec<PolicyName>,
}

/// Parties that reach it, or are reached, alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reach {
    /// Who.
    pub parties: Vec<String>,
    /// `IPv4` or `IPv6`; none if it is the same over both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<&'static str>,
    /// Where.
    pub ports: PortSet,
}

/// Explains a pod.
///
/// # Errors
/// When there is no such pod.
pub fn explain(
    cluster: &Cluster,
    key: &PodKey,
    mut progress: impl FnMut(usize, usize),
) -> Result<Explanation, PartyError> {
    let Some(pod) = cluster.pods.get(key) else {
        return Err(PartyError::UnknownPod { name: key.to_string(), near: Vec::new() });
    };
    let policies = cluster.policies_for(key, pod);
    let exempt = match (pod.finished, pod.host_network) {
        (true, _) => Some("it has ended"),
        (_, true) => Some("it is on its node's network"),
        _ => None,
    };
    let mut explanation = Explanation {
        pod: key.to_string(),
        node: pod.node.clone(),
        addresses: pod.addresses.clone(),
        exempt,
        policies: policies.iter().map(|policy| selected(policy)).collect(),
        ingress: isolation(&policies, Direction::Ingress),
        egress: isolation(&policies, Direction::Egress),
        reached_by: Vec::new(),
        reaches: Vec::new(),
    };
    if pod.finished {
        return Ok(explanation);
    }
    let spans = Spans::of(cluster.policies(), &[cluster]);
    let me = Class {
        example: Party::Pod(key.clone()),
        second: None,
        names: vec![key.to_string()],
        is_pods: !pod.host_network,
    };
    let mut classes = classes(&[cluster]);
    for class in &mut classes {
        class.names.retain(|name| *name != me.names[0]);
        if class.example == me.example {
            class.example = class.second.take().unwrap_or_else(|| me.example.clone());
        }
    }
    classes.retain(|class| !class.names.is_empty() && (class.is_pods || me.is_pods));
    let mut groups = [BTreeMap::new(), BTreeMap::new()];
    for (at, class) in classes.iter().enumerate() {
        for (group, (from, to)) in groups.iter_mut().zip([(class, &me), (&me, class)]) {
            for (family, ports) in reach(cluster, from, to, &spans) {
                let names: &mut Vec<String> = group.entry((ports, family)).or_default();
                names.extend(class.names.iter().cloned());
            }
        }
        progress(at + 1, classes.len());
    }
    let [reached_by, reaches] = groups.map(listed);
    explanation.reached_by = reached_by;
    explanation.reaches = reaches;
    Ok(explanation)
}

/// Where one class reaches another; families that agree come as one.
fn reach(cluster: &Cluster, from: &Class, to: &Class, spans: &Spans) -> Vec<(Option<&'static str>, PortSet)> {
    let families = families(cluster, from, to);
    let mut found: Vec<(Option<&'static str>, PortSet)> = Vec::new();
    for family in &families {
        let sides = (
            Side::new(cluster, &from.example, *family, true),
            Side::new(cluster, &to.example, *family, false),
        );
        let (Some(from), Some(to)) = sides else { continue };
        found.push((family.map(family_name), allowed(cluster, &from, &to, spans)));
    }
    if found.len() == families.len() && found.windows(2).all(|pair| pair[0].1 == pair[1].1) {
        found.truncate(1);
        if let [(family, _)] = &mut found[..] {
            *family = None;
        }
    }
    found.retain(|(_, ports)| !ports.is_empty());
    found
}

fn listed(groups: BTreeMap<(PortSet, Option<&'static str>), Vec<String>>) -> Vec<Reach> {
    let mut list: Vec<Reach> =
        groups.into_iter().map(|((ports, family), parties)| Reach { parties, family, ports }).collect();
    list.sort_by(|a, b| (&a.parties, a.family).cmp(&(&b.parties, b.family)));
    list
}

fn selected(policy: &Policy) -> Selected {
    let rules = policy.rules.iter().map(|rule| RuleText {
        direction: direction_name(rule.direction),
        index: rule.index,
        name: rule.name.clone(),
        says: describe::rule(rule, &policy.id.namespace),
    });
    let isolates = Direction::ALL.into_iter().filter(|direction| policy.isolates.contains(*direction));
    let (tier, ordered) = match policy.tier {
        Tier::Admin => ("admin", true),
        Tier::Network => ("network", false),
        Tier::Baseline => ("baseline", true),
    };
    Selected {
        policy: PolicyName::from(&policy.id),
        tier,
        priority: ordered.then_some(policy.priority),
        isolates: isolates.map(direction_name).collect(),
        rules: rules.collect(),
        problems: policy.problems.clone(),
    }
}

fn isolation(policies: &[&Policy], direction: Direction) -> Isolation {
    let by: Vec<PolicyName> = policies
        .iter()
        .filter(|policy| policy.isolates.contains(direction))
        .map(|policy| PolicyName::from(&policy.id))
        .collect();
    Isolation { isolated: !by.is_empty(), by }
}
