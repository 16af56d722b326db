//! Truth tables: policies with who reaches whom under them, as the public conformance suites of the APIs describe it.
//!
//! The cluster is always the same: namespaces x, y and z, labelled `ns` with their name, with pods a, b and c, labelled `pod`
//! with theirs, that serve ports 80 and 81 over TCP, UDP and SCTP. The model must give the tables, and so must packets.

mod admin;
mod network;

use serde_json::{Value, json};

use crate::cluster::{Cluster, Party, Protocol, Traffic};

/// The namespaces.
pub const NAMESPACES: [&str; 3] = ["x", "y", "z"];
/// The pods of every namespace.
pub const PODS: [&str; 3] = ["a", "b", "c"];
/// The ports every pod serves.
pub const PORTS: [u16; 2] = [80, 81];
/// The protocols every port is served over.
pub const PROTOCOLS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

/// Some policies, one after the other, on the fresh cluster.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it is about.
    pub name: &'static str,
    /// What happens, and what holds after each of it.
    pub steps: Vec<Step>,
}

/// A change and what holds after it.
#[derive(Debug, Clone)]
pub struct Step {
    /// Policies to apply.
    pub apply: Vec<Value>,
    /// Policies to delete.
    pub delete: Vec<Value>,
    /// Labels to set (or take away) on a pod or a namespace.
    pub labels: Vec<Label>,
    /// Who reaches whom afterwards.
    pub expect: Reach,
}

/// A label that changes.
#[derive(Debug, Clone)]
pub struct Label {
    /// The namespace that has it, or the pod's.
    pub namespace: &'static str,
    /// The pod that has it; none for the namespace itself.
    pub pod: Option<&'static str>,
    /// Key.
    pub key: &'static str,
    /// Value; none takes it away.
    pub value: Option<&'static str>,
}

/// Who reaches whom: the last line that fits a connection decides.
#[derive(Debug, Clone)]
pub struct Reach {
    lines: Vec<Line>,
}

#[derive(Debug, Clone)]
struct Line {
    from: &'static str,
    to: &'static str,
    protocol: Option<Protocol>,
    port: Option<u16>,
    allowed: bool,
}

impl Reach {
    /// Everybody reaches everybody.
    pub fn all() -> Reach {
        Reach { lines: Vec::new() }
    }

    /// What `from` sends to `to` is denied. Either is `x/a`, or has `*` for its namespace or name.
    pub fn deny(self, from: &'static str, to: &'static str) -> Reach {
        self.line(from, to, None, None, false)
    }

    /// What `from` sends to `to` is allowed.
    pub fn allow(self, from: &'static str, to: &'static str) -> Reach {
        self.line(from, to, None, None, true)
    }

    /// The same for one port; 0 is every port.
    pub fn allow_port(self, from: &'static str, to: &'static str, protocol: Protocol, port: u16) -> Reach {
        self.line(from, to, Some(protocol), Some(port).filter(|port| *port > 0), true)
    }

    /// The same for one port; 0 is every port.
    pub fn deny_port(self, from: &'static str, to: &'static str, protocol: Protocol, port: u16) -> Reach {
        self.line(from, to, Some(protocol), Some(port).filter(|port| *port > 0), false)
    }

    fn line(
        mut self,
        from: &'static str,
        to: &'static str,
        protocol: Option<Protocol>,
        port: Option<u16>,
        allowed: bool,
    ) -> Reach {
        self.lines.push(Line { from, to, protocol, port, allowed });
        self
    }

    /// Whether `from` (namespace, name) reaches `to`. Everybody reaches himself.
    pub fn holds(&self, from: (&str, &str), to: (&str, &str), protocol: Protocol, port: u16) -> bool {
        let fits = |line: &&Line| {
            is(line.from, from)
                && is(line.to, to)
                && line.protocol.is_none_or(|one| one == protocol)
                && line.port.is_none_or(|one| one == port)
        };
        from == to || self.lines.iter().rev().find(fits).is_none_or(|line| line.allowed)
    }
}

fn is(pattern: &str, pod: (&str, &str)) -> bool {
    let (namespace, name) = pattern.split_once('/').unwrap_or((pattern, pattern));
    [(namespace, pod.0), (name, pod.1)].iter().all(|(wanted, is)| *wanted == "*" || wanted == is)
}

impl Step {
    fn apply(apply: Vec<Value>, expect: Reach) -> Step {
        Step { apply, delete: Vec::new(), labels: Vec::new(), expect }
    }

    fn delete(delete: Vec<Value>, expect: Reach) -> Step {
        Step { apply: Vec::new(), delete, labels: Vec::new(), expect }
    }

    fn label(labels: Vec<Label>, expect: Reach) -> Step {
        Step { apply: Vec::new(), delete: Vec::new(), labels, expect }
    }
}

/// The namespaces and pods; pods alternate between the nodes and run `command`. Ports have names such as `serve-80-tcp`.
pub fn objects(nodes: &[&str], command: impl Fn(&str, &str) -> Vec<String>) -> Vec<Value> {
    let mut objects = Vec::new();
    let mut at = 0;
    for namespace in NAMESPACES {
        objects.push(json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": namespace, "labels": { "ns": namespace } } }));
    }
    for namespace in NAMESPACES {
        for name in PODS {
            let mut ports: Vec<Value> = PORTS
                .iter()
                .flat_map(|port| PROTOCOLS.iter().map(move |protocol| (port, protocol)))
                .map(|(port, protocol)| {
                    json!({ "name": format!("serve-{port}-{protocol}"), "containerPort": port,
                        "protocol": protocol.to_string().to_uppercase() })
                })
                .collect();
            // And names that stand for something else at every other pod; a container has a port only once.
            for (of, name) in ["http", "dns", "alt"].into_iter().enumerate() {
                let protocol = PROTOCOLS[(at + of) % 3].to_string().to_uppercase();
                let number = [53, 79, 8080, 8443][(at + of) % 4];
                ports.push(json!({ "name": name, "containerPort": number, "protocol": protocol }));
            }
            objects.push(json!({ "apiVersion": "v1", "kind": "Pod",
                "metadata": { "namespace": namespace, "name": name, "labels": { "pod": name } },
                "spec": { "nodeName": nodes[at % nodes.len()], "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": false,
                    "containers": [{ "name": "main", "image": "busybox:1.36",
                        "command": command(namespace, name), "ports": ports }] } }));
            at += 1;
        }
    }
    objects
}

/// All tables; policies with address ranges are about the addresses the pods of `cluster` have.
pub fn cases(cluster: &Cluster) -> Vec<Case> {
    let mut cases = network::cases(cluster);
    cases.extend(admin::cases(cluster));
    cases
}

/// Every connection the tables are about, over the families both pods have.
pub fn traffic(cluster: &Cluster) -> Vec<Traffic> {
    let pods = || NAMESPACES.iter().flat_map(|namespace| PODS.iter().map(move |name| (*namespace, *name)));
    let mut all = Vec::new();
    for (from, to) in pods().flat_map(|from| pods().map(move |to| (from, to))) {
        let party = |(namespace, name): (&str, &str)| Party::Pod(namespace.to_owned(), name.to_owned());
        for v6 in [false, true] {
            let (from, to) = (party(from), party(to));
            if cluster.source(&from, v6).is_none() || cluster.destination(&to, v6).is_none() {
                continue;
            }
            for (protocol, port) in
                PROTOCOLS.iter().flat_map(|one| PORTS.iter().map(move |port| (*one, *port)))
            {
                all.push(Traffic { from: from.clone(), to: to.clone(), v6, protocol, port });
            }
        }
    }
    all
}

impl Reach {
    /// Whether the connection passes.
    pub fn passes(&self, traffic: &Traffic) -> bool {
        match (&traffic.from, &traffic.to) {
            (Party::Pod(from_namespace, from), Party::Pod(to_namespace, to)) => {
                self.holds((from_namespace, from), (to_namespace, to), traffic.protocol, traffic.port)
            }
            _ => true,
        }
    }
}

/// Replaces or adds what a step applies, deletes and labels in a list of objects.
pub fn change(objects: &mut Vec<Value>, step: &Step) {
    let is = |one: &Value, other: &Value| {
        let key = |object: &Value| {
            (
                object["kind"].clone(),
                object["metadata"]["namespace"].clone(),
                object["metadata"]["name"].clone(),
            )
        };
        key(one) == key(other)
    };
    objects.retain(|object| !step.apply.iter().chain(&step.delete).any(|other| is(object, other)));
    objects.extend(step.apply.iter().cloned());
    for label in &step.labels {
        for object in objects.iter_mut() {
            let fits = match label.pod {
                None => object["kind"] == "Namespace" && object["metadata"]["name"] == label.namespace,
                Some(pod) => {
                    object["kind"] == "Pod"
                        && object["metadata"]["namespace"] == label.namespace
                        && object["metadata"]["name"] == pod
                }
            };
            if let Some(labels) = object["metadata"]["labels"].as_object_mut().filter(|_| fits) {
                match label.value {
                    Some(value) => drop(labels.insert(label.key.to_owned(), value.into())),
                    None => drop(labels.remove(label.key)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::verdict;

    #[test]
    fn the_model_gives_the_tables() {
        let mut objects = objects(&["node1", "node2"], |_, _| Vec::new());
        for (at, pod) in objects.iter_mut().filter(|object| object["kind"] == "Pod").enumerate() {
            pod["status"] = json!({ "phase": "Running",
                "podIPs": [{ "ip": format!("10.244.0.{}", at + 3) }, { "ip": format!("fd00:10:244:1::{}", at + 3) }] });
        }
        let cases = cases(&Cluster::new(&objects));
        assert!(cases.len() > 50, "{}", cases.len());
        for case in cases {
            let mut state = objects.clone();
            for (at, step) in case.steps.iter().enumerate() {
                change(&mut state, step);
                let cluster = Cluster::new(&state);
                for traffic in traffic(&cluster) {
                    let verdict = verdict(&cluster, &traffic).unwrap();
                    assert_eq!(
                        verdict.allowed(),
                        step.expect.passes(&traffic),
                        "{}, step {at}: {traffic}: {verdict}",
                        case.name
                    );
                }
            }
        }
    }
}
