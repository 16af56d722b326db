//! AdminNetworkPolicy, BaselineAdminNetworkPolicy and ClusterNetworkPolicy: the cases of the API's conformance tests, told with
//! the cluster of the other tables. Each case of v1alpha1 is told in v1alpha2 as well.

use serde_json::{Value, json};

use super::network::{ns, pod, policy};
use super::{Case, Reach, Step};
use crate::cluster::{Cluster, Protocol};

fn admin(name: &str, priority: u16, subject: Value, ingress: Value, egress: Value) -> Value {
    json!({ "apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": "AdminNetworkPolicy",
        "metadata": { "name": name },
        "spec": { "priority": priority, "subject": subject, "ingress": ingress, "egress": egress } })
}

fn baseline(subject: Value, ingress: Value, egress: Value) -> Value {
    json!({ "apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": "BaselineAdminNetworkPolicy",
        "metadata": { "name": "default" },
        "spec": { "subject": subject, "ingress": ingress, "egress": egress } })
}

/// The same policy in the words of v1alpha2.
fn successor(old: &Value) -> Value {
    let mut spec = old["spec"].clone();
    let is_baseline = old["kind"] == "BaselineAdminNetworkPolicy";
    spec["tier"] = json!(if is_baseline { "Baseline" } else { "Admin" });
    if is_baseline {
        spec["priority"] = json!(0);
    }
    for direction in ["ingress", "egress"] {
        for rule in spec[direction].as_array_mut().into_iter().flatten() {
            if rule["action"] == "Allow" {
                rule["action"] = json!("Accept");
            }
            if let Some(Value::Array(ports)) = rule.as_object_mut().and_then(|rule| rule.remove("ports")) {
                rule["protocols"] = ports.iter().map(protocol).collect();
            }
        }
    }
    json!({ "apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
        "metadata": old["metadata"], "spec": spec })
}

fn protocol(port: &Value) -> Value {
    if let Some(name) = port.get("namedPort") {
        return json!({ "destinationNamedPort": name });
    }
    let (inside, wanted) = match port.get("portNumber") {
        Some(one) => (one, json!({ "number": one["port"] })),
        None => {
            let range = &port["portRange"];
            (range, json!({ "range": { "start": range["start"], "end": range["end"] } }))
        }
    };
    json!({ inside["protocol"].as_str().unwrap_or("TCP").to_lowercase(): { "destinationPort": wanted } })
}

fn namespaces(name: &str) -> Value {
    json!({ "namespaces": ns(name) })
}

fn pods(namespace: &str, name: &str) -> Value {
    json!({ "pods": { "namespaceSelector": ns(namespace), "podSelector": pod(name) } })
}

fn from(action: &str, peers: Value, ports: Value) -> Value {
    rule("from", action, peers, ports)
}

fn to(action: &str, peers: Value, ports: Value) -> Value {
    rule("to", action, peers, ports)
}

fn rule(field: &str, action: &str, peers: Value, ports: Value) -> Value {
    let mut rule = json!({ "name": "rule", "action": action, field: peers });
    if ports != json!([]) {
        rule["ports"] = ports;
    }
    rule
}

fn number(protocol: &str, port: u16) -> Value {
    json!({ "portNumber": { "protocol": protocol, "port": port } })
}

pub(super) fn cases(cluster: &Cluster) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, new_name, steps) in old(cluster) {
        let steps: Vec<Step> = steps.into_iter().map(|(apply, expect)| Step::apply(apply, expect)).collect();
        let renewed = steps.iter().map(|step| {
            let apply = step.apply.iter();
            let apply =
                apply.map(|one| if one["kind"] == "NetworkPolicy" { one.clone() } else { successor(one) });
            Step::apply(apply.collect(), step.expect.clone())
        });
        cases.push(Case { name: new_name, steps: renewed.collect() });
        cases.push(Case { name, steps });
    }
    cases
}

type Told = (&'static str, &'static str, Vec<(Vec<Value>, Reach)>);

fn old(cluster: &Cluster) -> Vec<Told> {
    let mut all = rules();
    all.extend(order());
    all.extend(tiers());
    all.extend(networks(cluster));
    all
}

fn rules() -> Vec<Told> {
    use Protocol::{Sctp, Tcp, Udp};
    let none = || json!([]);
    let all = || json!([{ "namespaces": {} }]);
    let x = || namespaces("x");
    let closed = || Reach::all().deny("*/*", "x/*");
    vec![
        (
            "ANP: ingress is denied from a namespace",
            "CNP: ingress is denied from a namespace",
            vec![(
                vec![admin("a", 10, x(), json!([from("Deny", json!([namespaces("y")]), none())]), none())],
                Reach::all().deny("y/*", "x/*"),
            )],
        ),
        (
            "ANP: the first rule that matches decides",
            "CNP: the first rule that matches decides",
            vec![(
                vec![admin(
                    "a",
                    10,
                    x(),
                    json!([
                        from("Allow", json!([pods("y", "a")]), none()),
                        from("Deny", json!([namespaces("y")]), none()),
                        from("Allow", json!([pods("y", "b")]), none()),
                    ]),
                    none(),
                )],
                Reach::all().deny("y/*", "x/*").allow("y/a", "x/*"),
            )],
        ),
        (
            "ANP: ports and protocols of ingress",
            "CNP: ports and protocols of ingress",
            vec![(
                vec![admin(
                    "a",
                    10,
                    x(),
                    json!([
                        from(
                            "Allow",
                            all(),
                            json!([number("TCP", 80), number("UDP", 81), number("SCTP", 80)])
                        ),
                        from("Deny", all(), none()),
                    ]),
                    none(),
                )],
                closed()
                    .allow_port("*/*", "x/*", Tcp, 80)
                    .allow_port("*/*", "x/*", Udp, 81)
                    .allow_port("*/*", "x/*", Sctp, 80),
            )],
        ),
        (
            "ANP: ports and protocols of egress",
            "CNP: ports and protocols of egress",
            vec![(
                vec![admin(
                    "a",
                    10,
                    x(),
                    none(),
                    json!([
                        to("Deny", json!([namespaces("y")]), json!([number("SCTP", 81), number("TCP", 81)])),
                        to(
                            "Deny",
                            json!([pods("z", "c")]),
                            json!([{ "portRange": { "protocol": "UDP", "start": 80, "end": 81 } }])
                        ),
                    ]),
                )],
                Reach::all()
                    .deny_port("x/*", "y/*", Sctp, 81)
                    .deny_port("x/*", "y/*", Tcp, 81)
                    .deny_port("x/*", "z/c", Udp, 0),
            )],
        ),
        (
            "ANP: a subject of pods",
            "CNP: a subject of pods",
            vec![(
                vec![admin("a", 10, pods("x", "a"), json!([from("Deny", all(), none())]), none())],
                Reach::all().deny("*/*", "x/a"),
            )],
        ),
        (
            "ANP: named ports",
            "CNP: named ports",
            vec![(
                vec![admin(
                    "a",
                    10,
                    x(),
                    json!([from("Deny", all(), json!([{ "namedPort": "serve-80-tcp" }]))]),
                    json!([to("Deny", all(), json!([{ "namedPort": "serve-81-udp" }]))]),
                )],
                Reach::all().deny_port("*/*", "x/*", Tcp, 80).deny_port("x/*", "*/*", Udp, 81),
            )],
        ),
        (
            "ANP: a rule without ports is about everything",
            "CNP: a rule without ports is about everything",
            vec![(
                vec![admin("a", 0, x(), none(), json!([to("Deny", json!([namespaces("z")]), none())]))],
                Reach::all().deny("x/*", "z/*"),
            )],
        ),
        (
            "ANP: rules change and change their order",
            "CNP: rules change and change their order",
            vec![
                (
                    vec![admin(
                        "a",
                        1000,
                        x(),
                        json!([from("Allow", json!([pods("y", "a")]), none()), from("Deny", all(), none())]),
                        none(),
                    )],
                    closed().allow("y/a", "x/*"),
                ),
                (
                    vec![admin(
                        "a",
                        1000,
                        x(),
                        json!([from("Deny", all(), none()), from("Allow", json!([pods("y", "a")]), none())]),
                        none(),
                    )],
                    closed(),
                ),
            ],
        ),
    ]
}

fn order() -> Vec<Told> {
    let none = || json!([]);
    let x = || namespaces("x");
    let deny_y = |priority| {
        admin("deny", priority, x(), json!([from("Deny", json!([namespaces("y")]), json!([]))]), json!([]))
    };
    let allow_ya = |priority| {
        admin("allow", priority, x(), json!([from("Allow", json!([pods("y", "a")]), json!([]))]), json!([]))
    };
    let pass_y = |priority| {
        admin("pass", priority, x(), json!([from("Pass", json!([namespaces("y")]), json!([]))]), json!([]))
    };
    let in_y = || {
        policy(
            "x",
            "in",
            json!({ "podSelector": {}, "ingress": [{ "from": [{ "namespaceSelector": ns("y"), "podSelector": pod("b") }] }] }),
        )
    };
    vec![
        (
            "ANP: the lower priority is asked first, also far up",
            "CNP: the lower priority is asked first, also far up",
            vec![
                (vec![deny_y(500), allow_ya(499)], Reach::all().deny("y/*", "x/*").allow("y/a", "x/*")),
                (vec![allow_ya(501)], Reach::all().deny("y/*", "x/*")),
                (vec![deny_y(1000), allow_ya(0)], Reach::all().deny("y/*", "x/*").allow("y/a", "x/*")),
                (vec![deny_y(99), allow_ya(100)], Reach::all().deny("y/*", "x/*")),
            ],
        ),
        (
            "ANP: pass leaves the rest of the tier out",
            "CNP: pass leaves the rest of the tier out",
            vec![
                (vec![deny_y(20)], Reach::all().deny("y/*", "x/*")),
                (vec![pass_y(10)], Reach::all()),
                (vec![in_y()], Reach::all().deny("*/*", "x/*").allow("y/b", "x/*")),
            ],
        ),
        (
            "ANP: allow and deny stand above network policies",
            "CNP: allow and deny stand above network policies",
            vec![
                (vec![in_y()], Reach::all().deny("*/*", "x/*").allow("y/b", "x/*")),
                (vec![allow_ya(20)], Reach::all().deny("*/*", "x/*").allow("y/b", "x/*").allow("y/a", "x/*")),
                (vec![deny_y(30)], Reach::all().deny("*/*", "x/*").allow("y/a", "x/*")),
            ],
        ),
        (
            "ANP: an allowed egress does not open the other end",
            "CNP: an allowed egress does not open the other end",
            vec![(
                vec![
                    admin(
                        "out",
                        5,
                        namespaces("y"),
                        none(),
                        json!([to("Allow", json!([namespaces("x")]), none())]),
                    ),
                    policy("x", "in", json!({ "podSelector": {}, "ingress": [] })),
                ],
                Reach::all().deny("*/*", "x/*"),
            )],
        ),
    ]
}

fn tiers() -> Vec<Told> {
    let none = || json!([]);
    let all = || json!([{ "namespaces": {} }]);
    let x = || namespaces("x");
    let shut = || baseline(x(), json!([from("Deny", all(), json!([]))]), json!([]));
    vec![
        (
            "BANP: it holds where nothing else decides",
            "CNP: the baseline holds where nothing else decides",
            vec![
                (vec![shut()], Reach::all().deny("*/*", "x/*")),
                (
                    vec![policy(
                        "x",
                        "in",
                        json!({ "podSelector": pod("a"), "ingress": [{ "from": [{ "namespaceSelector": ns("z") }] }] }),
                    )],
                    Reach::all().deny("*/*", "x/*").allow("z/*", "x/a"),
                ),
            ],
        ),
        (
            "BANP: ordered rules of egress",
            "CNP: ordered rules of egress in the baseline",
            vec![(
                vec![baseline(
                    x(),
                    none(),
                    json!([
                        to("Allow", json!([pods("y", "a")]), json!([number("TCP", 80)])),
                        to("Deny", json!([namespaces("y")]), none()),
                    ]),
                )],
                Reach::all().deny("x/*", "y/*").allow_port("x/*", "y/a", Protocol::Tcp, 80),
            )],
        ),
        (
            "ANP, NP and BANP together",
            "CNP, NP and the baseline together",
            vec![
                (vec![shut()], Reach::all().deny("*/*", "x/*")),
                (
                    vec![admin(
                        "allow",
                        40,
                        x(),
                        json!([from("Allow", json!([pods("y", "a")]), none())]),
                        none(),
                    )],
                    Reach::all().deny("*/*", "x/*").allow("y/a", "x/*"),
                ),
                (
                    vec![admin(
                        "pass",
                        30,
                        x(),
                        json!([from("Pass", json!([pods("y", "a")]), none())]),
                        none(),
                    )],
                    Reach::all().deny("*/*", "x/*"),
                ),
                (
                    vec![policy(
                        "x",
                        "in",
                        json!({ "podSelector": {}, "ingress": [{ "from": [{ "namespaceSelector": {} }] }] }),
                    )],
                    Reach::all(),
                ),
                (
                    vec![admin(
                        "deny",
                        20,
                        x(),
                        json!([from("Deny", json!([namespaces("z")]), none())]),
                        none(),
                    )],
                    Reach::all().deny("z/*", "x/*"),
                ),
            ],
        ),
    ]
}

fn networks(cluster: &Cluster) -> Vec<Told> {
    let none = || json!([]);
    let addresses = |namespace: &str, name: &str| {
        let pod = cluster.pods.get(&(namespace.to_owned(), name.to_owned()));
        pod.map(|pod| pod.addresses.clone()).unwrap_or_default()
    };
    let only: Vec<String> = addresses("y", "b")
        .iter()
        .map(|ip| format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }))
        .collect();
    let everything = json!([{ "networks": ["0.0.0.0/0", "::/0"] }]);
    vec![(
        "ANP: networks are about pods too",
        "CNP: networks are about pods too",
        vec![
            (
                vec![admin(
                    "net",
                    10,
                    namespaces("x"),
                    none(),
                    json!([to("Deny", everything.clone(), none())]),
                )],
                Reach::all().deny("x/*", "*/*"),
            ),
            (
                vec![admin(
                    "net",
                    10,
                    namespaces("x"),
                    none(),
                    json!([
                        to("Pass", json!([namespaces("z")]), none()),
                        to("Allow", json!([{ "networks": only }]), json!([number("UDP", 80)])),
                        to("Deny", everything, none()),
                    ]),
                )],
                Reach::all().deny("x/*", "*/*").allow("x/*", "z/*").allow_port(
                    "x/*",
                    "y/b",
                    Protocol::Udp,
                    80,
                ),
            ),
        ],
    )]
}
