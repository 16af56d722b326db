//! Histories by seed: pods, nodes and faults in any order, with a check of everything after each repair.
//! `CHAOS_SEEDS=7,8` plays others, `CHAOS_STEPS` longer ones.

#[path = "common/invariants.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod invariants;
#[path = "common/lab.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lab;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result};
use devapi::{Failure, Matcher};
use devcluster::{AgentOptions, Agents, ApiChoice, Cluster, Daemon, Families, Stack};
use lab::{NAMESPACE, run};

/// The same numbers for the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides.max(1)).unwrap_or(1)).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.roll(list.len()))
    }
}

/// A cluster, what should run on it, and what is broken.
struct Chaos {
    stack: Stack,
    dice: Dice,
    /// Pods that should run, by name, with the number of their node.
    pods: BTreeMap<String, u8>,
    /// Names that return once their former owner is gone: node and former UID.
    returning: BTreeMap<String, (u8, String)>,
    dead: BTreeSet<(u8, Daemon)>,
    /// Nodes whose process is dead.
    silent: BTreeSet<u8>,
    made: u32,
    history: Vec<String>,
}

const DAEMONS: [Daemon; 6] = Daemon::ALL;

impl Chaos {
    async fn start(seed: u64) -> Result<Self> {
        let families = if seed.is_multiple_of(2) { Families::Dual } else { Families::V4 };
        let builder = Cluster::builder().nodes(2).families(families);
        let mut stack = Stack::start(builder, ApiChoice::Embedded, AgentOptions::default()).await?;
        lab::servers(&mut stack, 1).await?;
        let pods = BTreeMap::from([("node1-0".to_owned(), 1), ("node2-0".to_owned(), 2)]);
        Ok(Self {
            stack,
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            pods,
            returning: BTreeMap::new(),
            dead: BTreeSet::new(),
            silent: BTreeSet::new(),
            made: 0,
            history: Vec::new(),
        })
    }

    fn number(&mut self) -> u8 {
        if self.dice.roll(2) == 0 { 1 } else { 2 }
    }

    async fn step(&mut self) -> Result<()> {
        match self.dice.roll(14) {
            0..=3 => self.add().await,
            4..=6 => self.remove().await,
            7 | 8 => self.kill_daemon().await,
            9 => self.kill_agent().await,
            10 => {
                self.history.push("cluster manager restarts".to_owned());
                let manager = self.stack.agents()?.manager.clone();
                self.stack.agents()?.manager = manager.restart().await?;
                Ok(())
            }
            11 => self.trouble_the_api(),
            12 => self.lose_a_database().await,
            _ => self.register_anew().await,
        }
    }

    async fn add(&mut self) -> Result<()> {
        if self.pods.len() + self.returning.len() >= 10 {
            return Ok(());
        }
        let number = self.number();
        self.made += 1;
        let name = format!("p{}", self.made);
        self.history.push(format!("add {name} to node{number}"));
        lab::apply_server(&mut self.stack, &name, &format!("node{number}")).await?;
        self.pods.insert(name, number);
        Ok(())
    }

    async fn remove(&mut self) -> Result<()> {
        let names: Vec<String> = self.pods.keys().cloned().collect();
        let Some(name) = self.dice.pick(&names).cloned() else { return Ok(()) };
        let object = lab::get(&self.stack, &format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}")).await?;
        let uid = object["metadata"]["uid"].as_str().context("no uid")?.to_owned();
        let number = self.pods.remove(&name).context("no such pod")?;
        lab::delete_pod(&self.stack, &name).await?;
        let returns = self.dice.roll(2) == 0;
        self.history.push(format!("delete {name}{}", if returns { ", it will return" } else { "" }));
        if returns {
            // Perhaps on the other node.
            let number = if self.dice.roll(4) == 0 { 3 - number } else { number };
            self.returning.insert(name, (number, uid));
        }
        Ok(())
    }

    async fn kill_daemon(&mut self) -> Result<()> {
        let number = self.number();
        let daemon = *self.dice.pick(&DAEMONS).context("no daemons")?;
        if self.dead.insert((number, daemon)) {
            self.history.push(format!("kill {daemon:?} on node{number}"));
            let process = self.stack.cluster().node(number).daemon(daemon).context("no such daemon")?;
            process.kill9().await?;
        }
        Ok(())
    }

    async fn kill_agent(&mut self) -> Result<()> {
        let number = self.number();
        if self.silent.insert(number) {
            self.history.push(format!("kill ovnkube on node{number}"));
            self.stack.agents()?.nodes[&format!("node{number}")].kill9().await?;
        }
        Ok(())
    }

    fn trouble_the_api(&mut self) -> Result<()> {
        let kind = self.dice.roll(4);
        self.history.push(format!("API trouble {kind}"));
        let faults = self.stack.api().embedded().context("no embedded API")?.faults();
        match kind {
            0 => faults.drop_watches(),
            1 => faults.expire_watches(),
            2 => faults.fail_next(Matcher::any().verb("patch").resource("pods/status"), 2, Failure::Internal),
            _ => faults.fail_next(Matcher::any().verb("watch"), 2, Failure::Gone),
        }
        Ok(())
    }

    async fn lose_a_database(&mut self) -> Result<()> {
        let number = self.number();
        let daemon = if self.dice.roll(2) == 0 { Daemon::Nb } else { Daemon::Sb };
        self.history.push(format!("{daemon:?} of node{number} is lost"));
        let node = self.stack.cluster().node(number).clone();
        node.daemon(daemon).context("no such daemon")?.kill9().await?;
        lab::empty(&self.stack, &node, daemon).await?;
        self.dead.remove(&(number, daemon));
        node.start_daemon(daemon).await.map(drop)
    }

    async fn register_anew(&mut self) -> Result<()> {
        let number = self.number();
        self.history.push(format!("node{number} is registered anew"));
        lab::unregister(&self.stack, &format!("node{number}")).await?;
        lab::register(&self.stack, number).await
    }

    /// Starts whatever is dead, in any order.
    async fn repair(&mut self) -> Result<()> {
        self.history.push("repair".to_owned());
        let agents_first = self.dice.roll(2) == 0;
        for agents in [agents_first, !agents_first] {
            if agents {
                for number in std::mem::take(&mut self.silent) {
                    let node = self.stack.cluster().node(number).clone();
                    self.stack.agents()?.start_node(&node).await?;
                }
            } else {
                for (number, daemon) in std::mem::take(&mut self.dead) {
                    self.stack.cluster().node(number).start_daemon(daemon).await?;
                }
            }
        }
        for (name, (number, uid)) in std::mem::take(&mut self.returning) {
            lab::pod_gone(&self.stack, &name, &uid).await?;
            lab::apply_server(&mut self.stack, &name, &format!("node{number}")).await?;
            self.pods.insert(name, number);
        }
        Ok(())
    }

    async fn check(&mut self) -> Result<()> {
        tokio::select! {
            checked = self.see() => checked,
            ended = supervise(&self.stack) => ended,
        }
    }

    async fn see(&self) -> Result<()> {
        let names: Vec<String> = self.pods.keys().cloned().collect();
        let pods = lab::running(&self.stack, &names).await?;
        // Each to the next, and both ways for two that are picked.
        for (at, pod) in pods.iter().enumerate() {
            let next = &pods[(at + 1) % pods.len()];
            if next.record.uid != pod.record.uid {
                lab::talk(pod, next).await.with_context(|| format!("{} → next", names[at]))?;
            }
        }
        invariants::hold(&self.stack).await?;
        // OVN has come to rest with it.
        for node in self.stack.cluster().nodes() {
            node.ovn(&["ovn-nbctl", "--timeout=25", "--wait=hv", "sync"]).await?;
        }
        Ok(())
    }

    async fn play(&mut self, steps: usize) -> Result<()> {
        for at in 1..=steps {
            self.step().await?;
            if at % 6 == 0 || at == steps {
                let since = std::time::Instant::now();
                self.repair().await?;
                let repaired = since.elapsed();
                self.check().await?;
                // For the reader of a slow run.
                self.history.push(format!("well after {repaired:.1?} and {:.1?}", since.elapsed()));
            }
        }
        self.stack.api().embedded().context("no embedded API")?.faults().clear();
        for number in [1, 2] {
            invariants::restart_writes_nothing(&mut self.stack, number).await?;
        }
        Ok(())
    }
}

/// Starts daemons again that end by themselves, as their service manager does: ovn-controller 25.03 crashes as long as its
/// Southbound database is empty, which is until northd has found it.
async fn supervise(stack: &Stack) -> Result<()> {
    loop {
        let mut ends = Vec::new();
        for node in stack.cluster().nodes() {
            for daemon in DAEMONS {
                let process = node.daemon(daemon).context("no such daemon")?;
                ends.push(Box::pin(async move { (node, daemon, process.wait().await) }));
            }
        }
        let ((node, daemon, exit), ..) = futures::future::select_all(ends).await;
        println!("{daemon:?} on {} ended by itself: {}", node.name(), exit?.how());
        // Backoff of the restarts.
        tokio::time::sleep(Duration::from_millis(200)).await;
        node.start_daemon(daemon).await?;
    }
}

fn numbers(variable: &str) -> Option<Vec<u64>> {
    let text = std::env::var(variable).ok()?;
    Some(text.split(',').filter_map(|number| number.trim().parse().ok()).collect())
}

async fn history(seed: u64) -> Result<()> {
    let steps = numbers("CHAOS_STEPS").and_then(|steps| usize::try_from(*steps.first()?).ok()).unwrap_or(24);
    let mut chaos = Chaos::start(seed).await?;
    if let Err(error) = chaos.play(steps).await {
        let mut state = Vec::new();
        for node in chaos.stack.cluster().nodes() {
            for file in ["/var/log/ovn/ovn-controller.log", "/var/log/ovn/ovn-northd.log"] {
                let text = std::fs::read_to_string(node.outside(file)).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                state.push(format!(
                    "--- {} {file}\n{}",
                    node.name(),
                    lines[lines.len().saturating_sub(25)..].join("\n")
                ));
            }
            state.push(format!("--- {}\n{}", node.name(), Agents::log_tail(node, 40)));
            for argv in [
                &["ovn-sbctl", "show"][..],
                &["ovn-nbctl", "list", "NB_Global"],
                &["ovn-sbctl", "list", "Chassis"],
                &["ovn-sbctl", "list", "Chassis_Private"],
                &["ovs-vsctl", "show"],
            ] {
                let said = node.ovn(argv).await.unwrap_or_else(|error| format!("{error:#}"));
                state.push(format!("$ {}\n{said}", argv.join(" ")));
            }
        }
        let story = chaos.history.join("\n  ");
        return Err(error).with_context(|| format!("seed {seed}:\n  {story}\n{}", state.join("\n")));
    }
    println!("seed {seed}:\n  {}", chaos.history.join("\n  "));
    chaos.stack.stop().await
}

#[test]
fn any_order_of_faults_is_survived() -> Result<()> {
    run(async {
        for seed in numbers("CHAOS_SEEDS").unwrap_or_else(|| vec![1, 2]) {
            history(seed).await?;
        }
        Ok(())
    })
}
