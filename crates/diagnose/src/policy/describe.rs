//! Policies in words.

use kapi::{LabelSelector, Operator};
use policy::{Action, Direction, Namespaces, Peer, Peers, Port, PortNumbers, Ports, Rule, Selection};

/// `allow tcp 80 from pods app=web in this namespace`.
pub(crate) fn rule(rule: &Rule, own_namespace: &str) -> String {
    let action = match rule.action {
        Action::Allow => "allow",
        Action::Deny => "deny",
        Action::Pass => "pass on",
    };
    let (word, anybody) = match rule.direction {
        Direction::Ingress => ("from", "anybody"),
        Direction::Egress => ("to", "anybody"),
    };
    let peers = match &rule.peers {
        Peers::Any => anybody.to_owned(),
        Peers::Of(list) if list.is_empty() => "nobody".to_owned(),
        Peers::Of(list) => list.iter().map(|one| peer(one, own_namespace)).collect::<Vec<_>>().join(", or "),
    };
    format!("{action} {} {word} {peers}", ports(&rule.ports))
}

fn ports(ports: &Ports) -> String {
    match ports {
        Ports::Any => "everything".to_owned(),
        Ports::Of(list) if list.is_empty() => "no port".to_owned(),
        Ports::Of(list) => list.iter().map(port).collect::<Vec<_>>().join(", "),
    }
}

fn port(port: &Port) -> String {
    let protocol = port.protocol.map_or("any protocol's", |protocol| protocol.ovn());
    match &port.numbers {
        PortNumbers::All => format!("all {protocol}"),
        PortNumbers::Range(first, last) if first == last => format!("{protocol} {first}"),
        PortNumbers::Range(first, last) => format!("{protocol} {first}-{last}"),
        PortNumbers::Named(name) => format!("{protocol} {name:?}"),
    }
}

fn peer(peer: &Peer, own_namespace: &str) -> String {
    match peer {
        Peer::Pods(one) => selection(one, own_namespace),
        Peer::Nodes(one) if one.is_empty() => "all nodes".to_owned(),
        Peer::Nodes(one) => format!("nodes {}", selector(one)),
        Peer::Block(block) if block.except.is_empty() => block.range.to_string(),
        Peer::Block(block) => {
            let except: Vec<String> = block.except.iter().map(ToString::to_string).collect();
            format!("{} except {}", block.range, except.join(", "))
        }
    }
}

/// `pods app=web in namespaces team=mon`.
pub(crate) fn selection(selection: &Selection, own_namespace: &str) -> String {
    let pods = match &selection.pods {
        Some(one) if !one.is_empty() => format!("pods {}", selector(one)),
        _ => "all pods".to_owned(),
    };
    match &selection.namespaces {
        Namespaces::Named(name) if name == own_namespace => format!("{pods} in this namespace"),
        Namespaces::Named(name) => format!("{pods} in namespace {name}"),
        Namespaces::Labelled(one) if one.is_empty() => format!("{pods} in all namespaces"),
        Namespaces::Labelled(one) => format!("{pods} in namespaces {}", selector(one)),
    }
}

/// A selector as kubectl's `-l` takes it.
fn selector(selector: &LabelSelector) -> String {
    let mut parts: Vec<String> =
        selector.match_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    for one in &selector.match_expressions {
        let values = one.values.join(", ");
        parts.push(match one.operator {
            Operator::In => format!("{} in ({values})", one.key),
            Operator::NotIn => format!("{} notin ({values})", one.key),
            Operator::Exists => one.key.clone(),
            Operator::DoesNotExist => format!("!{}", one.key),
            Operator::Unknown => format!("{} with an unknown operator", one.key),
        });
    }
    parts.join(",")
}
