//! The rows the compiler makes, held against the model of the APIs on random clusters and on the conformance tables.
//!
//! `POLICY_CLUSTERS` is how many clusters (25), `POLICY_SEED` where their seeds begin (0).

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

#[path = "rows/asked.rs"]
mod asked;
#[path = "rows/expression.rs"]
mod expression;
#[path = "rows/zone.rs"]
mod zone;

use std::collections::BTreeMap;

use asked::{load, question, setting};
use diagnose::policy::{self, Reason};
use expression::Packet;
use policy_model::random::{self, Shape};
use policy_model::{Cluster, End, Party, Protocol, Traffic, Verdict, Why, tables, verdict};
use serde_json::{Value, json};
use zone::{Judgement, Zone};

/// What both zones' rows say: where the connection leaves its pod, and where it reaches one.
struct Judged {
    egress: Judgement,
    ingress: Judgement,
}

fn packet(from: &End<'_>, to: &End<'_>, is_out: bool, traffic: &Traffic) -> Option<(String, Packet)> {
    let pod = if is_out { to.pod? } else { from.pod? };
    let packet = Packet {
        port: format!("{}_{}", pod.namespace, pod.name),
        is_out,
        src: from.ip,
        dst: to.ip,
        protocol: traffic.protocol,
        dst_port: traffic.port,
    };
    Some((pod.node.clone(), packet))
}

fn judge(zones: &BTreeMap<String, Zone>, cluster: &Cluster, traffic: &Traffic) -> Judged {
    let from = cluster.source(&traffic.from, traffic.v6).unwrap();
    let to = cluster.destination(&traffic.to, traffic.v6).unwrap();
    let side = |is_out| match packet(&from, &to, is_out, traffic) {
        None => Judgement { allowed: true, acl: None },
        Some((node, packet)) => zones[&node].judge(&packet),
    };
    Judged { egress: side(false), ingress: side(true) }
}

/// The row an operator is told exists and is about this very packet.
fn told_rows_are_there(
    zones: &BTreeMap<String, Zone>,
    cluster: &Cluster,
    told: &policy::Cluster,
    traffic: &Traffic,
) -> Result<(), String> {
    let from = cluster.source(&traffic.from, traffic.v6).unwrap();
    let to = cluster.destination(&traffic.to, traffic.v6).unwrap();
    let family = if traffic.v6 { "IPv6" } else { "IPv4" };
    let verdict = policy::check(told, &question(traffic)).unwrap();
    let answer = verdict.answers.iter().find(|answer| answer.family == Some(family)).unwrap();
    for (is_out, decision) in [(false, &answer.egress), (true, &answer.ingress)] {
        let acl = match &decision.reason {
            Reason::Rule(rule) => &rule.acl,
            Reason::Isolated { acl, .. } => acl,
            _ => continue,
        };
        let (node, packet) = packet(&from, &to, is_out, traffic).unwrap();
        if !zones[&node].says(&acl.id, &acl.name, &packet) {
            return Err(format!("{} ({})", acl.id, acl.name));
        }
    }
    Ok(())
}

fn zones(objects: &[Value], cluster: &Cluster, dual: bool) -> BTreeMap<String, Zone> {
    cluster.nodes.keys().map(|node| (node.clone(), Zone::new(objects, node, dual))).collect()
}

/// A pod's packets to itself never reach the switch.
fn is_inside(verdict: &Verdict) -> bool {
    verdict.egress.why == Why::Itself
}

fn is_decided_by(judgement: &Judgement, decision: &policy_model::Decision) -> bool {
    let id = judgement.acl.as_ref().map_or("", |(id, _)| id);
    match &decision.why {
        // Nothing, or what lets nodes and hairpins in.
        Why::NoPod | Why::Itself | Why::OwnNode | Why::Default => {
            id.is_empty() || id.contains(":NetpolNode:") || id.contains(":NetpolDefault:")
        }
        Why::Isolated(_) => id.ends_with(":defaultDeny"),
        Why::Rules(rules) => rules.iter().any(|rule| {
            let policy = &rule.policy;
            let name = if policy.namespace.is_empty() {
                policy.name.clone()
            } else {
                format!("{}:{}", policy.namespace, policy.name)
            };
            id.contains(&format!(":{}:{name}:{:?}:{}:", policy.kind, rule.direction, rule.index))
        }),
    }
}

fn compare(objects: &[Value], dual: bool, all: impl Fn(&Cluster) -> Vec<Traffic>, about: &str) -> usize {
    let cluster = Cluster::new(objects);
    let (zones, told) = (zones(objects, &cluster, dual), load(objects));
    let mut asked = 0;
    for traffic in all(&cluster) {
        let wanted = verdict(&cluster, &traffic).unwrap();
        if is_inside(&wanted) {
            continue;
        }
        let judged = judge(&zones, &cluster, &traffic);
        for (wanted, is) in [(&wanted.egress, &judged.egress), (&wanted.ingress, &judged.ingress)] {
            assert!(
                wanted.allowed == is.allowed && is_decided_by(is, wanted),
                "{about}: {traffic}\nmodel: {wanted}\nrows: {is:?}"
            );
        }
        if let Err(row) = told_rows_are_there(&zones, &cluster, &told, &traffic) {
            panic!("{about}: {traffic}: no such row: {row}");
        }
        asked += 1;
    }
    asked
}

#[test]
fn rows_agree_with_the_model_on_random_clusters() {
    let first = setting("POLICY_SEED", 0);
    let mut asked = 0;
    for seed in first..first + setting("POLICY_CLUSTERS", 25) {
        let shape = Shape { dual: seed % 3 != 0, ..Shape::SMALL };
        let objects = random::cluster(seed, shape);
        asked += compare(&objects, shape.dual, random::traffic, &format!("seed {seed}"));
    }
    println!("{asked} connections");
    assert!(asked > 0);
}

#[test]
fn rows_agree_with_the_conformance_tables() {
    let mut objects = tables::objects(&["node1", "node2"], |_, _| Vec::new());
    for (at, pod) in objects.iter_mut().filter(|object| object["kind"] == "Pod").enumerate() {
        let (node, last) = (at % 2, at + 3);
        let network = json!({ "default": { "role": "primary",
            "ip_addresses": [format!("10.244.{node}.{last}/24"), format!("fd00:10:244:{}::{last:x}/64", node + 1)],
            "gateway_ips": [format!("10.244.{node}.1"), format!("fd00:10:244:{}::1", node + 1)],
            "mac_address": format!("0a:58:0a:f4:{node:02x}:{last:02x}") } });
        pod["metadata"]["annotations"] = json!({ "k8s.ovn.org/pod-networks": network.to_string() });
        pod["metadata"]["uid"] = json!(format!("uid-{at}"));
    }
    let nodes = random::cluster(0, Shape::SMALL);
    objects.extend(nodes.into_iter().filter(|object| object["kind"] == "Node"));
    let mut asked = 0;
    for case in tables::cases(&Cluster::new(&objects)) {
        let mut state = objects.clone();
        for (at, step) in case.steps.iter().enumerate() {
            tables::change(&mut state, step);
            asked += compare(&state, true, tables::traffic, &format!("{}, step {at}", case.name));
        }
    }
    println!("{asked} connections");
}

/// A pod on its node's network is found by the names of its ports too, at its node's address, by those rules that may mean it.
#[test]
fn names_of_ports_at_a_nodes_address() {
    let pod = |name: &str, host: bool, ip: &str, port: u16| {
        let network = json!({ "default": { "role": "primary", "mac_address": "0a:58:0a:f4:00:09",
            "ip_addresses": [format!("{ip}/24")], "gateway_ips": ["10.244.0.1"] } });
        let mut pod = json!({ "kind": "Pod",
            "metadata": { "name": name, "namespace": "x", "uid": name, "labels": { "pod": name } },
            "spec": { "nodeName": "node1", "hostNetwork": host,
                "containers": [{ "ports": [{ "name": "http", "containerPort": port }] }] },
            "status": { "phase": "Running", "podIPs": [{ "ip": ip }] } });
        if !host {
            pod["metadata"]["annotations"] = json!({ "k8s.ovn.org/pod-networks": network.to_string() });
        }
        pod
    };
    let nodes = random::cluster(0, Shape { dual: false, ..Shape::SMALL });
    let mut objects: Vec<Value> = nodes.into_iter().filter(|object| object["kind"] == "Node").collect();
    objects.push(json!({ "kind": "Namespace", "metadata": { "name": "x", "labels": {} } }));
    objects.push(pod("a", false, "10.244.0.9", 80));
    objects.push(pod("proxy", true, "172.18.0.1", 53));
    let port = json!([{ "port": "http" }]);
    for (peers, reaches) in [
        (json!([]), true),
        (json!([{ "podSelector": { "matchLabels": { "pod": "proxy" } } }]), true),
        (json!([{ "podSelector": { "matchLabels": { "pod": "a" } } }]), false),
        (json!([{ "namespaceSelector": {} }]), false),
        (json!([{ "ipBlock": { "cidr": "172.18.0.0/16" } }]), true),
        (json!([{ "ipBlock": { "cidr": "10.0.0.0/8" } }]), false),
    ] {
        let mut state = objects.clone();
        state.push(json!({ "kind": "NetworkPolicy", "metadata": { "name": "out", "namespace": "x" },
            "spec": { "podSelector": { "matchLabels": { "pod": "a" } }, "policyTypes": ["Egress"],
                "egress": [{ "to": peers, "ports": port }] } }));
        let about = format!("to {peers}");
        compare(&state, false, random::traffic, &about);
        let cluster = Cluster::new(&state);
        let traffic = |port| Traffic {
            from: Party::Pod("x".into(), "a".into()),
            to: Party::Node("node1".into()),
            v6: false,
            protocol: Protocol::Tcp,
            port,
        };
        assert_eq!(verdict(&cluster, &traffic(53)).unwrap().allowed(), reaches, "{about}");
        assert!(!verdict(&cluster, &traffic(80)).unwrap().allowed(), "{about}");
    }
}
