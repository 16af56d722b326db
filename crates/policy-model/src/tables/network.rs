//! NetworkPolicy: the cases of the Kubernetes end-to-end tests.

use serde_json::{Value, json};

use super::{Case, Label, Reach, Step};
use crate::cluster::{Cluster, Protocol};

pub(super) fn policy(namespace: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "namespace": namespace, "name": name }, "spec": spec })
}

pub(super) fn pod(name: &str) -> Value {
    json!({ "matchLabels": { "pod": name } })
}

pub(super) fn ns(name: &str) -> Value {
    json!({ "matchLabels": { "ns": name } })
}

/// Ingress to pods a of x under these rules.
fn ingress(rules: Value) -> Vec<Value> {
    vec![policy("x", "in", json!({ "podSelector": pod("a"), "policyTypes": ["Ingress"], "ingress": rules }))]
}

/// Egress from pods a of x under these rules.
fn egress(rules: Value) -> Vec<Value> {
    vec![policy("x", "out", json!({ "podSelector": pod("a"), "policyTypes": ["Egress"], "egress": rules }))]
}

fn closed() -> Reach {
    Reach::all().deny("*/*", "x/a")
}

fn mute() -> Reach {
    Reach::all().deny("x/a", "*/*")
}

fn one(name: &'static str, apply: Vec<Value>, expect: Reach) -> Case {
    Case { name, steps: vec![Step::apply(apply, expect)] }
}

pub(super) fn cases(cluster: &Cluster) -> Vec<Case> {
    let mut cases = isolation();
    cases.extend(selectors());
    cases.extend(ports());
    cases.extend(changes());
    cases.extend(blocks(cluster));
    cases
}

fn isolation() -> Vec<Case> {
    let deny = |types: Value| policy("x", "deny", json!({ "podSelector": {}, "policyTypes": types }));
    vec![
        one("no policy", Vec::new(), Reach::all()),
        one("default deny of ingress", vec![deny(json!(["Ingress"]))], Reach::all().deny("*/*", "x/*")),
        one("default deny of egress", vec![deny(json!(["Egress"]))], Reach::all().deny("x/*", "*/*")),
        one(
            "default deny of all",
            vec![deny(json!(["Ingress", "Egress"]))],
            Reach::all().deny("*/*", "x/*").deny("x/*", "*/*"),
        ),
        one(
            "a policy without types and rules is about ingress",
            vec![deny(json!([]))],
            Reach::all().deny("*/*", "x/*"),
        ),
        one("allow all", ingress(json!([{}])), Reach::all()),
        one("empty lists allow all", ingress(json!([{ "from": [], "ports": [] }])), Reach::all()),
        one(
            "ingress and egress of one pod are judged apart",
            vec![policy(
                "x",
                "both",
                json!({ "podSelector": pod("a"), "policyTypes": ["Ingress", "Egress"],
                "ingress": [{ "from": [{ "podSelector": pod("b") }] }],
                "egress": [{ "to": [{ "podSelector": pod("c") }] }] }),
            )],
            closed().deny("x/a", "*/*").allow("x/b", "x/a").allow("x/a", "x/c"),
        ),
        one(
            "rules of a direction that is not among the types mean nothing",
            vec![policy(
                "x",
                "half",
                json!({ "podSelector": pod("a"), "policyTypes": ["Ingress"],
                "ingress": [{}], "egress": [{ "to": [{ "podSelector": pod("c") }] }] }),
            )],
            Reach::all(),
        ),
        one(
            "egress rules without types isolate both ways",
            vec![policy(
                "x",
                "half",
                json!({ "podSelector": pod("a"),
                "egress": [{ "to": [{ "podSelector": pod("c") }] }] }),
            )],
            closed().deny("x/a", "*/*").allow("x/a", "x/c"),
        ),
        one(
            "both ends must agree",
            [
                ingress(json!([{ "from": [{ "namespaceSelector": ns("y") }] }])),
                vec![policy(
                    "y",
                    "out",
                    json!({ "podSelector": pod("b"), "policyTypes": ["Egress"], "egress": [] }),
                )],
            ]
            .concat(),
            closed().allow("y/*", "x/a").deny("y/b", "*/*"),
        ),
    ]
}

fn selectors() -> Vec<Case> {
    let expression = |key: &str, operator: &str, values: Value| {
        let mut one = json!({ "key": key, "operator": operator });
        if values != json!([]) {
            one["values"] = values;
        }
        json!({ "matchExpressions": [one] })
    };
    let from = |peers: Value| ingress(json!([{ "from": peers }]));
    vec![
        one(
            "pods of the own namespace",
            from(json!([{ "podSelector": pod("b") }])),
            closed().allow("x/b", "x/a"),
        ),
        one(
            "all pods of the own namespace",
            from(json!([{ "podSelector": {} }])),
            closed().allow("x/*", "x/a"),
        ),
        one("all namespaces", from(json!([{ "namespaceSelector": {} }])), Reach::all()),
        one("one namespace", from(json!([{ "namespaceSelector": ns("y") }])), closed().allow("y/*", "x/a")),
        one(
            "a namespace by its name",
            from(json!([{ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "z" } } }])),
            closed().allow("z/*", "x/a"),
        ),
        one(
            "expressions on pods",
            from(json!([{ "podSelector": expression("pod", "In", json!(["b", "d"])) }])),
            closed().allow("x/b", "x/a"),
        ),
        one(
            "expressions on namespaces",
            from(json!([{ "namespaceSelector": expression("ns", "NotIn", json!(["x"])) }])),
            closed().allow("y/*", "x/a").allow("z/*", "x/a"),
        ),
        one(
            "a label that nobody has",
            from(json!([{ "namespaceSelector": expression("none", "Exists", json!([])) }])),
            closed(),
        ),
        one(
            "a label that nobody may have",
            from(json!([{ "namespaceSelector": expression("none", "DoesNotExist", json!([])) }])),
            Reach::all(),
        ),
        one(
            "pods or namespaces",
            from(json!([{ "podSelector": pod("b") }, { "namespaceSelector": ns("y") }])),
            closed().allow("x/b", "x/a").allow("y/*", "x/a"),
        ),
        one(
            "pods in namespaces",
            from(json!([{ "namespaceSelector": ns("y"), "podSelector": pod("b") }])),
            closed().allow("y/b", "x/a"),
        ),
        one(
            "several pods in several namespaces",
            from(json!([{ "namespaceSelector": expression("ns", "In", json!(["y", "z"])),
                "podSelector": expression("pod", "In", json!(["b", "c"])) }])),
            closed().allow("y/b", "x/a").allow("y/c", "x/a").allow("z/b", "x/a").allow("z/c", "x/a"),
        ),
        one(
            "any of two pod selectors",
            from(json!([{ "podSelector": pod("b") }, { "podSelector": pod("c") }])),
            closed().allow("x/b", "x/a").allow("x/c", "x/a"),
        ),
        one(
            "egress to pods of the own namespace",
            egress(json!([{ "to": [{ "podSelector": pod("b") }] }])),
            mute().allow("x/a", "x/b"),
        ),
        one(
            "egress to a pod of another namespace",
            egress(json!([{ "to": [{ "namespaceSelector": ns("y"), "podSelector": pod("a") }] }])),
            mute().allow("x/a", "y/a"),
        ),
        one(
            "only from outside of the own namespace",
            vec![policy(
                "x",
                "in",
                json!({ "podSelector": {}, "ingress": [
                { "from": [{ "namespaceSelector": expression("ns", "NotIn", json!(["x"])) }] }] }),
            )],
            Reach::all().deny("x/*", "x/*"),
        ),
    ]
}

fn ports() -> Vec<Case> {
    use Protocol::{Sctp, Tcp, Udp};
    let from_y = json!([{ "namespaceSelector": ns("y") }]);
    vec![
        one(
            "one port from one namespace",
            ingress(json!([{ "from": from_y, "ports": [{ "protocol": "TCP", "port": 81 }] }])),
            closed().allow_port("y/*", "x/a", Tcp, 81),
        ),
        one(
            "TCP is meant where none is named",
            ingress(json!([{ "ports": [{ "port": 80 }] }])),
            closed().allow_port("*/*", "x/a", Tcp, 80),
        ),
        one(
            "UDP does not mean TCP",
            ingress(json!([{ "ports": [{ "protocol": "UDP", "port": 80 }] }])),
            closed().allow_port("*/*", "x/a", Udp, 80),
        ),
        one(
            "SCTP does not mean TCP",
            ingress(json!([{ "ports": [{ "protocol": "SCTP", "port": 80 }] }])),
            closed().allow_port("*/*", "x/a", Sctp, 80),
        ),
        one(
            "a protocol without a port means all of its ports",
            ingress(json!([{ "ports": [{ "protocol": "SCTP" }] }])),
            closed().allow_port("*/*", "x/a", Sctp, 0),
        ),
        one(
            "a named port",
            ingress(json!([{ "ports": [{ "protocol": "TCP", "port": "serve-81-tcp" }] }])),
            closed().allow_port("*/*", "x/a", Tcp, 81),
        ),
        one(
            "a named port of another protocol",
            ingress(json!([{ "ports": [{ "protocol": "TCP", "port": "serve-81-udp" }] }])),
            closed(),
        ),
        one(
            "a named port from one namespace",
            ingress(json!([{ "from": from_y, "ports": [{ "protocol": "UDP", "port": "serve-80-udp" }] }])),
            closed().allow_port("y/*", "x/a", Udp, 80),
        ),
        one(
            "egress to a named port",
            egress(json!([{ "ports": [{ "protocol": "TCP", "port": "serve-80-tcp" }] }])),
            mute().allow_port("x/a", "*/*", Tcp, 80),
        ),
        one(
            "a range of ports",
            ingress(json!([{ "ports": [{ "protocol": "TCP", "port": 79, "endPort": 80 }] }])),
            closed().allow_port("*/*", "x/a", Tcp, 80),
        ),
        one(
            "egress to a range of ports",
            egress(json!([{ "ports": [{ "protocol": "UDP", "port": 81, "endPort": 90 }] }])),
            mute().allow_port("x/a", "*/*", Udp, 81),
        ),
        one(
            "a range of both ports",
            ingress(json!([{ "from": from_y, "ports": [{ "protocol": "TCP", "port": 80, "endPort": 81 }] }])),
            closed().allow_port("y/*", "x/a", Tcp, 0),
        ),
        one(
            "policies for the same pod add up",
            [
                ingress(json!([{ "from": from_y, "ports": [{ "protocol": "TCP", "port": 80 }] }])),
                vec![policy(
                    "x",
                    "more",
                    json!({ "podSelector": {}, "ingress": [
                    { "from": from_y, "ports": [{ "protocol": "TCP", "port": 81 }] }] }),
                )],
            ]
            .concat(),
            Reach::all()
                .deny("*/*", "x/*")
                .allow_port("y/*", "x/*", Tcp, 81)
                .allow_port("y/*", "x/a", Tcp, 80),
        ),
        one(
            "two rules of one policy do not mix",
            ingress(json!([
                { "from": [{ "podSelector": pod("b") }], "ports": [{ "protocol": "TCP", "port": 80 }] },
                { "from": from_y, "ports": [{ "protocol": "UDP", "port": 81 }] }])),
            closed().allow_port("x/b", "x/a", Tcp, 80).allow_port("y/*", "x/a", Udp, 81),
        ),
        one(
            "allow all beside a narrower policy",
            [
                ingress(json!([{ "from": [{ "podSelector": pod("b") }] }])),
                vec![policy("x", "all", json!({ "podSelector": {}, "ingress": [{}] }))],
            ]
            .concat(),
            Reach::all(),
        ),
        one(
            "egress: allow all beside a narrower policy",
            [
                egress(json!([{ "to": [{ "podSelector": pod("b") }] }])),
                vec![policy(
                    "x",
                    "all",
                    json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": [{}] }),
                )],
            ]
            .concat(),
            Reach::all(),
        ),
    ]
}

fn changes() -> Vec<Case> {
    let from_b = ingress(json!([{ "from": [{ "podSelector": pod("b") }] }]));
    let of_pod = |pod, key, value| Label { namespace: "x", pod: Some(pod), key, value };
    let of_namespace = |key, value| Label { namespace: "y", pod: None, key, value };
    let new_team = json!([{ "from": [{ "namespaceSelector": { "matchLabels": { "team": "new" } } }] }]);
    vec![
        Case {
            name: "a policy is changed, and deleted",
            steps: vec![
                Step::apply(ingress(json!([{}])), Reach::all()),
                Step::apply(ingress(json!([])), closed()),
                Step::apply(from_b.clone(), closed().allow("x/b", "x/a")),
                Step::delete(from_b.clone(), Reach::all()),
            ],
        },
        Case {
            name: "a namespace gets a label and loses it",
            steps: vec![
                Step::apply(ingress(new_team), closed()),
                Step::label(vec![of_namespace("team", Some("new"))], closed().allow("y/*", "x/a")),
                Step::label(vec![of_namespace("team", None)], closed()),
            ],
        },
        Case {
            name: "a peer gets a label and loses it",
            steps: vec![
                Step::apply(
                    ingress(json!([{ "from": [{ "podSelector": { "matchLabels": { "new": "yes" } } }] }])),
                    closed(),
                ),
                Step::label(vec![of_pod("c", "new", Some("yes"))], closed().allow("x/c", "x/a")),
                Step::label(vec![of_pod("c", "new", None)], closed()),
            ],
        },
        Case {
            name: "a pod becomes isolated by a label and open again",
            steps: vec![
                Step::apply(
                    vec![policy(
                        "x",
                        "in",
                        json!({ "podSelector": { "matchLabels": { "target": "yes" } }, "ingress": [] }),
                    )],
                    Reach::all(),
                ),
                Step::label(vec![of_pod("a", "target", Some("yes"))], closed()),
                Step::label(vec![of_pod("a", "target", None)], Reach::all()),
            ],
        },
        Case {
            name: "one of two policies is deleted",
            steps: vec![
                Step::apply(
                    [from_b.clone(), egress(json!([{ "to": [{ "namespaceSelector": ns("z") }] }]))].concat(),
                    closed().deny("x/a", "*/*").allow("x/b", "x/a").allow("x/a", "z/*"),
                ),
                Step::delete(from_b, mute().allow("x/a", "z/*")),
            ],
        },
    ]
}

/// Ranges around the pods' own addresses.
fn blocks(cluster: &Cluster) -> Vec<Case> {
    let addresses = |namespace: &str, name: &str| {
        let pod = cluster.pods.get(&(namespace.to_owned(), name.to_owned()));
        pod.map(|pod| pod.addresses.clone()).unwrap_or_default()
    };
    let full = |ip: &std::net::IpAddr| format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 });
    let everything = |ip: &std::net::IpAddr| if ip.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    let only = |namespace: &str, name: &str| -> Vec<Value> {
        addresses(namespace, name).iter().map(|ip| json!({ "ipBlock": { "cidr": full(ip) } })).collect()
    };
    let without = |namespace: &str, name: &str| -> Vec<Value> {
        let blocks = addresses(namespace, name);
        blocks
            .iter()
            .map(|ip| json!({ "ipBlock": { "cidr": everything(ip), "except": [full(ip)] } }))
            .collect()
    };
    let with_two = |one: Vec<Value>, two: Vec<Value>| Value::from([one, two].concat());
    vec![
        one("egress to one address", egress(json!([{ "to": only("y", "b") }])), mute().allow("x/a", "y/b")),
        one(
            "ingress from one address",
            ingress(json!([{ "from": only("y", "b") }])),
            closed().allow("y/b", "x/a"),
        ),
        one(
            "egress to all addresses but one",
            egress(json!([{ "to": without("y", "b") }])),
            Reach::all().deny("x/a", "y/b"),
        ),
        one(
            "what one block excepts another may allow",
            egress(json!([{ "to": with_two(without("y", "b"), only("y", "b")) }])),
            Reach::all(),
        ),
        Case {
            name: "what one policy excepts another may allow",
            steps: vec![
                Step::apply(egress(json!([{ "to": without("y", "b") }])), Reach::all().deny("x/a", "y/b")),
                Step::apply(
                    vec![policy(
                        "x",
                        "more",
                        json!({ "podSelector": pod("a"), "policyTypes": ["Egress"],
                        "egress": [{ "to": only("y", "b") }] }),
                    )],
                    Reach::all(),
                ),
            ],
        },
        one(
            "an excepted address may be allowed as a pod",
            ingress(
                json!([{ "from": with_two(without("y", "b"), vec![json!({ "namespaceSelector": ns("y"), "podSelector": pod("b") })]) }]),
            ),
            Reach::all(),
        ),
    ]
}
