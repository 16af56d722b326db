//! Seeded random histories against a model of the API server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kapi::annotations::{NODE_ID, NODE_SUBNETS};

use super::super::fixtures::{node, small_plan};
use super::super::*;

/// xorshift64*: the same histories on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }
}

/// The API server, the wires to and from it, and the process under test.
struct World {
    dice: Dice,
    core: Core,
    plan: NetworkPlan,
    now: Duration,
    version: u64,
    nodes: BTreeMap<String, Node>,
    events: VecDeque<Input>,
    patches: Vec<NodePatch>,
    /// Nodes whose annotations were tampered with: the rules below hold for the others.
    tampered: BTreeSet<String>,
}

impl World {
    fn new(seed: u64, plan: NetworkPlan) -> Self {
        let mut world = Self {
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            core: Core::new(plan.clone()),
            plan,
            now: Duration::ZERO,
            version: 0,
            nodes: BTreeMap::new(),
            events: VecDeque::new(),
            patches: Vec::new(),
            tampered: BTreeSet::new(),
        };
        world.restart();
        world
    }

    fn feed(&mut self, input: Input) {
        for output in self.core.step(input, self.now) {
            if let Output::Patch(patch) = output {
                self.patches.push(patch);
            }
        }
    }

    /// A crash: what was on the wires is lost, but patches may still have landed.
    fn restart(&mut self) {
        for patch in std::mem::take(&mut self.patches) {
            if self.dice.roll(2) == 0 {
                self.land(&patch);
            }
        }
        self.core = Core::new(self.plan.clone());
        self.resync();
    }

    fn resync(&mut self) {
        self.events.clear();
        let nodes = self.nodes.values().cloned().collect();
        self.feed(Input::Nodes { nodes, unreadable: Vec::new() });
    }

    fn land(&mut self, patch: &NodePatch) -> Option<u64> {
        let node = self.nodes.get_mut(&patch.key.name).filter(|node| node.metadata.uid == patch.key.uid)?;
        self.version += 1;
        node.metadata.resource_version = self.version.to_string();
        for (key, value) in &patch.annotations {
            match value {
                Some(value) => node.metadata.annotations.insert((*key).to_string(), value.clone()),
                None => node.metadata.annotations.remove(*key),
            };
        }
        self.events.push_back(Input::Applied(node.clone()));
        Some(self.version)
    }

    fn pick(&mut self) -> Option<String> {
        let count = self.nodes.len() as u64;
        (count > 0).then(|| self.dice.roll(count)).and_then(|at| self.nodes.keys().nth(at as usize).cloned())
    }

    fn change(&mut self, name: &str, key: &str, value: Option<String>) {
        self.version += 1;
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.metadata.resource_version = self.version.to_string();
        match value {
            Some(value) => node.metadata.annotations.insert(key.to_string(), value),
            None => node.metadata.annotations.remove(key),
        };
        self.events.push_back(Input::Applied(node.clone()));
    }

    fn add(&mut self) {
        self.version += 1;
        let name = format!("n{}", self.dice.roll(24));
        if self.nodes.contains_key(&name) {
            return;
        }
        let mut node = node(&name, u32::try_from(self.version % 3000).unwrap_or(0), self.version);
        node.metadata.uid = format!("{name}-{}", self.version);
        self.events.push_back(Input::Applied(node.clone()));
        self.nodes.insert(name, node);
    }

    fn delete(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            self.tampered.remove(name);
            self.events.push_back(Input::Deleted(node.key()));
        }
    }

    /// Someone edits annotations: nonsense, another's value, or removal.
    fn tamper(&mut self) {
        let (Some(name), Some(other)) = (self.pick(), self.pick()) else { return };
        let key = if self.dice.roll(2) == 0 { NODE_SUBNETS } else { NODE_ID };
        let value = match self.dice.roll(4) {
            0 => Some("{".to_string()),
            1 => Some(r#"{"default":["192.168.0.0/24"]}"#.to_string()),
            _ => self.nodes.get(&other).and_then(|node| node.metadata.annotation(key)).map(str::to_owned),
        };
        self.tampered.insert(name.clone());
        self.change(&name, key, value);
    }

    fn repair(&mut self) {
        if let Some(name) = self.tampered.pop_first() {
            self.change(&name, NODE_SUBNETS, None);
            self.change(&name, NODE_ID, None);
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.dice.roll(400));
        match self.dice.roll(100) {
            0..14 => self.add(),
            14..24 => {
                if let Some(name) = self.pick() {
                    self.delete(&name);
                }
            }
            24..27 => self.tamper(),
            27..33 => self.repair(),
            33..34 => self.restart(),
            34..36 => self.resync(),
            36..38 => self.feed(Input::Tick),
            38..66 => self.answer_a_patch(),
            66..70 => {
                // the same event twice
                if let Some(event) = self.events.front().cloned() {
                    self.feed(event);
                }
            }
            70..72 => {
                // events of different nodes overtake each other
                let about = |event: Option<&Input>| match event {
                    Some(Input::Applied(node)) => node.metadata.name.clone(),
                    Some(Input::Deleted(key)) => key.name.clone(),
                    _ => String::new(),
                };
                if self.events.len() > 1 && about(self.events.front()) != about(self.events.get(1)) {
                    self.events.swap(0, 1);
                }
            }
            _ => {
                if let Some(event) = self.events.pop_front() {
                    self.feed(event);
                }
            }
        }
    }

    fn answer_a_patch(&mut self) {
        if self.patches.is_empty() {
            return;
        }
        let at = self.dice.roll(self.patches.len() as u64) as usize;
        let patch = self.patches.swap_remove(at);
        let key = patch.key.clone();
        let failed =
            |error: &str| Input::PatchFailed { key: key.clone(), error: error.into(), rejected: false };
        let input = match self.dice.roll(6) {
            0 => failed("lost on the way there"),
            1 => {
                self.land(&patch);
                failed("lost on the way back")
            }
            _ => match self.land(&patch) {
                Some(version) => Input::Patched { key, version: version.to_string() },
                None => failed("not found"),
            },
        };
        self.feed(input);
    }

    /// No two nodes hold the same. What the pools count is what the nodes hold.
    fn check(&self) {
        let mut subnets = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for (name, entry) in &self.core.nodes {
            for subnet in entry.held.subnets.iter() {
                assert!(subnets.insert(*subnet), "{name} shares {subnet}");
            }
            if let Some(id) = entry.held.id {
                assert!(ids.insert(id), "{name} shares id {id}");
            }
        }
        assert_eq!(self.core.pools.used(Family::V4), subnets.len() as u64);
    }

    /// Lets everything arrive and every retry run out.
    fn settle(&mut self) {
        while !self.tampered.is_empty() {
            self.repair();
        }
        for _ in 0..10_000 {
            if let Some(event) = self.events.pop_front() {
                self.feed(event);
            } else if let Some(patch) = self.patches.pop() {
                let key = patch.key.clone();
                let input = match self.land(&patch) {
                    Some(version) => Input::Patched { key, version: version.to_string() },
                    None => Input::PatchFailed { key, error: "not found".into(), rejected: false },
                };
                self.feed(input);
            } else if let Some(at) = self.core.wake_at() {
                self.now = self.now.max(at);
                self.feed(Input::Tick);
            } else {
                return;
            }
        }
        panic!("does not settle");
    }

    fn annotations(&self) -> BTreeMap<String, (Option<String>, Option<String>)> {
        let read = |node: &Node, key: &str| node.metadata.annotation(key).map(str::to_owned);
        self.nodes
            .iter()
            .map(|(name, node)| (name.clone(), (read(node, NODE_SUBNETS), read(node, NODE_ID))))
            .collect()
    }
}

fn history(seed: u64, steps: usize, prefix: u8) {
    let mut world = World::new(seed, small_plan(prefix));
    let capacity = 1usize << (24 - prefix);
    for _ in 0..steps {
        world.step();
        world.check();
    }
    world.settle();
    world.check();
    // as many as fit are served, on the server too, and the annotations are distinct
    let annotations = world.annotations();
    let served: Vec<_> =
        annotations.values().filter(|(subnets, id)| subnets.is_some() && id.is_some()).collect();
    assert_eq!(served.len(), world.nodes.len().min(capacity), "seed {seed}: {annotations:?}");
    let subnets: BTreeSet<_> = served.iter().map(|(subnets, _)| subnets).collect();
    let ids: BTreeSet<_> = served.iter().map(|(_, id)| id).collect();
    assert_eq!((subnets.len(), ids.len()), (served.len(), served.len()), "seed {seed}");
    // a second start plans nothing
    world.restart();
    assert!(world.patches.is_empty(), "seed {seed}: {:?}", world.patches);
    assert_eq!(world.annotations(), annotations);
    // everything comes back
    for name in world.nodes.keys().cloned().collect::<Vec<_>>() {
        world.delete(&name);
    }
    world.settle();
    assert_eq!(world.core.pools.used(Family::V4), 0, "seed {seed}");
    assert!(world.core.nodes.is_empty() && world.core.blocked.is_empty() && world.core.retries.is_empty());
}

#[test]
fn ten_thousand_steps_with_room() {
    for seed in 0..10 {
        history(seed, 1000, 19);
    }
}

#[test]
fn ten_thousand_steps_with_too_few_subnets() {
    for seed in 100..110 {
        history(seed, 1000, 21);
    }
}

#[test]
fn one_long_history() {
    history(4711, 10_000, 20);
}
