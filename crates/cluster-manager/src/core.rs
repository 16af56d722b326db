//! The decisions, without I/O: events in, patches and Events out.
//!
//! An allocation lives here from the moment it is made until its node is gone, whatever the annotations say in
//! between; annotations decide only what was there before. A node whose annotations cannot be honoured is left
//! exactly as it is and told why; the others never notice.

mod assign;
mod claims;
mod entry;
#[cfg(test)]
pub(crate) mod fixtures;
mod pools;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kapi::{Node, Object, ObjectKey};
use net::Family;

use crate::NetworkPlan;
use entry::{Entry, Facts};
use pools::Pools;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// All nodes there are. `unreadable` ones exist but could not be decoded; what is known of them stays.
    Nodes {
        /// The nodes, in any order.
        nodes: Vec<Node>,
        /// Names of nodes that could not be decoded.
        unreadable: Vec<String>,
    },
    /// A node appeared or changed.
    Applied(Node),
    /// A node is gone.
    Deleted(ObjectKey),
    /// A patch that was asked for was written and gave the node this resource version.
    Patched {
        /// The node patched.
        key: ObjectKey,
        /// Its new resource version.
        version: String,
    },
    /// A patch failed, or its outcome is unknown.
    PatchFailed {
        /// The node.
        key: ObjectKey,
        /// Why; given to the operator when `rejected`.
        error: String,
        /// The server refuses it, rather than not being able to.
        rejected: bool,
    },
    /// Time passed: [`Core::wake_at`] is reached.
    Tick,
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Write annotations of a node; answer with [`Input::Patched`] or [`Input::PatchFailed`].
    Patch(NodePatch),
    /// Tell the operator, on the node.
    Warn {
        /// The node.
        key: ObjectKey,
        /// Stable reason of the Event.
        reason: &'static str,
        /// What is wrong and how to put it right.
        message: String,
    },
    /// The figures of a family changed.
    Usage {
        /// The family.
        family: Family,
        /// Node subnets handed out.
        allocated: u64,
        /// Node subnets the CIDRs hold.
        capacity: u64,
    },
}

/// One patch of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePatch {
    /// The node, with its uid.
    pub key: ObjectKey,
    /// Annotations to set and (with `None`) to remove.
    pub annotations: Vec<(&'static str, Option<String>)>,
    /// Also set the condition NetworkUnavailable to false: the cloud's route controller left it set.
    pub clear_network_unavailable: bool,
}

/// Reason of every Event on a node.
pub const REASON: &str = "ErrorReconcilingNode";

/// The state behind the decisions; one per term of leadership.
#[derive(Debug)]
pub struct Core {
    plan: NetworkPlan,
    pools: Pools,
    nodes: BTreeMap<String, Entry>,
    /// Nodes with a problem; looked at again whenever something is freed.
    blocked: BTreeSet<String>,
    /// Failed patches by the time of their next attempt.
    retries: BTreeSet<(Duration, String)>,
    usage: BTreeMap<Family, u64>,
    listed: bool,
}

impl Core {
    /// Knows no node yet. The plan must be valid.
    pub fn new(plan: NetworkPlan) -> Self {
        Self {
            pools: Pools::new(&plan),
            plan,
            nodes: BTreeMap::new(),
            blocked: BTreeSet::new(),
            retries: BTreeSet::new(),
            usage: BTreeMap::new(),
            listed: false,
        }
    }

    /// Takes one input. `now` is on any monotonic clock. Nothing is handed out before the first [`Input::Nodes`].
    pub fn step(&mut self, input: Input, now: Duration) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Nodes { nodes, unreadable } => self.all(nodes, &unreadable, &mut out),
            Input::Applied(node) => {
                if let Some(name) = self.take_in(&node)
                    && self.listed
                {
                    self.settle(&name, &mut out);
                }
            }
            Input::Deleted(key) => {
                if self
                    .nodes
                    .get(&key.name)
                    .is_some_and(|entry| key.uid.is_empty() || entry.facts.uid == key.uid)
                {
                    self.forget(&key.name);
                }
            }
            Input::Patched { key, version } => self.patched(&key, &version, &mut out),
            Input::PatchFailed { key, error, rejected } => {
                self.patch_failed(&key, error, rejected, now, &mut out)
            }
            Input::Tick => {}
        }
        self.unblock(&mut out);
        self.retry(now, &mut out);
        self.report_usage(&mut out);
        out
    }

    /// When [`Input::Tick`] is due, if no other input comes first.
    pub fn wake_at(&self) -> Option<Duration> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// Whether every node that can be served is, with nothing in flight.
    pub fn is_settled(&self) -> bool {
        self.listed && self.retries.is_empty() && self.nodes.values().all(|entry| entry.in_flight.is_none())
    }

    /// Why a node is not served, if it is not.
    pub fn problem(&self, node: &str) -> Option<&str> {
        self.nodes.get(node).and_then(|entry| entry.problem.as_deref())
    }

    fn all(&mut self, nodes: Vec<Node>, unreadable: &[String], out: &mut Vec<Output>) {
        let present: BTreeSet<&str> = nodes.iter().map(|node| node.metadata.name.as_str()).collect();
        let gone: Vec<String> = self
            .nodes
            .keys()
            .filter(|name| !present.contains(name.as_str()) && !unreadable.contains(name))
            .cloned()
            .collect();
        for name in gone {
            self.forget(&name);
        }
        // everything annotated is reserved before anything is handed out, older nodes first
        let mut nodes = nodes;
        nodes.sort_by(|a, b| age(a).cmp(&age(b)));
        let mut touched = Vec::new();
        for node in &nodes {
            touched.extend(self.take_in(node));
        }
        if !self.listed {
            self.listed = true;
            touched = nodes.iter().map(|node| node.metadata.name.clone()).collect();
        }
        for name in touched {
            self.settle(&name, out);
        }
    }

    /// Notes a node's facts and reserves what its annotations claim. Its name, if there is anything to decide.
    fn take_in(&mut self, node: &Node) -> Option<String> {
        let facts = Facts::of(node, &self.plan);
        let name = node.metadata.name.clone();
        if self.nodes.get(&name).is_some_and(|entry| entry.facts.uid != facts.uid) {
            self.forget(&name);
        }
        match self.nodes.get_mut(&name) {
            Some(entry) if facts.is_older_than(&entry.facts) => return None,
            Some(entry) if facts.same_as(&entry.facts) => {
                entry.facts.version = facts.version;
                return None;
            }
            Some(entry) => entry.facts = facts,
            None => {
                self.nodes.insert(name.clone(), Entry::new(facts));
            }
        }
        self.claim(&name);
        Some(name)
    }

    fn forget(&mut self, name: &str) {
        self.blocked.remove(name);
        if let Some(entry) = self.nodes.remove(name) {
            if let Some(at) = entry.retry_at {
                self.retries.remove(&(at, name.to_string()));
            }
            self.pools.release_all(name, &entry.held);
        }
    }

    fn patched(&mut self, key: &ObjectKey, version: &str, out: &mut Vec<Output>) {
        let Some(entry) = self.entry(key) else { return };
        let Some(patch) = entry.in_flight.take() else { return };
        entry.written(patch, version);
        self.settle(&key.name, out);
    }

    fn patch_failed(
        &mut self,
        key: &ObjectKey,
        error: String,
        rejected: bool,
        now: Duration,
        out: &mut Vec<Output>,
    ) {
        let Some(entry) = self.entry(key) else { return };
        if entry.in_flight.take().is_none() {
            return;
        }
        let at = entry.fail(now);
        self.retries.insert((at, key.name.clone()));
        if rejected {
            let message = format!("cannot write the network annotations of the node: {error}");
            out.push(Output::Warn { key: key.clone(), reason: REASON, message });
        }
    }

    fn entry(&mut self, key: &ObjectKey) -> Option<&mut Entry> {
        self.nodes.get_mut(&key.name).filter(|entry| entry.facts.uid == key.uid)
    }

    /// Looks at the blocked nodes again, oldest first, as long as that frees more.
    fn unblock(&mut self, out: &mut Vec<Output>) {
        while self.listed && std::mem::take(&mut self.pools.freed) && !self.blocked.is_empty() {
            let mut names: Vec<(String, String)> = self
                .blocked
                .iter()
                .filter_map(|name| Some((self.nodes.get(name)?.facts.created.clone(), name.clone())))
                .collect();
            names.sort();
            for (_, name) in &names {
                self.claim(name);
            }
            for (_, name) in &names {
                self.settle(name, out);
            }
        }
    }

    fn retry(&mut self, now: Duration, out: &mut Vec<Output>) {
        while let Some((at, name)) = self.retries.first().cloned()
            && at <= now
        {
            self.retries.pop_first();
            if let Some(entry) = self.nodes.get_mut(&name) {
                entry.retry_at = None;
            }
            self.settle(&name, out);
        }
    }

    fn report_usage(&mut self, out: &mut Vec<Output>) {
        if !self.listed {
            return;
        }
        for family in [Family::V4, Family::V6] {
            let allocated = self.pools.used(family);
            if self.usage.insert(family, allocated) != Some(allocated) {
                out.push(Output::Usage { family, allocated, capacity: self.pools.capacity(family) });
            }
        }
    }
}

/// Older nodes first: by time of creation, then by name.
fn age(node: &Node) -> (&str, &str) {
    let meta = node.meta();
    (meta.creation_timestamp.as_deref().unwrap_or_default(), &meta.name)
}

#[cfg(test)]
mod tests;
