//! The network controller without I/O: inputs in, outputs out.

mod policies;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use compile::{Db, Settings, identity, table};
use kapi::annotations::merge_pod_networks;
use kapi::{Namespace, Pod, PodKey};
use net::ClusterCidr;
use policy::{Kind, PolicyId};
use world::{Key, PodState, World};

use crate::io::{Change, Input, Output, PatchError, PolicyObject};
use crate::ledger::{Ledger, Verdict};
use crate::pipeline::{BATCH, Outcome, Pipeline};
use crate::planner::Mirror;

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// The state of one zone's network controller.
#[derive(Debug)]
pub struct Core {
    settings: Arc<Settings>,
    world: World,
    ledger: Ledger,
    nb: Pipeline,
    sb: Pipeline,
    pods: BTreeMap<PodKey, Pod>,
    notes: BTreeMap<PodKey, Note>,
    reports: policies::Reports,
    seen: Seen,
    services: services::Services,
}

/// Which first lists have arrived.
#[derive(Debug, Default, Clone)]
struct Seen {
    nodes: bool,
    pods: bool,
    namespaces: bool,
    ports: bool,
    /// Kinds of policies of which a list has to come still.
    policies_due: BTreeSet<Kind>,
}

/// What is going on about a pod besides its rows.
#[derive(Debug, Default)]
struct Note {
    uid: String,
    told: Option<String>,
    patching: bool,
    retry: Option<(Duration, Duration)>,
}

/// What the controller is waiting for, for the readiness endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// All first lists of the API have arrived.
    pub lists: bool,
    /// The Northbound database is connected and loaded.
    pub northbound: bool,
    /// The Southbound database is connected and loaded.
    pub southbound: bool,
    /// The zone's own node has all its annotations.
    pub node: bool,
    /// Nothing is due.
    pub idle: bool,
}

impl Core {
    /// The controller of the zone of `settings.node`.
    pub fn new(settings: Settings, cluster: Vec<ClusterCidr>) -> Core {
        Core::with_batch(settings, cluster, BATCH)
    }

    /// Like [`Core::new`], with at most `batch` keys in one transaction.
    pub fn with_batch(settings: Settings, cluster: Vec<ClusterCidr>, batch: usize) -> Core {
        let settings = Arc::new(settings);
        Core {
            world: World::new(&*settings.node, cluster)
                .with_host_namespace(&settings.policies.host_namespace),
            ledger: Ledger::new(settings.clone()),
            nb: Pipeline::new(Mirror::new(Db::Nb, settings.clone()), batch),
            sb: Pipeline::new(Mirror::new(Db::Sb, settings.clone()), batch),
            pods: BTreeMap::new(),
            notes: BTreeMap::new(),
            reports: policies::Reports::default(),
            seen: Seen { policies_due: kinds(&settings).collect(), ..Seen::default() },
            services: services::Services::default(),
            settings,
        }
    }

    /// Takes one input at monotonic time `now` and returns what is to be done.
    pub fn step(&mut self, input: Input, now: Duration) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Nodes(change) => self.nodes(change, &mut out),
            Input::Pods(change) => self.pods(change, &mut out),
            Input::Namespaces(change) => self.namespaces(change, &mut out),
            Input::Policies(kind, change) => self.policies(kind, change, &mut out),
            Input::Services(change) => self.services(*change, now, &mut out),
            Input::Slices(change) => self.slices(change, now, &mut out),
            Input::Unreadable(object) => self.unreadable(object),
            Input::Loaded(db, update) => self.loaded(db, &update, &mut out),
            Input::Updated(db, update) => self.pipeline(db).update(&update),
            Input::Lost(db) => {
                let undone = self.pipeline(db).lost();
                self.undone(db, &undone);
            }
            Input::Back(db) => self.pipeline(db).back(),
            Input::Transacted { db, id, result } => {
                let outcome = self.pipeline(db).landed(id, result, now);
                self.landed(db, outcome, now, &mut out);
            }
            Input::Annotated { key, uid, result } => self.annotated(&key, &uid, result, now, &mut out),
            Input::Reported { id, uid, result } => self.reports.reported(&id, &uid, result, now, &mut out),
            Input::Tick => {}
        }
        self.tick(now, &mut out);
        self.flush(now, &mut out);
        out
    }

    /// When [`Input::Tick`] is wanted next.
    pub fn deadline(&self) -> Option<Duration> {
        let retries = self.notes.values().filter_map(|note| note.retry.map(|(at, _)| at)).min();
        [self.nb.deadline(), self.sb.deadline(), retries, self.reports.deadline()].into_iter().flatten().min()
    }

    /// How far the controller is.
    pub fn progress(&self) -> Progress {
        Progress {
            lists: self.has_lists() && self.services.are_known(),
            northbound: self.nb.is_live(),
            southbound: self.sb.is_live(),
            node: self.world.local_node().is_some(),
            idle: self.nb.is_idle() && self.sb.is_idle() && !self.world.is_dirty(),
        }
    }

    /// The tables.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The pods' addresses.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The contents of a database as known here.
    pub fn mirror(&self, db: Db) -> &Mirror {
        match db {
            Db::Nb => &self.nb.mirror,
            Db::Sb => &self.sb.mirror,
        }
    }

    fn pipeline(&mut self, db: Db) -> &mut Pipeline {
        match db {
            Db::Nb => &mut self.nb,
            Db::Sb => &mut self.sb,
        }
    }

    fn has_lists(&self) -> bool {
        self.seen.nodes && self.seen.pods && self.seen.namespaces && self.seen.policies_due.is_empty()
    }

    /// Addresses are given out only when all pods and all ports there are have been seen.
    fn may_allocate(&self) -> bool {
        self.seen.pods && self.seen.ports && self.world.local_node().is_some()
    }

    fn nodes(&mut self, change: Change<kapi::Node>, out: &mut Vec<Output>) {
        let was_known = self.world.local_node().is_some();
        match change {
            Change::Snapshot(nodes) => {
                self.world.replace_nodes(&nodes);
                self.seen.nodes = true;
            }
            Change::Applied(node) => self.world.apply_node(&node),
            Change::Deleted(key) => self.world.remove_node(&key.name),
        }
        let subnets = self.world.local_node().map(|node| node.subnets);
        if let Some(subnets) = subnets {
            self.ledger.set_subnets(subnets);
            self.reconsider_waiting(out);
        }
        if !was_known && subnets.is_some() {
            // Rows found earlier could not be judged without the node: those of pods that are gone, above all.
            for db in [Db::Nb, Db::Sb] {
                self.mark_all(db);
            }
        }
    }

    fn pods(&mut self, change: Change<Pod>, out: &mut Vec<Output>) {
        match change {
            Change::Snapshot(pods) => {
                let listed: BTreeMap<PodKey, Pod> =
                    pods.into_iter().map(|pod| (pod.pod_key(), pod)).collect();
                let known = self.pods.keys().chain(self.world.policies().pods().map(|(key, _)| key));
                let gone: BTreeSet<PodKey> =
                    known.filter(|key| !listed.contains_key(*key)).cloned().collect();
                for key in gone {
                    self.pod_gone(&key);
                }
                // Pods with addresses first: what they hold must not be given to those without.
                let (with, without): (Vec<Pod>, Vec<Pod>) = listed
                    .into_values()
                    .partition(|pod| pod.metadata.annotation(kapi::annotations::POD_NETWORKS).is_some());
                let first = !self.seen.pods;
                self.seen.pods = true;
                for pod in with.into_iter().chain(without) {
                    self.pod_seen(pod, out);
                }
                if first {
                    self.reconsider_waiting(out);
                }
            }
            Change::Applied(pod) => self.pod_seen(pod, out),
            Change::Deleted(key) => self.pod_gone(&key),
        }
    }

    fn pod_seen(&mut self, pod: Pod, out: &mut Vec<Output>) {
        let key = pod.pod_key();
        let ours = pod.spec.node_name == self.settings.node;
        if !ours {
            self.own_pod_gone(&key);
            let ips = match &pod {
                pod if pod.spec.host_network => pod.status.pod_ips.iter().map(|one| one.ip).collect(),
                // A pod whose annotation cannot be read is reported by its own zone.
                pod => match pod.metadata.default_pod_network() {
                    Ok(Some(network)) => network.addresses().collect(),
                    _ => Vec::new(),
                },
            };
            return peer(&mut self.world, &pod, ips);
        }
        let note = self.notes.entry(key.clone()).or_default();
        if note.uid != pod.metadata.uid {
            *note = Note { uid: pod.metadata.uid.clone(), ..Note::default() };
        }
        self.pods.insert(key.clone(), pod);
        self.consider(&key, out);
    }

    fn pod_gone(&mut self, key: &PodKey) {
        self.world.remove_peer(key);
        self.own_pod_gone(key);
    }

    fn own_pod_gone(&mut self, key: &PodKey) {
        self.notes.remove(key);
        if self.pods.remove(key).is_some() {
            self.ledger.forget(key);
            self.world.set_pod(key, None);
            if self.ledger.has_retiring(key) {
                self.world.mark(Key::Pod(key.clone()));
            }
        }
    }

    fn namespaces(&mut self, change: Change<Namespace>, out: &mut Vec<Output>) {
        let named: Vec<String> = match change {
            Change::Snapshot(list) => {
                self.world.replace_namespaces(&list);
                self.seen.namespaces = true;
                list.into_iter().map(|namespace| namespace.metadata.name).collect()
            }
            Change::Applied(namespace) => {
                let before = self.world.policies().namespace(&namespace.metadata.name).cloned();
                self.world.apply_namespace(&namespace);
                let name = namespace.metadata.name;
                let told = self.world.policies().namespace(&name) == before.as_ref();
                if told { Vec::new() } else { vec![name] }
            }
            Change::Deleted(key) => return self.world.remove_namespace(&key.name),
        };
        for name in named {
            let problem = self.world.policies().namespace(&name).and_then(|state| state.problem.clone());
            if let Some(problem) = problem {
                let message = format!("{problem}; nothing is logged");
                out.push(Output::WarnNamespace { name, message });
            }
        }
    }

    fn policies(&mut self, kind: Kind, change: Change<PolicyObject>, out: &mut Vec<Output>) {
        match change {
            Change::Snapshot(list) => {
                let known = self.world.policies().policies().map(|policy| &policy.id);
                let known: Vec<PolicyId> = known.filter(|id| id.kind == kind).cloned().collect();
                for object in &list {
                    self.reports.seen(&object.policy, object.carried.clone(), out);
                }
                self.world.replace_policies(kind, list.into_iter().map(|object| object.policy).collect());
                for id in known {
                    if self.world.policies().policy(&id).is_none() {
                        self.reports.gone(&id);
                    }
                }
                self.seen.policies_due.remove(&kind);
            }
            Change::Applied(object) => {
                self.reports.seen(&object.policy, object.carried, out);
                self.world.apply_policy(object.policy);
            }
            Change::Deleted(key) => {
                let id = PolicyId { kind, namespace: key.namespace, name: key.name };
                self.reports.gone(&id);
                self.world.remove_policy(&id);
            }
        }
    }

    /// Decides about a pod with what is known now.
    fn consider(&mut self, key: &PodKey, out: &mut Vec<Output>) {
        self.decide(key, out);
        let Some(pod) = self.pods.get(key) else { return };
        let ips = match self.world.pod(key) {
            _ if pod.spec.host_network => pod.status.pod_ips.iter().map(|one| one.ip).collect(),
            Some(state) => state.network.addresses().collect(),
            None => Vec::new(),
        };
        peer(&mut self.world, pod, ips);
    }

    fn decide(&mut self, key: &PodKey, out: &mut Vec<Output>) {
        let may_allocate = self.may_allocate();
        let Some(pod) = self.pods.get(key) else { return };
        let uid = pod.metadata.uid.clone();
        if let Err(error) = pod.metadata.default_pod_network()
            && pod.wants_network()
        {
            let message = format!("pod {key}: {error}; it is replaced");
            self.tell(key, &uid, "ErrorReconcilingPod", message, out);
        }
        let Some(pod) = self.pods.get(key) else { return };
        let before = self.ledger.network(key, &uid).cloned();
        match self.ledger.observe(pod, may_allocate) {
            Verdict::None => {
                self.world.set_pod(key, None);
                if let Some(note) = self.notes.get_mut(key) {
                    *note = Note { uid, ..Note::default() };
                }
            }
            Verdict::Network { network, annotate } => {
                self.world.set_pod(key, Some(PodState { uid: uid.clone(), network: network.clone() }));
                if before.as_ref() != Some(&network) {
                    out.push(Output::Decided {
                        key: key.clone(),
                        uid: uid.clone(),
                        network: network.clone(),
                    });
                }
                if annotate {
                    self.annotate(key, out);
                } else if let Some(note) = self.notes.get_mut(key) {
                    note.retry = None;
                    note.told = None;
                }
            }
            Verdict::Wait(refusal) => {
                self.world.set_pod(key, None);
                let message = format!("pod {key}: {refusal}");
                out.push(Output::Waiting { key: key.clone(), uid: uid.clone(), reason: refusal.to_string() });
                if may_allocate {
                    self.tell(key, &uid, "ErrorAllocatingPod", message, out);
                }
            }
        }
        if self.ledger.has_retiring(key) {
            self.world.mark(Key::Pod(key.clone()));
        }
    }

    fn reconsider_waiting(&mut self, out: &mut Vec<Output>) {
        if self.may_allocate() {
            let waiting: Vec<PodKey> = self.ledger.waiting().cloned().collect();
            for key in waiting {
                self.consider(&key, out);
            }
        }
    }

    fn annotate(&mut self, key: &PodKey, out: &mut Vec<Output>) {
        let (Some(pod), Some(note)) = (self.pods.get(key), self.notes.get_mut(key)) else { return };
        let Some(network) = self.ledger.network(key, &note.uid) else { return };
        if note.patching || note.retry.is_some() {
            return;
        }
        note.patching = true;
        let old = pod.metadata.annotation(kapi::annotations::POD_NETWORKS);
        let value = merge_pod_networks(old, kapi::annotations::DEFAULT_NETWORK, network);
        out.push(Output::Annotate { key: key.clone(), uid: note.uid.clone(), value });
    }

    fn annotated(
        &mut self,
        key: &PodKey,
        uid: &str,
        result: Result<(), PatchError>,
        now: Duration,
        out: &mut Vec<Output>,
    ) {
        let Some(note) = self.notes.get_mut(key).filter(|note| note.uid == uid) else { return };
        note.patching = false;
        let error = match result {
            Ok(()) => {
                note.retry = None;
                note.told = None;
                return self.ledger.annotated(key, uid);
            }
            Err(error) => error,
        };
        let delay = match note.retry {
            Some((_, delay)) => (delay * 2).min(LONGEST_RETRY),
            None => FIRST_RETRY,
        };
        note.retry = Some((now + delay, delay));
        let message = format!("pod {key}: its addresses could not be written to it: {error}; trying again");
        out.push(Output::Waiting { key: key.clone(), uid: uid.to_owned(), reason: message.clone() });
        if matches!(error, PatchError::Refused(_)) {
            self.tell(key, uid, "ErrorReconcilingPod", message, out);
        }
    }

    /// Emits a warning once per distinct message.
    fn tell(
        &mut self,
        key: &PodKey,
        uid: &str,
        reason: &'static str,
        message: String,
        out: &mut Vec<Output>,
    ) {
        let Some(note) = self.notes.get_mut(key) else { return };
        if note.told.as_ref() != Some(&message) {
            note.told = Some(message.clone());
            out.push(Output::Warn { key: key.clone(), uid: uid.to_owned(), reason, message });
        }
    }

    /// A database was loaded.
    fn loaded(&mut self, db: Db, update: &ovsdb::Update, out: &mut Vec<Output>) {
        let undone = self.pipeline(db).lost();
        self.undone(db, &undone);
        self.pipeline(db).load(update);
        if db == Db::Nb {
            self.learn_ports();
            let first = !self.seen.ports;
            self.seen.ports = true;
            if first {
                self.reconsider_waiting(out);
            }
        }
        self.mark_all(db);
    }

    /// Compares whatever the database or the tables know of.
    fn mark_all(&mut self, db: Db) {
        let mut keys: Vec<Key> = self.world.keys().collect();
        let mirror = self.mirror(db);
        keys.extend(mirror.owners().cloned());
        for key in keys {
            if concerns(db, &key) {
                self.pipeline(db).mark(key);
            }
        }
    }

    fn learn_ports(&mut self) {
        let ports: Vec<(PodKey, String, Vec<std::net::IpAddr>)> = self
            .nb
            .mirror
            .owners()
            .filter_map(|owner| match owner {
                Key::Pod(key) => Some((owner, key)),
                _ => None,
            })
            .flat_map(|(owner, key)| self.nb.mirror.rows_of(owner).map(move |(_, row)| (key, row)))
            .map(|(key, row)| {
                let uid =
                    row.get("options").and_then(|options| options.get("iface-id-ver")).unwrap_or_default();
                (key.clone(), uid.to_owned(), identity::port_ips(row).collect())
            })
            .collect();
        for (key, uid, ips) in ports {
            self.ledger.found_port(&key, &uid, ips);
        }
    }

    fn landed(&mut self, db: Db, outcome: Outcome, now: Duration, out: &mut Vec<Output>) {
        self.undone(db, &outcome.undone);
        if let Some((key, error)) = outcome.refused {
            if let Key::Pod(pod) = &key {
                let uid = self.notes.get(pod).map(|note| note.uid.clone()).unwrap_or_default();
                let message = format!("pod {pod}: the {} database refuses its port: {error}", db.name());
                out.push(Output::Waiting { key: pod.clone(), uid: uid.clone(), reason: message.clone() });
                self.tell(pod, &uid, "ErrorReconcilingPod", message, out);
            }
            if let Key::Service(service) = &key {
                self.service_refused(service, &error, out);
            }
            if let Key::Policy(id) = &key {
                self.reports.settled(&self.world, id, Some(&error), out);
            }
            out.push(Output::Refused { db, key, error });
        }
        self.settled(db, outcome.settled, now, out);
    }

    fn undone(&mut self, db: Db, keys: &[Key]) {
        if db == Db::Nb {
            for key in keys {
                match key {
                    Key::Pod(pod) => self.ledger.failed(pod),
                    Key::Service(service) => self.services.undone(service),
                    _ => {}
                }
            }
        }
    }

    fn settled(&mut self, db: Db, keys: Vec<Key>, now: Duration, out: &mut Vec<Output>) {
        let mut freed = false;
        for key in keys {
            if let (Db::Nb, Key::Pod(pod)) = (db, &key) {
                freed |= !self.ledger.committed(pod).is_empty();
            }
            if let Key::Service(service) = &key {
                self.service_settled(service, now, out);
            }
            if let Key::Policy(id) = &key {
                self.reports.settled(&self.world, id, None, out);
            }
            out.push(Output::Settled { db, key });
        }
        if freed {
            self.reconsider_waiting(out);
        }
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Output>) {
        self.nb.tick(now);
        self.sb.tick(now);
        self.reports.tick(now, out);
        let due: Vec<PodKey> = self
            .notes
            .iter()
            .filter(|(_, note)| !note.patching && note.retry.is_some_and(|(at, _)| at <= now))
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            let Some(note) = self.notes.get_mut(&key) else { continue };
            // The delay is kept for the case that this attempt fails too.
            let kept = note.retry.take();
            self.annotate(&key, out);
            if let Some(note) = self.notes.get_mut(&key)
                && note.patching
            {
                note.retry = kept.map(|(_, delay)| (Duration::MAX, delay));
            }
        }
    }

    /// Sends what is due to the databases that can take it.
    fn flush(&mut self, now: Duration, out: &mut Vec<Output>) {
        if !self.has_lists() {
            return;
        }
        for key in self.world.take_dirty() {
            for db in [Db::Nb, Db::Sb] {
                if concerns(db, &key) {
                    self.pipeline(db).mark(key.clone());
                }
            }
        }
        for db in [Db::Nb, Db::Sb] {
            self.flush_one(db, now, out);
        }
    }

    fn flush_one(&mut self, db: Db, now: Duration, out: &mut Vec<Output>) {
        loop {
            let keys = self.pipeline(db).next_keys();
            if keys.is_empty() {
                return;
            }
            let wanted: Vec<(Key, compile::Desired)> = keys
                .into_iter()
                .filter(|key| self.is_known(key))
                .filter_map(|key| {
                    let desired = compile::compile(&self.world, &self.settings, &key)?;
                    Some((key, desired))
                })
                .collect();
            if db == Db::Nb {
                for (key, _) in &wanted {
                    match key {
                        Key::Pod(pod) => self.ledger.planned(pod),
                        Key::Service(service) => self.services.planned(service),
                        _ => {}
                    }
                }
            }
            let (settled, transaction) = self.pipeline(db).launch(&wanted);
            self.settled(db, settled, now, out);
            if let Some((id, ops)) = transaction {
                out.push(Output::Transact { db, id, ops });
                return;
            }
            // Settling may have freed addresses and so dirtied pods.
            for key in self.world.take_dirty() {
                if concerns(db, &key) {
                    self.pipeline(db).mark(key);
                }
            }
        }
    }
}

/// Whether a key has rows in a database.
fn concerns(db: Db, key: &Key) -> bool {
    match db {
        Db::Nb => true,
        Db::Sb => matches!(key, Key::RemoteNode(_)),
    }
}

/// A pod as policies see it. Those that have ended or run nowhere yet are nobody's peers.
fn peer(world: &mut World, pod: &Pod, ips: Vec<std::net::IpAddr>) {
    if pod.is_finished() || pod.spec.node_name.is_empty() {
        world.remove_peer(&pod.pod_key());
    } else {
        world.apply_peer(pod, ips);
    }
}

/// The kinds of policies there are in this cluster.
pub(crate) fn kinds(settings: &Settings) -> impl Iterator<Item = Kind> {
    let admin = settings.policies.admin;
    Kind::ALL.into_iter().filter(move |kind| admin || *kind == Kind::NetworkPolicy)
}

/// The tables a controller has to watch in a database.
pub fn watched(db: Db) -> impl Iterator<Item = &'static str> {
    table::ALL.iter().filter(move |table| table.db == db).map(|table| table.name)
}
