//! Administrators' policies (policy.networking.k8s.io).

use kapi::{
    AdminNetworkPolicy, AdminPeer, AdminPolicySpec, AdminPort, BaselineAdminNetworkPolicy,
    ClusterNetworkPolicy, ClusterPorts, ClusterProtocol, LabelSelector, Meta,
};

use crate::ports::{number, protocol, range};
use crate::{
    ACL_LOGGING, Action, Block, Direction, Kind, Logging, Namespaces, Peer, Peers, Policy, Port, PortNumbers,
    Ports, Protocol, Rule, Selection, Tier, cidr,
};

/// The last priority of a policy in its tier.
const LAST_PRIORITY: u32 = 1000;

impl From<&AdminNetworkPolicy> for Policy {
    fn from(object: &AdminNetworkPolicy) -> Policy {
        read(Kind::AdminNetworkPolicy, &object.metadata, &object.spec, Tier::Admin, Vec::new())
    }
}

impl From<&BaselineAdminNetworkPolicy> for Policy {
    fn from(object: &BaselineAdminNetworkPolicy) -> Policy {
        let (kind, mut spec) = (Kind::BaselineAdminNetworkPolicy, object.spec.clone());
        spec.priority = Some(0);
        read(kind, &object.metadata, &spec, Tier::Baseline, Vec::new())
    }
}

impl From<&ClusterNetworkPolicy> for Policy {
    fn from(object: &ClusterNetworkPolicy) -> Policy {
        let (kind, spec) = (Kind::ClusterNetworkPolicy, &object.spec);
        let tier = match spec.tier.as_deref() {
            Some("Admin") => Tier::Admin,
            Some("Baseline") => Tier::Baseline,
            other => {
                let problem = format!(
                    "spec.tier: {:?} is neither Admin nor Baseline; the policy is for no pods",
                    other.unwrap_or_default()
                );
                return nothing(kind, &object.metadata, vec![problem]);
            }
        };
        read(kind, &object.metadata, spec, tier, Vec::new())
    }
}

/// A policy without effect.
fn nothing(kind: Kind, meta: &Meta, problems: Vec<String>) -> Policy {
    Policy { problems, ..Policy::empty(kind, meta, Tier::Admin, selects_nothing()) }
}

fn selects_nothing() -> Selection {
    Selection {
        namespaces: Namespaces::Named(String::new()),
        pods: Some(LabelSelector::default()),
        host_pods: false,
        nodes: false,
    }
}

fn read(kind: Kind, meta: &Meta, spec: &AdminPolicySpec, tier: Tier, mut problems: Vec<String>) -> Policy {
    let priority = spec.priority.and_then(|priority| u32::try_from(priority).ok());
    let Some(priority) = priority.filter(|priority| *priority <= LAST_PRIORITY) else {
        problems.push(format!("spec.priority: it must be 0 to {LAST_PRIORITY}; the policy is for no pods"));
        return nothing(kind, meta, problems);
    };
    let subject = match pods(&spec.subject.namespaces, &spec.subject.pods) {
        Some(subject) => match subject.problem() {
            None => subject,
            Some(problem) => {
                problems.push(format!("spec.subject: {problem}; the policy is for no pods"));
                selects_nothing()
            }
        },
        None => {
            problems
                .push("spec.subject: neither namespaces nor pods is set; the policy is for no pods".into());
            selects_nothing()
        }
    };
    let mut policy = Policy::empty(kind, meta, tier, subject);
    policy.priority = priority;
    policy.logging = match meta.annotation(ACL_LOGGING).map(Logging::parse) {
        Some(Ok(logging)) => logging,
        Some(Err(problem)) => {
            problems.push(format!("{problem}; nothing is logged"));
            Logging::default()
        }
        None => Logging::default(),
    };
    for (index, rule) in spec.ingress.iter().enumerate() {
        let place = Place { direction: Direction::Ingress, index, field: "from" };
        let ports = Listed { ports: rule.ports.as_deref(), protocols: rule.protocols.as_deref() };
        policy.rules.extend(place.rule(kind, &rule.name, &rule.action, &rule.from, ports, &mut problems));
    }
    for (index, rule) in spec.egress.iter().enumerate() {
        let place = Place { direction: Direction::Egress, index, field: "to" };
        let ports = Listed { ports: rule.ports.as_deref(), protocols: rule.protocols.as_deref() };
        policy.rules.extend(place.rule(kind, &rule.name, &rule.action, &rule.to, ports, &mut problems));
    }
    policy.problems = problems;
    policy
}

fn pods(namespaces: &Option<LabelSelector>, pods: &Option<kapi::NamespacedPods>) -> Option<Selection> {
    let (namespaces, pods) = match (namespaces, pods) {
        (Some(namespaces), None) => (namespaces.clone(), None),
        (None, Some(both)) => (both.namespace_selector.clone(), Some(both.pod_selector.clone())),
        _ => return None,
    };
    let namespaces = Namespaces::Labelled(namespaces);
    Some(Selection { namespaces, pods, host_pods: false, nodes: false }.normal())
}

struct Place {
    direction: Direction,
    index: usize,
    field: &'static str,
}

struct Listed<'a> {
    ports: Option<&'a [AdminPort]>,
    protocols: Option<&'a [ClusterProtocol]>,
}

/// Why a part of a rule cannot be used.
enum Unusable {
    /// It has a value that means nothing; it matches nothing.
    Value(String),
    /// It is of a kind we do not know; the rule fails closed.
    Unknown(String),
}

impl Place {
    fn rule(
        &self,
        kind: Kind,
        name: &str,
        action: &str,
        peers: &[AdminPeer],
        listed: Listed<'_>,
        problems: &mut Vec<String>,
    ) -> Option<Rule> {
        let place = format!("spec.{}[{}]", self.direction.name().to_lowercase(), self.index);
        let action = match (kind, action) {
            (Kind::ClusterNetworkPolicy, "Accept") | (Kind::AdminNetworkPolicy, "Allow") => Action::Allow,
            (Kind::BaselineAdminNetworkPolicy, "Allow") => Action::Allow,
            (_, "Deny") => Action::Deny,
            (Kind::ClusterNetworkPolicy | Kind::AdminNetworkPolicy, "Pass") => Action::Pass,
            _ => {
                problems.push(format!("{place}.action: {action:?} is no action; the rule has no effect"));
                return None;
            }
        };
        let mut closed = false;
        let mut usable = Vec::new();
        for (index, peer) in peers.iter().enumerate() {
            let at = format!("{place}.{}[{index}]", self.field);
            match read_peer(peer, self.direction, action) {
                Ok((read, bad)) => {
                    usable.extend(read);
                    problems.extend(bad.iter().map(|bad| format!("{at}: {bad}; it matches nothing")));
                }
                Err(Unusable::Value(bad)) => problems.push(format!("{at}: {bad}; it matches nothing")),
                Err(Unusable::Unknown(bad)) => {
                    closed = true;
                    problems.push(format!("{at}: {bad}; {}", consequence(action)));
                }
            }
        }
        let mut ports = Ports::Any;
        if let Some(read) = listed.read() {
            let mut usable = Vec::new();
            for (index, port) in read.into_iter().enumerate() {
                let at = format!("{place}, port {index}");
                match port {
                    Ok(port) => usable.push(port),
                    Err(Unusable::Value(bad)) => problems.push(format!("{at}: {bad}; it matches nothing")),
                    Err(Unusable::Unknown(bad)) => {
                        closed = true;
                        problems.push(format!("{at}: {bad}; {}", consequence(action)));
                    }
                }
            }
            ports = Ports::Of(usable);
        }
        let (direction, index, name) = (self.direction, self.index, name.to_owned());
        let rule = Rule { direction, index, name, action, peers: Peers::Of(usable), ports };
        Some(match (closed, action) {
            (false, _) => rule,
            (true, Action::Allow) => Rule { peers: Peers::Of(Vec::new()), ..rule },
            (true, Action::Deny | Action::Pass) => {
                Rule { action: Action::Deny, peers: Peers::Any, ports: Ports::Any, ..rule }
            }
        })
    }
}

fn consequence(action: Action) -> &'static str {
    match action {
        Action::Allow => "the rule allows nothing",
        Action::Deny | Action::Pass => "the rule denies everything, as the API asks",
    }
}

/// The usable peers one entry stands for, and what of it is not usable.
fn read_peer(
    peer: &AdminPeer,
    direction: Direction,
    action: Action,
) -> Result<(Vec<Peer>, Vec<String>), Unusable> {
    let set = [
        peer.namespaces.is_some(),
        peer.pods.is_some(),
        peer.nodes.is_some(),
        peer.networks.is_some(),
        peer.domain_names.is_some(),
    ];
    if set.iter().filter(|set| **set).count() != 1 {
        return Err(Unusable::Unknown("not exactly one kind of peer we know is set".into()));
    }
    if let Some(selection) = pods(&peer.namespaces, &peer.pods) {
        return match selection.problem() {
            Some(problem) => Err(Unusable::Value(problem)),
            None => Ok((vec![Peer::Pods(selection)], Vec::new())),
        };
    }
    if direction == Direction::Ingress {
        return Err(Unusable::Unknown("only pods and namespaces can be peers of ingress rules".into()));
    }
    if let Some(nodes) = &peer.nodes {
        return match nodes.problem() {
            Some(problem) => Err(Unusable::Value(problem)),
            None => Ok((vec![Peer::Nodes(nodes.clone())], Vec::new())),
        };
    }
    if let Some(networks) = &peer.networks {
        let (mut blocks, mut bad) = (Vec::new(), Vec::new());
        for network in networks {
            match cidr::parse(network) {
                Ok(range) => blocks.push(Peer::Block(Block { range, except: Vec::new() })),
                Err(problem) => bad.push(problem),
            }
        }
        return Ok((blocks, bad));
    }
    // The API allows names in Accept rules only, where "unknown" means that nothing matches.
    let problem = "domainNames are not supported".to_owned();
    Err(if action == Action::Allow { Unusable::Value(problem) } else { Unusable::Unknown(problem) })
}

impl Listed<'_> {
    fn read(&self) -> Option<Vec<Result<Port, Unusable>>> {
        match (self.ports, self.protocols) {
            (None, None) => None,
            (ports, protocols) => {
                let ports = ports.unwrap_or_default().iter().map(admin_port);
                Some(ports.chain(protocols.unwrap_or_default().iter().map(cluster_protocol)).collect())
            }
        }
    }
}

fn admin_port(port: &AdminPort) -> Result<Port, Unusable> {
    let of = |text: &Option<String>, numbers: Result<PortNumbers, String>| {
        let protocol = protocol(text.as_deref()).map_err(Unusable::Value)?;
        Ok(Port { protocol: Some(protocol), numbers: numbers.map_err(Unusable::Value)? })
    };
    match (&port.port_number, &port.port_range, &port.named_port) {
        (Some(one), None, None) => of(&one.protocol, single(one.port)),
        (None, Some(some), None) => of(&some.protocol, range(some.start, some.end)),
        (None, None, Some(name)) => Ok(Port { protocol: None, numbers: PortNumbers::Named(name.clone()) }),
        _ => Err(Unusable::Unknown("not exactly one kind of port we know is set".into())),
    }
}

fn cluster_protocol(entry: &ClusterProtocol) -> Result<Port, Unusable> {
    let listed: [(Protocol, &Option<ClusterPorts>); 3] =
        [(Protocol::Tcp, &entry.tcp), (Protocol::Udp, &entry.udp), (Protocol::Sctp, &entry.sctp)];
    let mut set = listed.iter().filter_map(|(protocol, ports)| Some((*protocol, ports.as_ref()?)));
    match (set.next(), set.next(), &entry.destination_named_port) {
        (Some((protocol, ports)), None, None) => {
            let numbers = match &ports.destination_port {
                None => Ok(PortNumbers::All),
                Some(port) => match (port.number, &port.range) {
                    (Some(one), None) => single(one),
                    (None, Some(some)) => range(some.start, some.end),
                    _ => return Err(Unusable::Unknown("neither number nor range is set".into())),
                },
            };
            Ok(Port { protocol: Some(protocol), numbers: numbers.map_err(Unusable::Value)? })
        }
        (None, None, Some(name)) => Ok(Port { protocol: None, numbers: PortNumbers::Named(name.clone()) }),
        _ => Err(Unusable::Unknown("not exactly one protocol we know is set".into())),
    }
}

fn single(port: i64) -> Result<PortNumbers, String> {
    let port = number(port)?;
    Ok(PortNumbers::Range(port, port))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn admin(spec: Value) -> Policy {
        let json = json!({"metadata": {"name": "p"}, "spec": spec});
        Policy::from(&serde_json::from_value::<AdminNetworkPolicy>(json).unwrap())
    }

    fn cluster(spec: Value) -> Policy {
        let json = json!({"metadata": {"name": "p"}, "spec": spec});
        Policy::from(&serde_json::from_value::<ClusterNetworkPolicy>(json).unwrap())
    }

    fn with(egress: Value) -> Policy {
        admin(json!({"priority": 5, "subject": {"namespaces": {}}, "egress": [egress]}))
    }

    #[test]
    fn both_versions_say_the_same() {
        let old = with(json!({"action": "Allow", "to": [{"networks": ["10.0.0.1/8"]}],
            "ports": [{"portNumber": {"protocol": "UDP", "port": 53}}, {"portRange": {"start": 1, "end": 9}},
                      {"namedPort": "web"}]}));
        let new = cluster(json!({"tier": "Admin", "priority": 5, "subject": {"namespaces": {}},
            "egress": [{"action": "Accept", "to": [{"networks": ["10.0.0.0/8"]}],
                "protocols": [{"udp": {"destinationPort": {"number": 53}}},
                              {"tcp": {"destinationPort": {"range": {"start": 1, "end": 9}}}},
                              {"destinationNamedPort": "web"}]}]}));
        assert_eq!(old.rules, new.rules);
        assert_eq!((old.tier, old.priority, &old.subject), (new.tier, new.priority, &new.subject));
        assert!(old.problems.is_empty() && new.problems.is_empty());
    }

    #[test]
    fn unknown_kinds_fail_closed() {
        let allow = with(json!({"action": "Allow", "to": [{"namespaces": {}}, {"galaxies": {}}]}));
        assert_eq!(allow.rules[0].peers, Peers::Of(Vec::new()));
        for action in ["Deny", "Pass"] {
            let rule = &with(json!({"action": action, "to": [{"galaxies": {}}]})).rules[0];
            assert_eq!((rule.action, &rule.peers, &rule.ports), (Action::Deny, &Peers::Any, &Ports::Any));
        }
        let port = with(json!({"action": "Deny", "to": [{"namespaces": {}}], "ports": [{}]}));
        assert_eq!(port.rules[0].ports, Ports::Any);
        assert_eq!(port.problems.len(), 1);
    }

    #[test]
    fn bad_values_match_nothing_and_leave_the_rest() {
        let policy = with(json!({"action": "Deny", "to": [{"networks": ["10.0.0.0/99", "10.1.0.0/16"]}]}));
        let left = Peer::Block(Block { range: "10.1.0.0/16".parse().unwrap(), except: Vec::new() });
        assert_eq!(policy.rules[0].peers, Peers::Of(vec![left]));
        assert_eq!(policy.problems.len(), 1);
    }

    #[test]
    fn policies_without_meaning_select_no_pods() {
        let labels = Default::default();
        let selects = |policy: &Policy| {
            assert_eq!(policy.problems.len(), 1, "{:?}", policy.problems);
            policy.subject.matches_namespace("ns", &labels)
        };
        assert!(!selects(&admin(json!({"priority": 1001, "subject": {"namespaces": {}}}))));
        assert!(!selects(&admin(json!({"priority": 1, "subject": {}}))));
        assert!(!selects(&cluster(json!({"tier": "Top", "priority": 1, "subject": {"namespaces": {}}}))));
        for priority in [0, 99, 100, 1000] {
            assert_eq!(
                admin(json!({"priority": priority, "subject": {"namespaces": {}}})).priority,
                priority
            );
        }
    }
}
