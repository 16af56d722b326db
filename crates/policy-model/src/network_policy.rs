//! NetworkPolicy (`networking.k8s.io/v1`): who is isolated, and what may pass all the same.

use serde_json::Value;

use crate::cluster::{Cluster, End, Pod, Protocol};
use crate::json::{get, list, number, text};
use crate::selector::selects;
use crate::verdict::{Decision, Direction, PolicyName, Question, Rule, Why};

/// The namespace that stands for the nodes (`host-network-namespace` in the configuration).
const HOST_NETWORK: &str = "ovn-host-network";

/// What the network policies say about a connection of `subject`; none if no policy selects the pod in this direction.
///
/// A pod that some policy selects in a direction is isolated in it: only what a rule of these policies allows passes.
pub(crate) fn decide(cluster: &Cluster, question: &Question<'_>) -> Option<Decision> {
    let Question { direction, subject, peer, .. } = *question;
    let mut isolating = Vec::new();
    let mut allowing = Vec::new();
    for policy in &cluster.network_policies {
        let namespace = text(&policy["metadata"], "namespace").unwrap_or("default");
        let spec = &policy["spec"];
        let empty = Value::default();
        let selected = namespace == subject.namespace
            && selects(get(spec, "podSelector").unwrap_or(&empty), &subject.labels);
        if !selected || !is_of_type(spec, direction) {
            continue;
        }
        let name = PolicyName {
            kind: "NetworkPolicy",
            namespace: namespace.to_owned(),
            name: text(&policy["metadata"], "name").unwrap_or_default().to_owned(),
        };
        for (index, rule) in list(spec, direction.member()).iter().enumerate() {
            let peers = list(rule, direction.peers());
            let ports = list(rule, "ports");
            // "If this field is empty or missing, this rule matches all sources" (or destinations, or ports).
            let peer_matches =
                peers.is_empty() || peers.iter().any(|one| is_peer(cluster, namespace, one, &peer));
            let port_matches = ports.is_empty()
                || ports.iter().any(|one| {
                    is_port(one, question) || is_port_on_node(cluster, namespace, peers, one, question)
                });
            if peer_matches && port_matches {
                allowing.push(Rule { policy: name.clone(), direction, index });
            }
        }
        isolating.push(name);
    }
    if isolating.is_empty() {
        None
    } else if allowing.is_empty() {
        Some(Decision { allowed: false, why: Why::Isolated(isolating) })
    } else {
        Some(Decision { allowed: true, why: Why::Rules(allowing) })
    }
}

/// Without types every policy is about ingress, and about egress if it has rules for it.
fn is_of_type(spec: &Value, direction: Direction) -> bool {
    let types = list(spec, "policyTypes");
    if types.is_empty() {
        return direction == Direction::Ingress || !list(spec, "egress").is_empty();
    }
    types.iter().any(|one| one.as_str() == Some(direction.name()))
}

fn is_peer(cluster: &Cluster, own_namespace: &str, peer: &Value, end: &End<'_>) -> bool {
    if let Some(block) = get(peer, "ipBlock") {
        return is_in_block(block, end);
    }
    let (namespaces, pods) = (get(peer, "namespaceSelector"), get(peer, "podSelector"));
    if namespaces.is_none() && pods.is_none() {
        return false;
    }
    let is_selected = |pod: &Pod| selects_pod(cluster, own_namespace, peer, pod);
    if let Some(pod) = end.pod.filter(|pod| pod.is_peer()) {
        return is_selected(pod);
    }
    // The API leaves pods on their node's network to the implementation. Here they are found where a podSelector is
    // written, and then stand for their node's addresses.
    let mut on_nodes = cluster.pods.values().filter(|pod| pod.host_network && !pod.finished);
    if pods.is_some() && on_nodes.any(|pod| pod.host_addresses.contains(&end.ip) && is_selected(pod)) {
        return true;
    }
    // A namespace stands for the nodes themselves, where all pods of namespaces are meant.
    let all_pods = pods.is_none_or(|selector| *selector == serde_json::json!({}));
    let in_namespace = match namespaces {
        None => own_namespace == HOST_NETWORK,
        Some(selector) => {
            cluster.namespaces.get(HOST_NETWORK).is_some_and(|labels| selects(selector, labels))
        }
    };
    all_pods && in_namespace && cluster.nodes.values().any(|node| node.seen_as.contains(&end.ip))
}

/// Whether the peer's selectors fit the pod's namespace and labels.
fn selects_pod(cluster: &Cluster, own_namespace: &str, peer: &Value, pod: &Pod) -> bool {
    let in_namespace = match get(peer, "namespaceSelector") {
        None => pod.namespace == own_namespace,
        Some(selector) => {
            cluster.namespaces.get(&pod.namespace).is_some_and(|labels| selects(selector, labels))
        }
    };
    in_namespace && get(peer, "podSelector").is_none_or(|selector| selects(selector, &pod.labels))
}

fn is_in_block(block: &Value, end: &End<'_>) -> bool {
    let contains = |cidr: Option<&str>| {
        cidr.and_then(|cidr| cidr.parse::<ipnet::IpNet>().ok()).is_some_and(|net| net.contains(&end.ip))
    };
    contains(text(block, "cidr")) && !list(block, "except").iter().any(|except| contains(except.as_str()))
}

fn is_port(wanted: &Value, question: &Question<'_>) -> bool {
    let port = question.port;
    if Protocol::parse(text(wanted, "protocol").unwrap_or("TCP")) != Some(question.protocol) {
        return false;
    }
    match get(wanted, "port") {
        None => true,
        Some(Value::String(name)) => has_named_port(question, name),
        Some(_) => {
            let Some(first) = number(wanted, "port") else { return false };
            (first..=number(wanted, "endPort").unwrap_or(first)).contains(&port)
        }
    }
}

/// Pods on their node's network stand for their node's addresses, and so do their ports' names, where such a pod may be
/// meant: the API leaves it open.
fn is_port_on_node(
    cluster: &Cluster,
    own_namespace: &str,
    peers: &[Value],
    wanted: &Value,
    question: &Question<'_>,
) -> bool {
    let Some(name) = text(wanted, "port").filter(|_| question.direction == Direction::Egress) else {
        return false;
    };
    if Protocol::parse(text(wanted, "protocol").unwrap_or("TCP")) != Some(question.protocol) {
        return false;
    }
    let is_meant = |pod: &Pod| {
        let by_address = |peer: &Value| get(peer, "ipBlock").is_some();
        peers.is_empty()
            || peers.iter().any(by_address)
            || peers.iter().any(|peer| {
                get(peer, "podSelector").is_some() && selects_pod(cluster, own_namespace, peer, pod)
            })
    };
    cluster.pods.values().any(|pod| {
        pod.host_network
            && !pod.finished
            && pod.host_addresses.contains(&question.destination.ip)
            && is_meant(pod)
            && pod.ports.iter().any(|one| {
                one.name == name && one.number == question.port && one.protocol == question.protocol
            })
    })
}

/// Whether a container of the destination calls the port by this name.
pub(crate) fn has_named_port(question: &Question<'_>, name: &str) -> bool {
    let mut ports = question.destination.pod.into_iter().flat_map(|pod| &pod.ports);
    ports.any(|one| one.name == name && one.number == question.port && one.protocol == question.protocol)
}
