//! Policies of all kinds.

use serde_json::{Value, json};

use super::objects::{ALL_PORT_NAMES, KEYS, NAMESPACES, PROTOCOLS};
use super::selectors::{cidr, ip_block, namespaces, selector};
use super::{Dice, OUTSIDE, Shape};
use crate::cluster::Cluster;

/// What the rules of a policy are made of.
struct Maker<'a> {
    dice: &'a mut Dice,
    /// Addresses that blocks are made around.
    addresses: Vec<String>,
}

pub(super) fn policies(dice: &mut Dice, shape: Shape, objects: &[Value]) -> Vec<Value> {
    let cluster = Cluster::new(objects);
    let mut addresses: Vec<String> = OUTSIDE.map(str::to_owned).to_vec();
    addresses.extend(cluster.pods.values().flat_map(|pod| &pod.addresses).map(ToString::to_string));
    let nodes = cluster.nodes.values().flat_map(|node| node.addresses.iter().chain(&node.seen_as));
    addresses.extend(nodes.map(ToString::to_string));
    let mut maker = Maker { dice, addresses };
    let mut all = Vec::new();
    for at in 0..maker.dice.below(shape.policies + 3) {
        all.push(maker.network_policy(at));
    }
    // The API leaves open who wins among equal priorities, so there are none.
    let mut priorities: Vec<usize> = (0..=1000).step_by(37).chain([1, 2, 99, 100, 101, 1000]).collect();
    let mut priority = |dice: &mut Dice| priorities.swap_remove(dice.below(priorities.len()));
    for at in 0..maker.dice.below(shape.policies + 1) {
        let priority = priority(maker.dice);
        all.push(maker.admin(at, priority));
    }
    let baseline = maker.dice.below(4);
    for at in 0..maker.dice.below(shape.policies + 1) {
        let priority = priority(maker.dice);
        let tier = if baseline.is_multiple_of(2) && at.is_multiple_of(2) { "Baseline" } else { "Admin" };
        all.push(maker.cluster_policy(at, priority, tier));
    }
    if baseline > 1 {
        all.push(maker.baseline());
    }
    all
}

impl Maker<'_> {
    fn network_policy(&mut self, at: usize) -> Value {
        let mut spec = json!({ "podSelector": selector(self.dice, &KEYS) });
        for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
            if self.dice.chance(65) {
                let count = self.dice.below(4);
                let rules: Vec<Value> = (0..count).map(|_| self.rule(peers)).collect();
                spec[direction] = rules.into();
            }
        }
        match self.dice.below(6) {
            0 => spec["policyTypes"] = json!(["Ingress"]),
            1 => spec["policyTypes"] = json!(["Egress"]),
            2 | 3 => spec["policyTypes"] = json!(["Ingress", "Egress"]),
            4 => spec["policyTypes"] = json!([]),
            _ => {}
        }
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "name": format!("np{at}"), "namespace": self.dice.pick(&NAMESPACES[..3]) },
            "spec": spec })
    }

    fn rule(&mut self, peers: &str) -> Value {
        let mut rule = serde_json::Map::new();
        match self.dice.below(6) {
            // Absent and empty mean the same: everybody.
            0 => {}
            1 => drop(rule.insert(peers.to_owned(), json!([]))),
            _ => {
                let list: Vec<Value> = (0..1 + self.dice.below(3)).map(|_| self.peer()).collect();
                rule.insert(peers.to_owned(), list.into());
            }
        }
        match self.dice.below(4) {
            0 => {}
            1 if self.dice.chance(30) => drop(rule.insert("ports".to_owned(), json!([]))),
            _ => {
                let list: Vec<Value> = (0..1 + self.dice.below(3)).map(|_| self.port()).collect();
                rule.insert("ports".to_owned(), list.into());
            }
        }
        Value::Object(rule)
    }

    fn peer(&mut self) -> Value {
        match self.dice.below(5) {
            0 => json!({ "podSelector": selector(self.dice, &KEYS) }),
            1 => json!({ "namespaceSelector": namespaces(self.dice) }),
            2 => {
                json!({ "namespaceSelector": namespaces(self.dice), "podSelector": selector(self.dice, &KEYS) })
            }
            _ => json!({ "ipBlock": ip_block(self.dice, &self.addresses) }),
        }
    }

    fn port(&mut self) -> Value {
        let mut port = serde_json::Map::new();
        if self.dice.chance(75) {
            port.insert("protocol".to_owned(), json!(self.dice.pick(&PROTOCOLS)));
        }
        match self.dice.below(8) {
            0 => {}
            1 | 2 => drop(port.insert("port".to_owned(), json!(self.dice.pick(&ALL_PORT_NAMES)))),
            3 | 4 => {
                let (start, end) = self.range();
                port.insert("port".to_owned(), json!(start));
                port.insert("endPort".to_owned(), json!(end));
            }
            _ => drop(port.insert("port".to_owned(), json!(self.dice.pick(&[53, 80, 81, 8080])))),
        }
        Value::Object(port)
    }

    fn range(&mut self) -> (u16, u16) {
        *self.dice.pick(&[(80, 81), (79, 80), (1, 79), (81, 8080), (8080, 65535), (1, 65535)])
    }

    // --- administrators' kinds ---

    fn admin(&mut self, at: usize, priority: usize) -> Value {
        json!({ "apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": "AdminNetworkPolicy",
            "metadata": { "name": format!("anp{at}") },
            "spec": { "priority": priority, "subject": self.subject(),
                "ingress": self.admin_rules("from", &["Allow", "Deny", "Pass"]),
                "egress": self.admin_rules("to", &["Allow", "Deny", "Pass"]) } })
    }

    fn baseline(&mut self) -> Value {
        json!({ "apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": "BaselineAdminNetworkPolicy",
            "metadata": { "name": "default" },
            "spec": { "subject": self.subject(),
                "ingress": self.admin_rules("from", &["Allow", "Deny"]),
                "egress": self.admin_rules("to", &["Allow", "Deny"]) } })
    }

    fn cluster_policy(&mut self, at: usize, priority: usize, tier: &str) -> Value {
        let actions = ["Accept", "Deny", "Pass"];
        let mut spec = json!({ "tier": tier, "priority": priority, "subject": self.subject(),
            "ingress": self.admin_rules("from", &actions), "egress": self.admin_rules("to", &actions) });
        for direction in ["ingress", "egress"] {
            for rule in spec[direction].as_array_mut().into_iter().flatten() {
                let ports = rule.as_object_mut().and_then(|rule| rule.remove("ports"));
                if let Some(Value::Array(ports)) = ports {
                    rule["protocols"] = ports.iter().map(as_protocol).collect();
                }
            }
        }
        json!({ "apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
            "metadata": { "name": format!("cnp{at}") }, "spec": spec })
    }

    fn subject(&mut self) -> Value {
        if self.dice.chance(50) {
            json!({ "namespaces": namespaces(self.dice) })
        } else {
            json!({ "pods": self.pods() })
        }
    }

    fn pods(&mut self) -> Value {
        json!({ "namespaceSelector": namespaces(self.dice), "podSelector": selector(self.dice, &KEYS) })
    }

    fn admin_rules(&mut self, peers: &str, actions: &[&str]) -> Value {
        let count = self.dice.below(5);
        let mut rules = Vec::new();
        for at in 0..count {
            let mut rule = json!({ "name": format!("rule-{at}"), "action": self.dice.pick(actions) });
            let list: Vec<Value> =
                (0..1 + self.dice.below(3)).map(|_| self.admin_peer(peers == "to")).collect();
            // A kind of peer that a later version may bring.
            if peers == "to" && self.dice.chance(4) {
                rule[peers] = json!([{ "galaxies": {} }, { "namespaces": {} }]);
                rules.push(rule);
                continue;
            }
            // Nodes and networks have no named ports; the API refuses the two together.
            let named = !list.iter().any(|peer| peer.get("nodes").or(peer.get("networks")).is_some());
            rule[peers] = list.into();
            if self.dice.chance(60) {
                let ports: Vec<Value> = (0..1 + self.dice.below(3)).map(|_| self.admin_port(named)).collect();
                rule["ports"] = ports.into();
            }
            rules.push(rule);
        }
        rules.into()
    }

    fn admin_peer(&mut self, egress: bool) -> Value {
        match self.dice.below(if egress { 8 } else { 4 }) {
            0 | 1 => json!({ "namespaces": namespaces(self.dice) }),
            2..=4 => json!({ "pods": self.pods() }),
            5 => json!({ "nodes": selector(self.dice, &KEYS) }),
            _ => {
                let count = 1 + self.dice.below(2);
                let list: Vec<String> = (0..count).map(|_| cidr(self.dice, &self.addresses)).collect();
                json!({ "networks": list })
            }
        }
    }

    fn admin_port(&mut self, named: bool) -> Value {
        let protocol = *self.dice.pick(&PROTOCOLS);
        match self.dice.below(if named { 4 } else { 3 }) {
            0 | 1 => {
                json!({ "portNumber": { "protocol": protocol, "port": self.dice.pick(&[53, 80, 81, 8080]) } })
            }
            2 => {
                let (start, end) = self.range();
                json!({ "portRange": { "protocol": protocol, "start": start, "end": end } })
            }
            _ => json!({ "namedPort": self.dice.pick(&ALL_PORT_NAMES) }),
        }
    }
}

/// A port of v1alpha1 in the words of v1alpha2.
fn as_protocol(port: &Value) -> Value {
    if let Some(name) = port.get("namedPort") {
        return json!({ "destinationNamedPort": name });
    }
    let lower = |value: &Value| value["protocol"].as_str().unwrap_or("TCP").to_lowercase();
    if let Some(one) = port.get("portNumber") {
        return json!({ lower(one): { "destinationPort": { "number": one["port"] } } });
    }
    let range = &port["portRange"];
    json!({ lower(range): { "destinationPort": { "range": { "start": range["start"], "end": range["end"] } } } })
}
