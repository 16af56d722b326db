//! The decision on one connection.

use std::net::IpAddr;

use kapi::PodKey;
use net::Family;
use policy::{
    Action, Direction, Kind, Peer, Peers, Policy, PolicyId, Port, PortNumbers, Ports, Rule, Selection, Tier,
};
use serde::Serialize;

use super::acl::{self, AclName};
use super::cluster::{Cluster, PodView};
use super::party::{Party, PartyError, Question, Traffic, family_name};

/// One end of a connection as the other end and the policies see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End<'a> {
    /// Its address; none for a pod that was not started yet.
    pub(crate) ip: Option<IpAddr>,
    /// The pod, if it has a network of its own.
    pub(crate) pod: Option<(&'a PodKey, &'a PodView)>,
    /// The pod on its node's network.
    pub(crate) host_pod: Option<(&'a PodKey, &'a PodView)>,
    /// The node, if the end is on a node's own network.
    pub(crate) node: Option<&'a str>,
}

/// What policies say about a connection over one address family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// `IPv4` or `IPv6`; none when no end has an address yet.
    pub family: Option<&'static str>,
    /// Whether it comes about.
    pub allowed: bool,
    /// What is said where it leaves its source.
    pub egress: Decision,
    /// What is said where it reaches its destination.
    pub ingress: Decision,
}

/// The answers over all families both ends have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The question in words.
    pub question: String,
    /// Whether it comes about over every family.
    pub allowed: bool,
    /// One answer a family; one without a family if they agree in everything.
    pub answers: Vec<Answer>,
}

/// What one end says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// Whether it passes here.
    pub allowed: bool,
    /// Who says so.
    #[serde(flatten)]
    pub reason: Reason,
}

/// Who decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "reason")]
pub enum Reason {
    /// Policies are about pods with a network of their own; this end is none.
    NoPod,
    /// A pod always reaches itself.
    Itself,
    /// A pod's own node always reaches it.
    OwnNode,
    /// ICMP is exempt by configuration.
    Icmp,
    /// No policy says anything.
    Default,
    /// Policies isolate the pod, and no rule of theirs allows the connection.
    Isolated {
        /// These policies.
        policies: Vec<PolicyName>,
        /// The row that drops it.
        acl: AclName,
    },
    /// A rule decides.
    Rule(RuleName),
}

/// A policy by kind and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PolicyName {
    /// Kind.
    pub kind: &'static str,
    /// Namespace; empty for the cluster's policies.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleName {
    /// The policy.
    pub policy: PolicyName,
    /// `ingress` or `egress`.
    pub direction: &'static str,
    /// Place in the list, from 0.
    pub index: usize,
    /// What people call the rule.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rule: String,
    /// The row in the Northbound database.
    pub acl: AclName,
}

/// What policies say about a connection.
///
/// # Errors
/// When there can be no such connection.
pub fn check(cluster: &Cluster, question: &Question) -> Result<Verdict, PartyError> {
    let mut answers = Vec::new();
    for family in cluster.families(question)? {
        let from = cluster.source(&question.from, family)?;
        let to = cluster.destination(&question.to, family)?;
        let egress = cluster.decide(Direction::Egress, &from, &to, question.traffic);
        let ingress = cluster.decide(Direction::Ingress, &from, &to, question.traffic);
        answers.push(Answer {
            family: family.map(family_name),
            allowed: egress.allowed && ingress.allowed,
            egress,
            ingress,
        });
    }
    let allowed = answers.iter().all(|answer| answer.allowed);
    Ok(Verdict { question: question.to_string(), allowed, answers })
}

impl Cluster {
    /// The families a connection can use: those both ends have. An end that has no address yet has any.
    fn families(&self, question: &Question) -> Result<Vec<Option<Family>>, PartyError> {
        let (from, to) = (self.addresses(&question.from, true)?, self.addresses(&question.to, false)?);
        if from.is_empty() && to.is_empty() {
            return Ok(vec![None]);
        }
        let has =
            |list: &[IpAddr], family| list.is_empty() || list.iter().any(|ip| Family::of(*ip) == family);
        let both: Vec<Option<Family>> = [Family::V4, Family::V6]
            .into_iter()
            .filter(|family| has(&from, *family) && has(&to, *family))
            .map(Some)
            .collect();
        if both.is_empty() {
            let (from, to) = (question.from.to_string(), question.to.to_string());
            return Err(PartyError::NoFamily { from, to });
        }
        Ok(both)
    }

    fn addresses(&self, party: &Party, source: bool) -> Result<Vec<IpAddr>, PartyError> {
        let of_node = |name: &str| {
            let node = self.nodes.get(name);
            let list = node.map(|node| if source { &node.management } else { &node.addresses });
            list.cloned().unwrap_or_default()
        };
        Ok(match party {
            Party::Address(ip) => vec![*ip],
            Party::Node(name) => of_node(name),
            Party::Pod(key) => match self.pods.get(key) {
                None => return Err(PartyError::UnknownPod { name: key.to_string(), near: Vec::new() }),
                Some(pod) if pod.finished => return Err(PartyError::Finished { name: key.to_string() }),
                Some(pod) if pod.host_network => {
                    let list = of_node(&pod.node);
                    if list.is_empty() && !source { pod.addresses.clone() } else { list }
                }
                Some(pod) => pod.addresses.clone(),
            },
        })
    }

    /// The end a party is when it opens a connection.
    pub(crate) fn source<'a>(
        &'a self,
        party: &'a Party,
        family: Option<Family>,
    ) -> Result<End<'a>, PartyError> {
        self.end(party, family, true)
    }

    /// The end a party is when a connection is opened to it.
    pub(crate) fn destination<'a>(
        &'a self,
        party: &'a Party,
        family: Option<Family>,
    ) -> Result<End<'a>, PartyError> {
        self.end(party, family, false)
    }

    fn end<'a>(
        &'a self,
        party: &'a Party,
        family: Option<Family>,
        source: bool,
    ) -> Result<End<'a>, PartyError> {
        let mut addresses = self.addresses(party, source)?.into_iter();
        let ip = addresses.find(|ip| Some(Family::of(*ip)) == family);
        let mut end = End { ip, pod: None, host_pod: None, node: None };
        match party {
            Party::Node(name) => end.node = Some(name),
            Party::Pod(key) => match self.pods.get_key_value(key) {
                Some((key, pod)) if pod.host_network => {
                    end.host_pod = Some((key, pod));
                    end.node = Some(&pod.node);
                }
                found => end.pod = found,
            },
            Party::Address(ip) => {
                end.pod = self.pods.iter().find(|(_, pod)| pod.is_policed() && pod.addresses.contains(ip));
                if end.pod.is_none() {
                    let node = self.nodes.iter().find(|(_, node)| {
                        if source { node.management.contains(ip) } else { node.addresses.contains(ip) }
                    });
                    end.node = node.map(|(name, _)| name.as_str());
                }
            }
        }
        Ok(end)
    }

    /// The policies for a pod, in the order they are asked.
    pub(crate) fn policies_for(&self, key: &PodKey, pod: &PodView) -> Vec<&Policy> {
        let mut found: Vec<&Policy> =
            self.policies.values().filter(|policy| self.is_subject(policy, key, pod)).collect();
        // In the baseline all ClusterNetworkPolicies are asked before the BaselineAdminNetworkPolicy.
        let last = |policy: &Policy| policy.id.kind == Kind::BaselineAdminNetworkPolicy;
        found.sort_by(|a, b| (a.tier, last(a), a.priority, &a.id).cmp(&(b.tier, last(b), b.priority, &b.id)));
        found
    }

    /// What the end that `direction` names says about a connection.
    pub(crate) fn decide(
        &self,
        direction: Direction,
        from: &End<'_>,
        to: &End<'_>,
        traffic: Traffic,
    ) -> Decision {
        let subject = if direction == Direction::Ingress { to } else { from };
        let policies = subject.pod.map(|(key, pod)| self.policies_for(key, pod)).unwrap_or_default();
        self.decide_by(&policies, direction, from, to, traffic)
    }

    /// The same, where the subject's policies are known.
    pub(crate) fn decide_by(
        &self,
        policies: &[&Policy],
        direction: Direction,
        from: &End<'_>,
        to: &End<'_>,
        traffic: Traffic,
    ) -> Decision {
        let allow = |reason| Decision { allowed: true, reason };
        let (subject, peer) = if direction == Direction::Ingress { (to, from) } else { (from, to) };
        let Some((key, pod)) = subject.pod else { return allow(Reason::NoPod) };
        if peer.pod.is_some_and(|(other, _)| other == key) {
            return allow(Reason::Itself);
        }
        if direction == Direction::Ingress && peer.node == Some(pod.node.as_str()) {
            return allow(Reason::OwnNode);
        }
        let mut isolating: Vec<&PolicyId> = Vec::new();
        // A Pass leaves the tier; the rules of the others start with the next one.
        let mut passed: Option<Tier> = None;
        for (at, policy) in policies.iter().enumerate() {
            if policy.tier > Tier::Network && !isolating.is_empty() {
                break;
            }
            if passed == Some(policy.tier) {
                continue;
            }
            if policy.isolates.contains(direction) {
                isolating.push(&policy.id);
            }
            let mut rules = policy.rules_of(direction);
            let found = rules.find(|rule| self.is_port(rule, to, traffic) && self.is_peer(&rule.peers, peer));
            let Some(rule) = found else { continue };
            match rule.action {
                Action::Allow | Action::Deny => {
                    let acl = self.acl(policies[at], rule, peer, traffic);
                    let reason = Reason::Rule(RuleName::new(policy, rule, acl));
                    return Decision { allowed: rule.action == Action::Allow, reason };
                }
                Action::Pass => passed = Some(policy.tier),
            }
        }
        if isolating.is_empty() {
            return allow(Reason::Default);
        }
        if traffic == Traffic::Icmp && self.settings.allow_icmp {
            return allow(Reason::Icmp);
        }
        let policies = isolating.into_iter().map(PolicyName::from).collect();
        let acl = acl::default_deny(&key.namespace, direction);
        Decision { allowed: false, reason: Reason::Isolated { policies, acl } }
    }

    fn acl(&self, policy: &Policy, rule: &Rule, peer: &End<'_>, traffic: Traffic) -> AclName {
        let by_block = match &rule.peers {
            Peers::Any => false,
            // Where the peer is one as a pod as well, either row lets it pass.
            Peers::Of(peers) => {
                let as_pod = |one: &Peer| !matches!(one, Peer::Block(_)) && self.matches(one, peer);
                !peers.iter().any(as_pod)
            }
        };
        acl::of_rule(policy, rule, by_block, traffic)
    }

    pub(crate) fn is_peer(&self, peers: &Peers, end: &End<'_>) -> bool {
        match peers {
            Peers::Any => true,
            Peers::Of(peers) => peers.iter().any(|peer| self.matches(peer, end)),
        }
    }

    pub(crate) fn matches(&self, peer: &Peer, end: &End<'_>) -> bool {
        match peer {
            Peer::Pods(selection) => self.is_selected(selection, end),
            Peer::Block(block) => end.ip.is_some_and(|ip| block.contains(ip)),
            Peer::Nodes(selector) => self.nodes.values().any(|node| {
                selector.matches(&node.labels) && end.ip.is_some_and(|ip| node.addresses.contains(&ip))
            }),
        }
    }

    fn is_selected(&self, selection: &Selection, end: &End<'_>) -> bool {
        let holds = |(key, pod): (&PodKey, &PodView)| {
            self.selects_namespace(selection, &key.namespace) && selection.matches_labels(&pod.labels)
        };
        if let Some(pod) = end.pod {
            return holds(pod);
        }
        // A pod on its node's network cannot be told from the node: it stands for the node's addresses.
        let is_there = |(_, pod): &(&PodKey, &PodView)| {
            pod.host_network && !pod.finished && end.ip.is_some_and(|ip| pod.addresses.contains(&ip))
        };
        if selection.host_pods && self.pods.iter().filter(is_there).any(holds) {
            return true;
        }
        let namespace = &self.settings.host_network_namespace;
        let from_node =
            || self.nodes.values().any(|node| end.ip.is_some_and(|ip| node.management.contains(&ip)));
        selection.nodes && self.selects_namespace(selection, namespace) && from_node()
    }

    fn is_port(&self, rule: &Rule, to: &End<'_>, traffic: Traffic) -> bool {
        let ports = match &rule.ports {
            Ports::Any => return true,
            Ports::Of(ports) => ports,
        };
        let Traffic::Port(protocol, number) = traffic else { return false };
        let matches = |port: &Port| {
            port.protocol.is_none_or(|wanted| wanted == protocol)
                && match &port.numbers {
                    PortNumbers::All => true,
                    PortNumbers::Range(first, last) => (*first..=*last).contains(&number),
                    PortNumbers::Named(name) => {
                        let is = |pod: &PodView| {
                            pod.ports.iter().any(|one| {
                                one.name == *name && one.port == number && one.protocol == protocol.name()
                            })
                        };
                        to.pod.is_some_and(|(_, pod)| is(pod)) || self.is_on_node(rule, to, is)
                    }
                }
        };
        ports.iter().any(matches)
    }

    /// Whether the destination is the address of a pod on its node's network, such as is looked for, that the rule may mean.
    fn is_on_node(&self, rule: &Rule, to: &End<'_>, is: impl Fn(&PodView) -> bool) -> bool {
        if rule.direction == Direction::Ingress || to.pod.is_some() {
            return false;
        }
        let is_meant = |key: &PodKey, pod: &PodView| match &rule.peers {
            Peers::Of(peers) if peers.iter().all(|peer| matches!(peer, Peer::Pods(_))) => {
                peers.iter().any(|peer| match peer {
                    Peer::Pods(selection) => {
                        selection.host_pods
                            && self.selects_namespace(selection, &key.namespace)
                            && selection.matches_labels(&pod.labels)
                    }
                    _ => false,
                })
            }
            _ => true,
        };
        self.pods.iter().any(|(key, pod)| {
            pod.host_network
                && !pod.finished
                && to.ip.is_some_and(|ip| pod.addresses.contains(&ip))
                && is(pod)
                && is_meant(key, pod)
        })
    }
}

impl From<&PolicyId> for PolicyName {
    fn from(id: &PolicyId) -> PolicyName {
        PolicyName { kind: id.kind.name(), namespace: id.namespace.clone(), name: id.name.clone() }
    }
}

impl RuleName {
    pub(crate) fn new(policy: &Policy, rule: &Rule, acl: AclName) -> RuleName {
        RuleName {
            policy: PolicyName::from(&policy.id),
            direction: direction_name(rule.direction),
            index: rule.index,
            rule: rule.name.clone(),
            acl,
        }
    }
}

/// `ingress` or `egress`.
pub(crate) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    }
}
