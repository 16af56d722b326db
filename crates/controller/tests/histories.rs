//! Seeded random histories: the cluster changes, messages lag and overtake each other, transactions and patches
//! fail or lose their answer, the controller crashes. Whenever everything comes to rest, the rows equal a
//! from-scratch compile and a second controller writes nothing; in every state of the database in between no
//! address is on two ports.
//!
//! `OVNKUBE_HISTORY_STEPS` (default 1500 a seed) and `OVNKUBE_HISTORY_SEEDS` (default 4) make the long form:
//! `OVNKUBE_HISTORY_STEPS=10000 OVNKUBE_HISTORY_SEEDS=20 cargo test -p controller --release --test histories`.

mod common;

use common::dice::Dice;
use common::objects;
use common::service_history;
use common::world::{Fate, Zone};
use compile::Db;
use controller::{Change, Input};
use kapi::{Pod, PodKey, PodPhase};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct History {
    dice: Dice,
    zone: Zone,
    uid: u64,
}

impl History {
    fn new(seed: u64, dual: bool) -> History {
        let mut zone = Zone::new("node1", dual);
        // Small subnets, so that they run out now and then: with two families it is the second that ends.
        let subnets: &[&str] =
            if dual { &["10.244.0.0/24", "fd00:10:244:1::/124"] } else { &["10.244.0.0/28"] };
        zone.batch = [1, 2, 500][seed as usize % 3];
        let node = objects::with_gateway(objects::node("node1", 1, subnets), 1, true, &[]);
        zone.nodes.insert("node1".into(), node);
        for name in ["default", "shop"] {
            zone.namespaces.insert(name.into(), common::objects::namespace(name, &[]));
        }
        zone.start();
        History { dice: Dice(seed), zone, uid: 0 }
    }

    fn fresh_uid(&mut self) -> String {
        self.uid += 1;
        format!("uid-{}", self.uid)
    }

    fn any_pod(&mut self) -> Option<Pod> {
        let keys: Vec<PodKey> = self.zone.pods.keys().cloned().collect();
        let key = self.dice.pick(&keys)?;
        self.zone.pods.get(key).cloned()
    }

    fn step(&mut self) {
        match self.dice.roll(100) {
            0..=7 => self.create_pod(),
            8..=15 => service_history::step(&mut self.dice, &mut self.zone),
            16..=21 => {
                if let Some(pod) = self.any_pod() {
                    self.zone.remove_pod(&pod.pod_key());
                }
            }
            22..=23 => {
                if let Some(mut pod) = self.any_pod() {
                    pod.status.phase =
                        if self.dice.roll(2) == 0 { PodPhase::Succeeded } else { PodPhase::Failed };
                    self.zone.put_pod(pod);
                }
            }
            24..=26 => self.recreate_pod(),
            27..=28 => self.toggle_node(),
            29..=30 => self.toggle_namespace(),
            31 => self.stale_pod_event(),
            32 => self.relist(),
            33 => {
                self.zone.start();
            }
            34 => self.empty_database(),
            35..=70 => {
                let ready: Vec<&'static str> = self
                    .zone
                    .queues
                    .iter()
                    .filter(|(_, queue)| !queue.is_empty())
                    .map(|(name, _)| *name)
                    .collect();
                if let Some(source) = self.dice.pick(&ready).copied() {
                    self.zone.deliver(source);
                }
            }
            71..=83 => {
                let fate = self.fate();
                self.zone.transact(fate);
            }
            84..=94 => {
                let fate = self.fate();
                self.zone.patch(fate);
            }
            95..=97 => {
                self.zone.now += std::time::Duration::from_millis(500);
                self.zone.step(Input::Tick);
            }
            _ => {
                self.zone.settle();
                self.zone.check_rest();
            }
        }
    }

    fn fate(&mut self) -> Fate {
        match self.dice.roll(12) {
            0 => Fate::LostBefore,
            1 => Fate::LostAfter,
            2 => Fate::Refused,
            _ => Fate::Made,
        }
    }

    fn create_pod(&mut self) {
        let number = self.dice.roll(40);
        let key =
            PodKey::new(if number.is_multiple_of(3) { "shop" } else { "default" }, format!("p{number}"));
        if self.zone.pods.contains_key(&key) {
            return;
        }
        let uid = self.fresh_uid();
        let node = ["node1", "node1", "node1", "node2", ""][self.dice.roll(5)];
        let mut pod = objects::pod(&key, &uid, node);
        pod.spec.host_network = self.dice.roll(10) == 0;
        self.zone.put_pod(pod);
    }

    /// Gone and back under the same name, here or on another node, perhaps seen as one change.
    fn recreate_pod(&mut self) {
        let Some(old) = self.any_pod() else { return };
        let key = old.pod_key();
        if self.dice.roll(2) == 0 || old.spec.node_name.is_empty() {
            self.zone.remove_pod(&key);
        }
        let uid = self.fresh_uid();
        let stays = self.dice.roll(3) > 0 || self.zone.pods.contains_key(&key);
        let node = if stays { old.spec.node_name.clone() } else { "node2".to_owned() };
        self.zone.put_pod(objects::pod(&key, &uid, &node));
    }

    fn toggle_node(&mut self) {
        let number = 2 + self.dice.roll(3) as u32;
        let name = format!("node{number}");
        if self.zone.nodes.contains_key(&name) {
            self.zone.remove_node(&name);
        } else {
            let v4 = format!("10.244.{number}.0/24");
            self.zone.put_node(objects::node(&name, number, &[&v4]));
        }
    }

    fn toggle_namespace(&mut self) {
        let name = ["spare", "other"][self.dice.roll(2)];
        if self.zone.namespaces.contains_key(name) {
            self.zone.remove_namespace(name);
        } else {
            self.zone.put_namespace(name);
        }
    }

    /// An older state of a pod arrives once more, then the newer one.
    fn stale_pod_event(&mut self) {
        let Some(pod) = self.any_pod().filter(|pod| pod.spec.node_name == "node1") else { return };
        let mut stale = pod.clone();
        stale.metadata.annotations.clear();
        self.zone.send("pods", Input::Pods(Change::Applied(stale)));
        self.zone.send("pods", Input::Pods(Change::Applied(pod)));
    }

    /// The watch starts over with a complete list.
    fn relist(&mut self) {
        let pods = self.zone.pods.values().filter(|pod| pod.spec.node_name == "node1").cloned().collect();
        self.zone.send("pods", Input::Pods(Change::Snapshot(pods)));
    }

    /// The Northbound database starts over empty.
    fn empty_database(&mut self) {
        if self.dice.roll(4) == 0 && self.zone.transactions.is_empty() {
            self.zone.nb.clear();
            let dump = self.zone.nb.dump();
            self.zone.send("nb", Input::Lost(Db::Nb));
            self.zone.send("nb", Input::Loaded(Db::Nb, dump));
        }
    }
}

fn run(dual: bool) {
    let steps = setting("OVNKUBE_HISTORY_STEPS", 1500);
    for seed in 0..setting("OVNKUBE_HISTORY_SEEDS", 4) {
        println!("seed {seed}");
        let mut history = History::new(seed, dual);
        for _ in 0..steps {
            history.step();
        }
        history.zone.settle();
        history.zone.check_rest();
        history.zone.check_against_fresh();
    }
}

#[test]
fn ipv4_histories_come_to_the_right_rest() {
    run(false);
}

#[test]
fn dual_stack_histories_come_to_the_right_rest() {
    run(true);
}
