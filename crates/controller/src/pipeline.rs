//! Transactions of one database: one at a time, each for all keys that are due.
//!
//! While a transaction is on its way further keys gather and share the next one. If the server refuses a
//! transaction, its keys are tried in halves until the culprits stand alone; those are put off with growing
//! delay and never hold up the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use compile::{Desired, RowId};
use ovsdb::{Op, Update};
use world::Key;

use crate::io::TxnFailure;
use crate::planner::Mirror;

/// Keys in one transaction at the most, unless told otherwise.
pub(crate) const BATCH: usize = 500;
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// What became of a transaction's keys.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The database holds what these ask for.
    pub(crate) settled: Vec<Key>,
    /// The database's contents are unknown or unchanged for these; they will be tried again.
    pub(crate) undone: Vec<Key>,
    /// The server refuses what this one asks for.
    pub(crate) refused: Option<(Key, String)>,
}

/// The pipeline of one database.
#[derive(Debug)]
pub(crate) struct Pipeline {
    /// The database's contents.
    pub(crate) mirror: Mirror,
    up: bool,
    loaded: bool,
    pending: BTreeSet<Key>,
    groups: VecDeque<Vec<Key>>,
    flight: Option<Flight>,
    waiting: BTreeMap<RowId, BTreeSet<Key>>,
    put_off: BTreeMap<Key, PutOff>,
    next_id: u64,
    batch: usize,
}

#[derive(Debug)]
struct Flight {
    id: u64,
    keys: Vec<Key>,
}

#[derive(Debug)]
struct PutOff {
    until: Duration,
    delay: Duration,
    due: bool,
}

impl Pipeline {
    /// An idle pipeline over an empty mirror that takes up to `batch` keys into one transaction.
    pub(crate) fn new(mirror: Mirror, batch: usize) -> Pipeline {
        Pipeline {
            mirror,
            up: false,
            loaded: false,
            pending: BTreeSet::new(),
            groups: VecDeque::new(),
            flight: None,
            waiting: BTreeMap::new(),
            put_off: BTreeMap::new(),
            next_id: 1,
            batch: batch.max(1),
        }
    }

    /// Whether the contents are known and transactions are possible.
    pub(crate) fn is_live(&self) -> bool {
        self.up && self.loaded
    }

    /// Whether nothing is under way or due.
    pub(crate) fn is_idle(&self) -> bool {
        self.flight.is_none() && self.pending.is_empty() && self.groups.is_empty()
    }

    /// The database was loaded anew.
    pub(crate) fn load(&mut self, update: &Update) {
        self.mirror.reset(update);
        self.up = true;
        self.loaded = true;
        self.waiting.clear();
        self.put_off.clear();
    }

    /// The database changed.
    pub(crate) fn update(&mut self, update: &Update) {
        for fresh in self.mirror.apply(update) {
            if let Some(keys) = self.waiting.remove(&fresh) {
                self.pending.extend(keys);
            }
        }
    }

    /// The connection is lost. What was on its way comes back as undone.
    pub(crate) fn lost(&mut self) -> Vec<Key> {
        self.up = false;
        let keys = self.flight.take().map(|flight| flight.keys).unwrap_or_default();
        self.pending.extend(keys.iter().cloned());
        self.pending.extend(self.groups.drain(..).flatten());
        keys
    }

    /// The connection is back with the contents known so far.
    pub(crate) fn back(&mut self) {
        self.up = true;
    }

    /// This key's wishes may have changed.
    pub(crate) fn mark(&mut self, key: Key) {
        self.put_off.remove(&key);
        self.pending.insert(key);
    }

    /// The earliest time a key that was put off is due.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.put_off.values().filter(|put_off| !put_off.due).map(|put_off| put_off.until).min()
    }

    /// Puts keys whose delay is over back in line.
    pub(crate) fn tick(&mut self, now: Duration) {
        for (key, put_off) in &mut self.put_off {
            if !put_off.due && put_off.until <= now {
                put_off.due = true;
                self.pending.insert(key.clone());
            }
        }
    }

    /// Takes the keys of the next transaction; none while one is on its way or the database is out of reach.
    pub(crate) fn next_keys(&mut self) -> Vec<Key> {
        if !self.is_live() || self.flight.is_some() {
            return Vec::new();
        }
        if let Some(group) = self.groups.pop_front() {
            return group;
        }
        let mut keys = Vec::new();
        while keys.len() < self.batch
            && let Some(key) = self.pending.pop_first()
        {
            keys.push(key);
        }
        keys
    }

    /// Plans the transaction for `wanted`. Keys that need nothing are settled at once; otherwise the transaction
    /// is on its way when this returns its number and operations.
    pub(crate) fn launch(&mut self, wanted: &[(Key, Desired)]) -> (Vec<Key>, Option<(u64, Vec<Op>)>) {
        let plan = self.mirror.plan(wanted.iter().map(|(key, desired)| (key, desired)));
        for (key, row) in plan.waiting {
            self.waiting.entry(row).or_default().insert(key);
        }
        if plan.ops.is_empty() {
            for key in &plan.keys {
                self.put_off.remove(key);
            }
            return (plan.keys, None);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.flight = Some(Flight { id, keys: plan.keys });
        (Vec::new(), Some((id, plan.ops)))
    }

    /// The transaction `id` ended.
    pub(crate) fn landed(&mut self, id: u64, result: Result<(), TxnFailure>, now: Duration) -> Outcome {
        let Some(flight) = self.flight.take_if(|flight| flight.id == id) else { return Outcome::default() };
        let mut keys = flight.keys;
        match result {
            Ok(()) => {
                for key in &keys {
                    self.put_off.remove(key);
                }
                Outcome { settled: keys, ..Outcome::default() }
            }
            Err(TxnFailure::Refused(rejection)) if !rejection.is_transient() => {
                if keys.len() > 1 {
                    let second = keys.split_off(keys.len() / 2);
                    self.groups.push_front(second.clone());
                    self.groups.push_front(keys.clone());
                    keys.extend(second);
                    return Outcome { undone: keys, ..Outcome::default() };
                }
                let Some(key) = keys.pop() else { return Outcome::default() };
                self.put_off(&key, now);
                Outcome {
                    undone: vec![key.clone()],
                    refused: Some((key, rejection.to_string())),
                    ..Outcome::default()
                }
            }
            Err(_) => {
                // Without a reply, or without a connection: what holds is seen when the database is back.
                for key in &keys {
                    self.put_off(key, now);
                }
                Outcome { undone: keys, ..Outcome::default() }
            }
        }
    }

    fn put_off(&mut self, key: &Key, now: Duration) {
        let delay =
            self.put_off.get(key).map_or(FIRST_DELAY, |put_off| (put_off.delay * 2).min(LONGEST_DELAY));
        self.put_off.insert(key.clone(), PutOff { until: now + delay, delay, due: false });
    }
}
