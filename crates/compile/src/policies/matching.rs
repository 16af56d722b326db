//! Match expressions of rules.

use std::collections::{BTreeMap, BTreeSet};

use net::Family;
use policy::{Block, Direction, Peer, Peers, Policy, Port, PortNumbers, Ports, Protocol, Rule};
use world::{RuleKey, World};

use super::sets::{self, peer_set_ids, rule_set_ids};
use crate::acl;
use crate::desired::RowId;
use crate::settings::Settings;

/// A condition on the other end's address; none where any will do.
pub(super) type L3 = Option<String>;

/// Writes the matches of one policy's rules.
pub(super) struct Matcher<'a> {
    pub(super) world: &'a World,
    pub(super) settings: &'a Settings,
    pub(super) policy: &'a Policy,
    /// Name of the policy's port group.
    pub(super) group: String,
}

/// What of a protocol a rule is about.
#[derive(Default)]
struct Numbers {
    all: bool,
    singles: Vec<u16>,
    ranges: Vec<(u16, u16)>,
    /// Numbers that count only at the pods of these sets.
    named: BTreeMap<u16, BTreeSet<String>>,
}

impl Matcher<'_> {
    /// The whole match, in the order the reference has for this kind of policy.
    pub(super) fn text(&self, direction: Direction, l3: &L3, l4: Option<&str>) -> String {
        let port = acl::port_match(direction, &self.group);
        let parts: Vec<&str> = match self.policy.id.kind {
            policy::Kind::NetworkPolicy => {
                [l3.as_deref(), l4, Some(port.as_str())].into_iter().flatten().collect()
            }
            _ => [Some(port.as_str()), l3.as_deref(), l4].into_iter().flatten().collect(),
        };
        parts.join(" && ")
    }

    /// Any other end, or the pods of the rule's selections.
    pub(super) fn selected_peers(&self, rule: &Rule) -> Option<L3> {
        let Peers::Of(peers) = &rule.peers else {
            let families = self.settings.families().map(|family| family.ovn().to_owned());
            return Some(Some(either(families)));
        };
        let texts: BTreeSet<String> = peers
            .iter()
            .filter_map(|peer| match peer {
                Peer::Pods(selection) => Some(selection.text()),
                _ => None,
            })
            .collect();
        if texts.is_empty() {
            return None;
        }
        let end = other_end(rule.direction);
        let families = self.settings.families().map(|family| {
            let mut names: Vec<String> =
                texts.iter().map(|text| format!("${}", peer_set_ids(text, family).hashed_name())).collect();
            names.sort();
            format!("{}.{end} == {{{}}}", family.ovn(), names.join(", "))
        });
        Some(Some(either(families)))
    }

    /// The address ranges of the rule.
    pub(super) fn block_peers(&self, rule: &Rule) -> Option<L3> {
        let Peers::Of(peers) = &rule.peers else { return None };
        let blocks: Vec<&Block> = peers
            .iter()
            .filter_map(|peer| match peer {
                Peer::Block(block) => Some(block),
                _ => None,
            })
            .collect();
        let end = other_end(rule.direction);
        let each = blocks.iter().map(|block| {
            let address = format!("{}.{end}", Family::of_net(&block.range).ovn());
            if block.except.is_empty() {
                return format!("{address} == {}", block.range);
            }
            let except: Vec<String> = block.except.iter().map(ToString::to_string).collect();
            format!("({address} == {} && {address} != {{{}}})", block.range, except.join(", "))
        });
        (!blocks.is_empty()).then(|| Some(either(each)))
    }

    /// Everything a rule of an administrator's policy is about, by its own address set.
    pub(super) fn rule_peers(&self, rule: &Rule) -> L3 {
        if rule.peers == Peers::Any {
            return None;
        }
        let (key, end) = (self.key(rule), other_end(rule.direction));
        let families = self
            .settings
            .families()
            .map(|family| format!("{}.{end} == ${}", family.ovn(), rule_set_ids(&key, family).hashed_name()));
        let families: Vec<String> = families.collect();
        Some(format!("(({}))", families.join(" || ")))
    }

    /// The rule's protocols, each with the condition on its ports; one entry without condition where ports do not
    /// matter.
    pub(super) fn l4(&self, rule: &Rule) -> Vec<(&'static str, Option<String>)> {
        let Ports::Of(ports) = &rule.ports else { return vec![("None", None)] };
        let mut protocols: BTreeMap<Protocol, Numbers> = BTreeMap::new();
        for port in ports {
            match (&port.numbers, port.protocol) {
                (PortNumbers::All, Some(protocol)) => protocols.entry(protocol).or_default().all = true,
                (PortNumbers::Range(first, last), Some(protocol)) => {
                    let numbers = protocols.entry(protocol).or_default();
                    if first != last {
                        numbers.ranges.push((*first, *last));
                    } else if !numbers.singles.contains(first) {
                        numbers.singles.push(*first);
                    }
                }
                (PortNumbers::Named(_), _) => self.resolve(rule, port, &mut protocols),
                (_, None) => {}
            }
        }
        let written = protocols.into_iter().filter_map(|(protocol, numbers)| {
            Some((protocol.ovn(), Some(self.numbers(protocol.ovn(), numbers)?)))
        });
        written.collect()
    }

    /// A name stands for a number at some pods only.
    fn resolve(&self, rule: &Rule, port: &Port, protocols: &mut BTreeMap<Protocol, Numbers>) {
        for set in self.world.policies().resolve(self.policy, rule, port) {
            let named = &mut protocols.entry(set.resolved.protocol).or_default().named;
            named.entry(set.resolved.number).or_default().insert(set.text());
        }
    }

    fn numbers(&self, protocol: &str, numbers: Numbers) -> Option<String> {
        if numbers.all {
            return Some(protocol.to_owned());
        }
        let mut parts = Vec::new();
        match numbers.singles.as_slice() {
            [] => {}
            [one] => parts.push(format!("{protocol}.dst=={one}")),
            many => {
                let many: Vec<String> = many.iter().map(ToString::to_string).collect();
                parts.push(format!("{protocol}.dst=={{{}}}", many.join(",")));
            }
        }
        parts.extend(numbers.ranges.iter().map(|(first, last)| format!("{first}<={protocol}.dst<={last}")));
        for (number, texts) in &numbers.named {
            let families = self.settings.families().map(|family| {
                let mut names: Vec<String> = texts
                    .iter()
                    .map(|text| format!("${}", peer_set_ids(text, family).hashed_name()))
                    .collect();
                names.sort();
                format!("{}.dst == {{{}}}", family.ovn(), names.join(", "))
            });
            parts.push(format!("({protocol}.dst=={number} && {})", either(families)));
        }
        match parts.as_slice() {
            [] => None,
            [one] => Some(format!("{protocol} && {one}")),
            many => Some(format!("{protocol} && ({})", many.join(" || "))),
        }
    }

    /// The address sets the rules' matches name.
    pub(super) fn needs(&self, rules: &[Rule]) -> Vec<RowId> {
        let mut rows = BTreeSet::new();
        for rule in rules {
            let mut texts = BTreeSet::new();
            if let Peers::Of(peers) = &rule.peers {
                if self.policy.id.kind != policy::Kind::NetworkPolicy {
                    let key = self.key(rule);
                    rows.extend(
                        self.settings.families().map(|family| sets::row(&rule_set_ids(&key, family))),
                    );
                } else {
                    texts.extend(peers.iter().filter_map(|peer| match peer {
                        Peer::Pods(selection) => Some(selection.text()),
                        _ => None,
                    }));
                }
            }
            if let Ports::Of(ports) = &rule.ports {
                for port in ports {
                    let sets = self.world.policies().resolve(self.policy, rule, port);
                    texts.extend(sets.iter().map(world::policies::PortSet::text));
                }
            }
            for text in texts {
                rows.extend(self.settings.families().map(|family| sets::row(&peer_set_ids(&text, family))));
            }
        }
        rows.into_iter().collect()
    }

    fn key(&self, rule: &Rule) -> RuleKey {
        RuleKey { policy: self.policy.id.clone(), direction: rule.direction, index: rule.index }
    }
}

fn other_end(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "src",
        Direction::Egress => "dst",
    }
}

/// One condition as it is, several in parentheses.
fn either(conditions: impl Iterator<Item = String>) -> String {
    let mut conditions: Vec<String> = conditions.collect();
    match conditions.len() {
        1 => conditions.remove(0),
        _ => format!("({})", conditions.join(" || ")),
    }
}
