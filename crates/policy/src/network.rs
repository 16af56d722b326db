//! NetworkPolicies (networking.k8s.io/v1).

use kapi::{IntOrString, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};

use crate::ports::{number, protocol, range};
use crate::{
    ACL_STATELESS, Action, Block, Direction, Directions, Kind, Namespaces, Peer, Peers, Policy, Port,
    PortNumbers, Ports, Rule, Selection, Tier, cidr,
};

impl From<&NetworkPolicy> for Policy {
    fn from(object: &NetworkPolicy) -> Policy {
        let (meta, spec) = (&object.metadata, &object.spec);
        let subject = Selection {
            namespaces: Namespaces::Named(meta.namespace.clone()),
            pods: Some(spec.pod_selector.clone()),
            host_pods: false,
            nodes: false,
        }
        .normal();
        let mut policy = Policy::empty(Kind::NetworkPolicy, meta, Tier::Network, subject);
        policy.stateless = meta.annotation(ACL_STATELESS) == Some("true");
        let mut problems = Vec::new();
        if let Some(problem) = policy.subject.problem() {
            problems.push(format!("spec.podSelector: {problem}; the policy is for no pods"));
        }
        policy.isolates = directions(object, &mut problems);
        let mut reader = Reader { namespace: &meta.namespace, problems: &mut problems };
        if policy.isolates.ingress {
            for (index, rule) in spec.ingress.iter().enumerate() {
                let place = format!("spec.ingress[{index}]");
                policy.rules.push(Rule {
                    direction: Direction::Ingress,
                    index,
                    name: String::new(),
                    action: Action::Allow,
                    peers: reader.peers(&format!("{place}.from"), &rule.from),
                    ports: reader.ports(&format!("{place}.ports"), &rule.ports),
                });
            }
        }
        if policy.isolates.egress {
            for (index, rule) in spec.egress.iter().enumerate() {
                let place = format!("spec.egress[{index}]");
                policy.rules.push(Rule {
                    direction: Direction::Egress,
                    index,
                    name: String::new(),
                    action: Action::Allow,
                    peers: reader.peers(&format!("{place}.to"), &rule.to),
                    ports: reader.ports(&format!("{place}.ports"), &rule.ports),
                });
            }
        }
        policy.problems = problems;
        policy
    }
}

/// Without policyTypes ingress is always meant, egress when there are rules for it. An empty list counts as absent.
fn directions(object: &NetworkPolicy, problems: &mut Vec<String>) -> Directions {
    let spec = &object.spec;
    let types = spec.policy_types.as_deref().unwrap_or_default();
    if types.is_empty() {
        return Directions { ingress: true, egress: !spec.egress.is_empty() };
    }
    for unknown in types.iter().filter(|kind| !matches!(kind.as_str(), "Ingress" | "Egress")) {
        problems.push(format!("spec.policyTypes: {unknown:?} is neither Ingress nor Egress; it is left out"));
    }
    let has = |kind: &str| types.iter().any(|one| one == kind);
    Directions { ingress: has("Ingress"), egress: has("Egress") }
}

struct Reader<'a> {
    namespace: &'a str,
    problems: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn peers(&mut self, place: &str, peers: &[NetworkPolicyPeer]) -> Peers {
        if peers.is_empty() {
            return Peers::Any;
        }
        let mut usable = Vec::new();
        for (index, peer) in peers.iter().enumerate() {
            match self.peer(peer) {
                Ok(peer) => usable.push(peer),
                Err(problem) => {
                    self.problems.push(format!("{place}[{index}]: {problem}; it allows nothing"));
                }
            }
        }
        Peers::Of(usable)
    }

    fn peer(&self, peer: &NetworkPolicyPeer) -> Result<Peer, String> {
        if let Some(block) = &peer.ip_block {
            if peer.pod_selector.is_some() || peer.namespace_selector.is_some() {
                return Err("ipBlock excludes podSelector and namespaceSelector".into());
            }
            let range = cidr::parse(&block.cidr)?;
            let except =
                block.except.iter().map(|part| cidr::parse(part)).collect::<Result<Vec<_>, String>>()?;
            if let Some(part) = except.iter().find(|part| !range.contains(*part)) {
                return Err(format!("ipBlock: {part} is excepted but not part of {range}"));
            }
            return Ok(Peer::Block(Block { range, except }));
        }
        let everything = peer.pod_selector.as_ref().is_none_or(|selector| selector.is_empty());
        let selection = match (&peer.namespace_selector, &peer.pod_selector) {
            (None, None) => {
                return Err("none of podSelector, namespaceSelector and ipBlock is set".into());
            }
            (None, Some(pods)) => Selection {
                namespaces: Namespaces::Named(self.namespace.to_owned()),
                pods: Some(pods.clone()),
                host_pods: true,
                nodes: everything,
            },
            (Some(namespaces), pods) => Selection {
                namespaces: Namespaces::Labelled(namespaces.clone()),
                host_pods: pods.is_some(),
                pods: pods.clone(),
                nodes: everything,
            },
        };
        match selection.problem() {
            Some(problem) => Err(problem),
            None => Ok(Peer::Pods(selection.normal())),
        }
    }

    fn ports(&mut self, place: &str, ports: &[NetworkPolicyPort]) -> Ports {
        if ports.is_empty() {
            return Ports::Any;
        }
        let mut usable = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            match read_port(port) {
                Ok(port) => usable.push(port),
                Err(problem) => {
                    self.problems.push(format!("{place}[{index}]: {problem}; it allows nothing"));
                }
            }
        }
        Ports::Of(usable)
    }
}

fn read_port(port: &NetworkPolicyPort) -> Result<Port, String> {
    let protocol = protocol(port.protocol.as_deref())?;
    let numbers = match (&port.port, port.end_port) {
        (None, None) => PortNumbers::All,
        (None, Some(_)) => return Err("endPort without port".into()),
        (Some(IntOrString::Int(first)), Some(last)) => range(i64::from(*first), i64::from(last))?,
        (Some(IntOrString::Int(one)), None) => {
            let one = number(i64::from(*one))?;
            PortNumbers::Range(one, one)
        }
        (Some(IntOrString::String(_)), Some(_)) => return Err("endPort with a named port".into()),
        (Some(IntOrString::String(name)), None) => PortNumbers::Named(name.clone()),
    };
    Ok(Port { protocol: Some(protocol), numbers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(spec: serde_json::Value) -> Policy {
        let json = serde_json::json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec});
        Policy::from(&serde_json::from_value::<NetworkPolicy>(json).unwrap())
    }

    fn directions(spec: serde_json::Value) -> (bool, bool) {
        let isolates = policy(spec).isolates;
        (isolates.ingress, isolates.egress)
    }

    #[test]
    fn policy_types_have_the_defaults_of_the_api() {
        use serde_json::json;
        assert_eq!(directions(json!({"podSelector": {}})), (true, false));
        assert_eq!(directions(json!({"podSelector": {}, "egress": [{}]})), (true, true));
        assert_eq!(directions(json!({"podSelector": {}, "policyTypes": ["Egress"]})), (false, true));
        assert_eq!(directions(json!({"podSelector": {}, "policyTypes": [], "egress": [{}]})), (true, true));
        let left_out = policy(json!({"podSelector": {}, "policyTypes": ["Ingress"], "egress": [{}]}));
        assert!(left_out.isolates.ingress && !left_out.isolates.egress && left_out.rules.is_empty());
    }

    #[test]
    fn what_cannot_be_used_allows_nothing_and_leaves_the_rest() {
        let policy = policy(serde_json::json!({"podSelector": {}, "ingress": [{
            "from": [
                {"ipBlock": {"cidr": "10.0.0.0/33"}},
                {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}},
                {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
                {},
                {"ipBlock": {"cidr": "10.1.2.3/16", "except": ["10.1.9.9/24"]}}],
            "ports": [
                {"port": 0}, {"port": 70000}, {"port": 80, "endPort": 79}, {"endPort": 3},
                {"port": "web", "endPort": 3}, {"protocol": "ICMP"}, {"port": 80, "endPort": 90}]}]}));
        assert_eq!(policy.problems.len(), 10, "{:#?}", policy.problems);
        let block =
            Block { range: "10.1.0.0/16".parse().unwrap(), except: vec!["10.1.9.0/24".parse().unwrap()] };
        assert_eq!(policy.rules[0].peers, Peers::Of(vec![Peer::Block(block)]));
        let range = Port { protocol: Some(crate::Protocol::Tcp), numbers: PortNumbers::Range(80, 90) };
        assert_eq!(policy.rules[0].ports, Ports::Of(vec![range]));
        assert!(policy.isolates.ingress);
    }

    #[test]
    fn a_subject_that_means_nothing_selects_nothing() {
        let policy = policy(
            serde_json::json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
        );
        assert_eq!(policy.problems.len(), 1);
        assert!(!policy.subject.matches_labels(&[("a".to_owned(), "b".to_owned())].into()));
    }

    /// The host's pods count only where a podSelector is written, the nodes only where all pods are meant.
    #[test]
    fn absent_and_empty_pod_selectors_differ() {
        let peer = |json: serde_json::Value| {
            let of = policy(serde_json::json!({"podSelector": {}, "ingress": [{"from": [json]}]}));
            match of.rules[0].peers.clone() {
                Peers::Of(peers) => match &peers[..] {
                    [Peer::Pods(selection)] => (selection.host_pods, selection.nodes),
                    other => panic!("{other:?}"),
                },
                Peers::Any => panic!("any"),
            }
        };
        assert_eq!(peer(serde_json::json!({"namespaceSelector": {}})), (false, true));
        assert_eq!(peer(serde_json::json!({"namespaceSelector": {}, "podSelector": {}})), (true, true));
        assert_eq!(peer(serde_json::json!({"podSelector": {"matchLabels": {"a": "b"}}})), (true, false));
    }
}
