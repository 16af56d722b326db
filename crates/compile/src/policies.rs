//! Policies: port groups of the pods they are for, rules, and the address sets rules name.

pub(crate) mod isolation;
mod matching;
pub(crate) mod sets;

use kapi::PodKey;
use ovn::names::{self, ObjectIds};
use policy::{Action, Direction, Kind, Logging, Peers, Policy, PolicyId, Ports, Rule, Severity, Tier};
use world::World;

use crate::acl;
use crate::desired::{Desired, RowId};
use crate::settings::Settings;
use crate::table;
use matching::{L3, Matcher};

/// OVN's tier of administrators' policies.
const ADMIN_TIER: i64 = 1;
/// OVN's tier of the baseline.
const BASELINE_TIER: i64 = 3;
/// Priority of the first rule of the BaselineAdminNetworkPolicy; the others follow downwards.
const BASELINE_FIRST: i64 = 1750;
/// Priority of the first rule of a ClusterNetworkPolicy of priority 0 in the baseline tier. All of them are asked
/// before the BaselineAdminNetworkPolicy.
const CLUSTER_BASELINE_FIRST: i64 = 30_000;
/// Rules of one direction a ClusterNetworkPolicy can have.
const CLUSTER_STEP: i64 = 25;

/// The rows of a policy: its port group and its rules. The members of the group are rows of the pods.
pub(crate) fn rows(world: &World, settings: &Settings, id: &PolicyId) -> Desired {
    let mut desired = Desired::default();
    let Some(policy) = world.policies().policy(id) else { return desired };
    let ids = group_ids(id);
    let group = RowId::new(table::PORT_GROUP, ids.primary());
    desired
        .row(table::PORT_GROUP, ids.primary())
        .set("name", ids.hashed_name())
        .entries("external_ids", ids.external_ids().iter().cloned());
    let matcher = Matcher { world, settings, policy, group: ids.hashed_name() };
    let logging = match id.kind {
        Kind::NetworkPolicy => world.policies().namespace(&id.namespace).map(|state| state.logging),
        _ => Some(policy.logging),
    };
    for rule in &policy.rules {
        let Some(priority) = priority(world, policy, rule) else { continue };
        let severity = severity(logging.unwrap_or_default(), rule.action);
        for (l3, suffix) in l3_parts(&matcher, rule) {
            for (protocol, l4) in matcher.l4(rule) {
                let mut keys = vec![
                    (names::OBJECT_NAME, object_name(id)),
                    ("direction", rule.direction.name().to_owned()),
                    ("gress-index", rule.index.to_string()),
                    ("port-policy-protocol", protocol.to_owned()),
                ];
                if let Some(suffix) = suffix {
                    keys.push(("ip-block-index", suffix.to_owned()));
                }
                let keys: Vec<(&str, &str)> =
                    keys.iter().map(|(key, value)| (*key, value.as_str())).collect();
                let spec = acl::Spec {
                    ids: ObjectIds::new(id.kind.name(), &keys),
                    direction: rule.direction,
                    tier: tier(policy.tier),
                    priority,
                    action: action(settings, policy, rule.action),
                    matching: matcher.text(rule.direction, &l3, l4.as_deref()),
                    name: Some(rule_name(id, rule)),
                    severity,
                };
                spec.add(&mut desired, group.clone());
            }
        }
    }
    desired.needs = matcher.needs(&policy.rules);
    desired
}

/// A rule's other ends: for NetworkPolicies by kind, because each kind has a row of its own.
fn l3_parts(matcher: &Matcher<'_>, rule: &Rule) -> Vec<(L3, Option<&'static str>)> {
    if matches!(&rule.peers, Peers::Of(peers) if peers.is_empty())
        || matches!(&rule.ports, Ports::Of(ports) if ports.is_empty())
    {
        return Vec::new();
    }
    if matcher.policy.id.kind != Kind::NetworkPolicy {
        return vec![(matcher.rule_peers(rule), None)];
    }
    let mut parts = Vec::new();
    parts.extend(matcher.selected_peers(rule).map(|l3| (l3, Some("-1"))));
    parts.extend(matcher.block_peers(rule).map(|l3| (l3, Some("-2"))));
    parts
}

/// The groups a pod is in, because policies are for it or isolate it.
pub(crate) fn groups_of(world: &World, key: &PodKey) -> Vec<RowId> {
    let policies = world.policies().policies_for(key);
    let mut groups: Vec<RowId> = policies
        .iter()
        .map(|policy| RowId::new(table::PORT_GROUP, group_ids(&policy.id).primary()))
        .collect();
    for direction in Direction::ALL {
        if policies.iter().any(|policy| policy.isolates.contains(direction)) {
            groups.push(isolation::group(&key.namespace, direction));
        }
    }
    groups
}

/// Whether policies go by namespaces' labels and the pod, which is there, is of a namespace that is not known.
pub(crate) fn lack_namespace(world: &World, key: &PodKey) -> bool {
    world.pod(key).is_some()
        && world.policies().go_by_namespace_labels()
        && !world.has_namespace(&key.namespace)
}

fn group_ids(id: &PolicyId) -> ObjectIds {
    ObjectIds::named(id.kind.name(), &object_name(id))
}

fn object_name(id: &PolicyId) -> String {
    if id.namespace.is_empty() { id.name.clone() } else { format!("{}:{}", id.namespace, id.name) }
}

fn rule_name(id: &PolicyId, rule: &Rule) -> String {
    let short = match id.kind {
        Kind::NetworkPolicy => "NP",
        Kind::AdminNetworkPolicy => "ANP",
        Kind::BaselineAdminNetworkPolicy => "BANP",
        Kind::ClusterNetworkPolicy => "CNP",
    };
    format!("{short}:{}:{}:{}", object_name(id), rule.direction.name(), rule.index)
}

fn tier(tier: Tier) -> i64 {
    match tier {
        Tier::Admin => ADMIN_TIER,
        Tier::Network => acl::POLICY_TIER,
        Tier::Baseline => BASELINE_TIER,
    }
}

/// A rule's priority in its tier; none where the tier has no room for it.
fn priority(world: &World, policy: &Policy, rule: &Rule) -> Option<i64> {
    let index = i64::try_from(rule.index).ok()?;
    let first = match (policy.tier, policy.id.kind) {
        (Tier::Network, _) => return Some(acl::ALLOW_PRIORITY),
        (Tier::Admin, _) => world.policies().layout().admin(policy.priority)?,
        (Tier::Baseline, Kind::ClusterNetworkPolicy) => {
            CLUSTER_BASELINE_FIRST - CLUSTER_STEP * i64::from(policy.priority)
        }
        (Tier::Baseline, _) => BASELINE_FIRST,
    };
    Some(first - index).filter(|priority| *priority >= 0)
}

fn action(settings: &Settings, policy: &Policy, action: Action) -> &'static str {
    match action {
        Action::Allow if policy.stateless && settings.policies.stateless => "allow-stateless",
        Action::Allow => "allow-related",
        Action::Deny => "drop",
        Action::Pass => "pass",
    }
}

fn severity(logging: Logging, action: Action) -> Option<Severity> {
    match action {
        Action::Allow => logging.allow,
        Action::Deny => logging.deny,
        Action::Pass => logging.pass,
    }
}
