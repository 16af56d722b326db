//! Policies under change: pods, labels, namespaces, nodes and policies change at random, messages lag, transactions
//! are small, so that every state in between is seen. In every state no rule names a set or group that does not
//! exist; whenever everything comes to rest, the rows equal a from-scratch compile.
//!
//! `OVNKUBE_POLICY_STEPS` (default 60 a seed) and `OVNKUBE_POLICY_SEEDS` (default 3) make the long form:
//! `OVNKUBE_POLICY_STEPS=5000 OVNKUBE_POLICY_SEEDS=4 cargo test -p controller --release --test policies`.

mod common;

use common::objects;
use common::world::{Fate, Zone};
use kapi::{
    AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy, Namespace, NetworkPolicy, Node,
    Pod, PodKey, PodPhase,
};
use policy::{Policy, PolicyId};
use policy_model::random::{Dice, Shape, cluster};
use serde_json::Value;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Churn {
    dice: Dice,
    zone: Zone,
    dual: bool,
    uid: u64,
}

impl Churn {
    fn new(seed: u64, dual: bool) -> Churn {
        let mut zone = Zone::new("node1", dual);
        zone.batch = [1, 3, 500][seed as usize % 3];
        for number in [1, 2] {
            let (v4, v6) = (format!("10.244.{}.0/24", number - 1), format!("fd00:10:244:{number}::/64"));
            let subnets: Vec<&str> = if dual { vec![&v4, &v6] } else { vec![&v4] };
            let node = objects::node(&format!("node{number}"), number, &subnets);
            zone.nodes.insert(node.metadata.name.clone(), node);
        }
        zone.start();
        Churn { dice: Dice::new(seed), zone, dual, uid: 0 }
    }

    /// An object of some kind out of a random cluster.
    fn any(&mut self, kinds: &[&str]) -> Option<Value> {
        let shape = Shape { nodes: 2, pods: 12, policies: 4, dual: self.dual };
        let objects = cluster(self.dice.below(100_000) as u64, shape);
        let fitting: Vec<Value> = objects
            .into_iter()
            .filter(|object| kinds.contains(&object["kind"].as_str().unwrap_or_default()))
            .collect();
        (!fitting.is_empty()).then(|| self.dice.pick(&fitting).clone())
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..=29 => self.put_policy(),
            30..=39 => self.remove_policy(),
            40..=64 => self.put_pod(),
            65..=72 => self.remove_pod(),
            73..=78 => self.finish_pod(),
            79..=90 => self.put_namespace(),
            91..=94 => self.remove_namespace(),
            95..=98 => self.relabel_node(),
            _ => self.zone.start(),
        }
    }

    fn put_policy(&mut self) {
        let kinds =
            ["NetworkPolicy", "AdminNetworkPolicy", "BaselineAdminNetworkPolicy", "ClusterNetworkPolicy"];
        if let Some(object) = self.any(&kinds) {
            self.zone.put_policy(policy(object));
        }
    }

    fn remove_policy(&mut self) {
        let known: Vec<PolicyId> = self.zone.policies.keys().cloned().collect();
        if !known.is_empty() {
            let id = self.dice.pick(&known).clone();
            self.zone.remove_policy(&id);
        }
    }

    /// A new pod, or another one's labels and ports for one there is.
    fn put_pod(&mut self) {
        let Some(object) = self.any(&["Pod"]) else { return };
        let mut new: Pod = serde_json::from_value(object).expect("a pod");
        let key = new.pod_key();
        // The API server makes no pods in namespaces that do not exist.
        if !self.zone.namespaces.contains_key(&key.namespace) {
            self.zone.put_namespace(&key.namespace);
        }
        if let Some(old) = self.zone.pods.get(&key).cloned() {
            if self.dice.chance(80) {
                let mut pod = old;
                pod.metadata.labels = new.metadata.labels;
                return self.zone.put_pod(pod);
            }
            self.zone.remove_pod(&key);
        }
        self.uid += 1;
        new.metadata.uid = format!("uid-{}", self.uid);
        if new.spec.node_name == "node1" {
            new.metadata.annotations.clear();
        }
        self.zone.put_pod(new);
    }

    fn any_pod(&mut self) -> Option<PodKey> {
        let known: Vec<PodKey> = self.zone.pods.keys().cloned().collect();
        (!known.is_empty()).then(|| self.dice.pick(&known).clone())
    }

    fn remove_pod(&mut self) {
        if let Some(key) = self.any_pod() {
            self.zone.remove_pod(&key);
        }
    }

    fn finish_pod(&mut self) {
        if let Some(key) = self.any_pod() {
            let mut pod = self.zone.pods[&key].clone();
            pod.status.phase = PodPhase::Succeeded;
            self.zone.put_pod(pod);
        }
    }

    fn put_namespace(&mut self) {
        if let Some(object) = self.any(&["Namespace"]) {
            let mut namespace: Namespace = serde_json::from_value(object).expect("a namespace");
            if self.dice.chance(20) {
                let value = self.dice.pick(&["", "{}", r#"{"deny":"alert"}"#, r#"{"allow":"info"}"#, "loud"]);
                namespace.metadata.annotations.insert(policy::ACL_LOGGING.into(), (*value).into());
            }
            self.zone.put_namespace_object(namespace);
        }
    }

    fn remove_namespace(&mut self) {
        let known: Vec<String> = self.zone.namespaces.keys().cloned().collect();
        if known.is_empty() {
            return;
        }
        let name = self.dice.pick(&known).clone();
        let mut gone: Vec<PodKey> =
            self.zone.pods.keys().filter(|key| key.namespace == name).cloned().collect();
        let policies: Vec<PolicyId> =
            self.zone.policies.keys().filter(|id| id.namespace == name).cloned().collect();
        // The messages of one kind keep their order, those of different kinds do not.
        self.zone.remove_namespace(&name);
        for key in gone.drain(..) {
            self.zone.remove_pod(&key);
        }
        for id in policies {
            self.zone.remove_policy(&id);
        }
    }

    fn relabel_node(&mut self) {
        let Some(object) = self.any(&["Node"]) else { return };
        let from: Node = serde_json::from_value(object).expect("a node");
        let name = format!("node{}", 1 + self.dice.below(2));
        let mut node = self.zone.nodes[&name].clone();
        node.metadata.labels = from.metadata.labels;
        node.status.addresses = from.status.addresses;
        self.zone.put_node(node);
    }

    /// Some of what is on its way arrives, in any order between sources.
    fn move_some(&mut self) {
        for _ in 0..self.dice.below(6) {
            let sources: Vec<&'static str> = self
                .zone
                .queues
                .iter()
                .filter(|(_, queue)| !queue.is_empty())
                .map(|(name, _)| *name)
                .collect();
            if sources.is_empty() || self.dice.chance(30) {
                let fate = match self.dice.below(20) {
                    0 => Fate::LostBefore,
                    1 => Fate::LostAfter,
                    2 => Fate::Refused,
                    _ => Fate::Made,
                };
                self.zone.transact(fate);
                self.zone.patch(Fate::Made);
            } else {
                let source = *self.dice.pick(&sources);
                self.zone.deliver(source);
            }
        }
    }
}

fn policy(object: Value) -> Policy {
    fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
        serde_json::from_value(object).expect("a policy")
    }
    match object["kind"].as_str() {
        Some("NetworkPolicy") => Policy::from(&read::<NetworkPolicy>(object)),
        Some("AdminNetworkPolicy") => Policy::from(&read::<AdminNetworkPolicy>(object)),
        Some("BaselineAdminNetworkPolicy") => Policy::from(&read::<BaselineAdminNetworkPolicy>(object)),
        Some("ClusterNetworkPolicy") => Policy::from(&read::<ClusterNetworkPolicy>(object)),
        other => panic!("{other:?} is no kind of policy"),
    }
}

fn run(dual: bool) {
    let (steps, seeds) = (setting("OVNKUBE_POLICY_STEPS", 60), setting("OVNKUBE_POLICY_SEEDS", 3));
    for seed in 0..seeds {
        let mut churn = Churn::new(seed, dual);
        let (mut rules, mut sets) = (0, 0);
        for step in 0..steps {
            churn.step();
            if churn.dice.chance(50) {
                churn.move_some();
                continue;
            }
            churn.zone.settle();
            churn.zone.check_rest();
            churn.zone.check_against_fresh();
            rules = rules.max(churn.zone.nb.rows("ACL").len());
            sets = sets.max(churn.zone.nb.rows("Address_Set").len());
            if step % 100 == 0 {
                println!("seed {seed} step {step}: {rules} rules, {sets} sets at most");
            }
        }
        assert!(rules > 20 && sets > 5, "seed {seed}: hardly any policies: {rules} rules, {sets} sets");
    }
}

#[test]
fn ipv4_churn_equals_a_compile_from_scratch() {
    run(false);
}

#[test]
fn dual_stack_churn_equals_a_compile_from_scratch() {
    run(true);
}
