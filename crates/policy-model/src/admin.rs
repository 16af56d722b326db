//! AdminNetworkPolicy, BaselineAdminNetworkPolicy (`v1alpha1`) and ClusterNetworkPolicy (`v1alpha2`): ordered rules before
//! and after the network policies.

use serde_json::Value;

use crate::cluster::{Cluster, End, Pod, Protocol};
use crate::json::{get, list, number, text};
use crate::network_policy::has_named_port;
use crate::selector::selects;
use crate::verdict::{Decision, PolicyName, Question, Rule, Why};

/// When policies are asked: the administrator's first, the baseline where nobody else has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    Admin,
    Baseline,
}

/// What a tier says about a connection of `subject`; none if it leaves the decision to the next one.
pub(crate) fn decide(cluster: &Cluster, tier: Tier, question: &Question<'_>) -> Option<Decision> {
    let Question { direction, subject, peer, .. } = *question;
    let mut policies: Vec<&Value> =
        cluster.admin_policies.iter().filter(|policy| tier_of(policy) == Some(tier)).collect();
    // "Policies with lower priority values have higher precedence." The baseline of v1alpha1
    // has none; here it comes last, which the API leaves open.
    policies.sort_by_key(|policy| number(&policy["spec"], "priority").unwrap_or(u16::MAX));
    for policy in policies {
        if !is_subject(cluster, &policy["spec"]["subject"], subject) {
            continue;
        }
        for (index, rule) in list(&policy["spec"], direction.member()).iter().enumerate() {
            let action = text(rule, "action").unwrap_or_default();
            let rule_name = Rule { policy: name_of(policy), direction, index };
            let decided = |allowed| Some(Decision { allowed, why: Why::Rules(vec![rule_name.clone()]) });
            let peers = list(rule, direction.peers());
            // A peer nobody understands: an Allow rule matches nothing, any other denies everything.
            if peers.iter().any(|one| !is_understood(one)) {
                if matches!(action, "Allow" | "Accept") {
                    continue;
                }
                return decided(false);
            }
            let matches = peers.iter().any(|one| is_peer(cluster, one, &peer)) && is_port(rule, question);
            match action {
                _ if !matches => {}
                "Allow" | "Accept" => return decided(true),
                "Deny" => return decided(false),
                // "Skips all further rules in the current tier".
                "Pass" => return None,
                _ => {}
            }
        }
    }
    None
}

fn tier_of(policy: &Value) -> Option<Tier> {
    match (text(policy, "kind"), text(&policy["spec"], "tier")) {
        (Some("AdminNetworkPolicy"), _) | (Some("ClusterNetworkPolicy"), Some("Admin")) => Some(Tier::Admin),
        (Some("BaselineAdminNetworkPolicy"), _) | (Some("ClusterNetworkPolicy"), Some("Baseline")) => {
            Some(Tier::Baseline)
        }
        _ => None,
    }
}

fn name_of(policy: &Value) -> PolicyName {
    let kind = match text(policy, "kind") {
        Some("AdminNetworkPolicy") => "AdminNetworkPolicy",
        Some("BaselineAdminNetworkPolicy") => "BaselineAdminNetworkPolicy",
        _ => "ClusterNetworkPolicy",
    };
    let name = text(&policy["metadata"], "name").unwrap_or_default().to_owned();
    PolicyName { kind, namespace: String::new(), name }
}

/// "Note that host-networked pods are not included in subject selection."
fn is_subject(cluster: &Cluster, subject: &Value, pod: &Pod) -> bool {
    if let Some(selector) = get(subject, "namespaces") {
        return cluster.namespaces.get(&pod.namespace).is_some_and(|labels| selects(selector, labels));
    }
    get(subject, "pods").is_some_and(|pods| selects_pod(cluster, pods, pod))
}

fn selects_pod(cluster: &Cluster, pods: &Value, pod: &Pod) -> bool {
    let all = Value::default();
    let namespaces = get(pods, "namespaceSelector").unwrap_or(&all);
    cluster.namespaces.get(&pod.namespace).is_some_and(|labels| selects(namespaces, labels))
        && selects(get(pods, "podSelector").unwrap_or(&all), &pod.labels)
}

fn is_understood(peer: &Value) -> bool {
    ["namespaces", "pods", "nodes", "networks", "domainNames"].iter().any(|kind| get(peer, kind).is_some())
}

fn is_peer(cluster: &Cluster, peer: &Value, end: &End<'_>) -> bool {
    let pod = end.pod.filter(|pod| pod.is_peer());
    if let Some(selector) = get(peer, "namespaces") {
        let labels = pod.and_then(|pod| cluster.namespaces.get(&pod.namespace));
        return labels.is_some_and(|labels| selects(selector, labels));
    }
    if let Some(pods) = get(peer, "pods") {
        return pod.is_some_and(|pod| selects_pod(cluster, pods, pod));
    }
    if let Some(selector) = get(peer, "nodes") {
        let mut nodes = cluster.nodes.values().filter(|node| selects(selector, &node.labels));
        return nodes.any(|node| node.addresses.contains(&end.ip));
    }
    let mut networks = list(peer, "networks").iter().filter_map(Value::as_str);
    networks.any(|cidr| cidr.parse::<ipnet::IpNet>().is_ok_and(|net| net.contains(&end.ip)))
}

/// `ports` of v1alpha1, `protocols` of v1alpha2; without either all traffic is meant, ICMP too.
fn is_port(rule: &Value, question: &Question<'_>) -> bool {
    let (ports, protocols) = (list(rule, "ports"), list(rule, "protocols"));
    if ports.is_empty() && protocols.is_empty() {
        return true;
    }
    ports.iter().any(|one| is_admin_port(one, question))
        || protocols.iter().any(|one| is_cluster_port(one, question))
}

fn is_admin_port(wanted: &Value, question: &Question<'_>) -> bool {
    let (protocol, port) = (question.protocol, question.port);
    let of_protocol =
        |value: &Value| Protocol::parse(text(value, "protocol").unwrap_or("TCP")) == Some(protocol);
    if let Some(one) = get(wanted, "portNumber") {
        return of_protocol(one) && number(one, "port") == Some(port);
    }
    if let Some(range) = get(wanted, "portRange") {
        return of_protocol(range) && is_in_range(range, port);
    }
    text(wanted, "namedPort").is_some_and(|name| has_named_port(question, name))
}

fn is_cluster_port(wanted: &Value, question: &Question<'_>) -> bool {
    let port = question.port;
    if let Some(name) = text(wanted, "destinationNamedPort") {
        return has_named_port(question, name);
    }
    let Some(inside) = get(wanted, &question.protocol.to_string()) else { return false };
    match get(inside, "destinationPort") {
        None => true,
        Some(one) if get(one, "range").is_some() => is_in_range(&one["range"], port),
        Some(one) => number(one, "number") == Some(port),
    }
}

fn is_in_range(range: &Value, port: u16) -> bool {
    let (Some(start), Some(end)) = (number(range, "start"), number(range, "end")) else { return false };
    (start..=end).contains(&port)
}
