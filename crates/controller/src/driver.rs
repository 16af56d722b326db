//! The loop around the core: watches, databases and timers in, transactions and patches out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use compile::{Db, Settings};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kapi::{
    AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy, EndpointSlice, Namespace,
    NetworkPolicy, Node, ObjectKey, Pod, PodKey, Service, ServiceKey,
};
use kube_io::{Class, Kube, ObjectRef, Scope, Severity};
use net::ClusterCidr;
use ovsdb::{Capabilities, Client, MonitorSpec, Notice, Op, TxnError};
use policy::{Kind, Policy};

use crate::core::{Core, Progress, watched};
use crate::feed::{Feed, event_of, translate};
use crate::io::{Input, Output, PatchError, PolicyObject, TxnFailure, Unreadable};
use crate::observer::{Event, Observer};
use crate::policy_status::carried;

/// Columns without which the rows we write do not mean what they should, with the feature that needs them.
const NEEDED: &[(Db, &str, &str)] = &[
    (Db::Nb, "ACL", "tier"),
    (Db::Nb, "Chassis_Template_Var", "variables"),
    (Db::Nb, "Load_Balancer_Group", "load_balancer"),
    (Db::Nb, "Logical_Router", "copp"),
    (Db::Nb, "Logical_Switch", "load_balancer_group"),
    (Db::Nb, "Meter", "fair"),
    (Db::Sb, "Chassis", "other_config"),
];

/// What the controller needs to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Configuration that shapes rows.
    pub settings: Settings,
    /// Cluster CIDRs with the size of node subnets.
    pub cluster: Vec<ClusterCidr>,
    /// How to reach the Northbound database; tables are filled in here.
    pub northbound: ovsdb::Options,
    /// How to reach the Southbound database; tables are filled in here.
    pub southbound: ovsdb::Options,
}

/// Why the controller cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The database server is too old.
    #[error(
        "database {database} (schema {version}) has no column {table}.{column}: OVN 24.03 or newer is needed; upgrade OVN on this node"
    )]
    TooOld {
        /// The database.
        database: &'static str,
        /// Version of its schema.
        version: String,
        /// Table of the missing column.
        table: &'static str,
        /// The missing column.
        column: &'static str,
    },
}

type Work = Pin<Box<dyn Future<Output = Input> + Send>>;

/// Runs the network controller until it is dropped or finds that it cannot run.
pub async fn run(options: Options, kube: Kube, observer: Arc<dyn Observer>) -> Result<(), Error> {
    let node = options.settings.node.clone();
    let (nb, mut nb_notices) = ovsdb::connect(follow(options.northbound, Db::Nb));
    let (sb, mut sb_notices) = ovsdb::connect(follow(options.southbound, Db::Sb));
    let mut nodes = kube.watch::<Node>(Scope::all());
    let mut namespaces = kube.watch::<Namespace>(Scope::all());
    let mut services = kube.watch::<Service>(Scope::all());
    let mut slices = kube.watch::<EndpointSlice>(Scope::all());
    let mut pods = kube.watch::<Pod>(Scope::all());
    let mut network_policies = kube.watch::<NetworkPolicy>(Scope::all());
    let admin = options.settings.policies.admin;
    let mut admin_policies = watch_if::<AdminNetworkPolicy>(&kube, admin);
    let mut baseline_policies = watch_if::<BaselineAdminNetworkPolicy>(&kube, admin);
    let mut cluster_policies = watch_if::<ClusterNetworkPolicy>(&kube, admin);
    let mut driver = Driver {
        node,
        core: Core::new(options.settings, options.cluster),
        kube,
        nb,
        sb,
        observer,
        started: Instant::now(),
        work: FuturesUnordered::new(),
        progress: None,
        bad: Feed::default(),
    };
    loop {
        let deadline = driver.core.deadline().filter(|deadline| *deadline < Duration::MAX);
        let timer =
            tokio::time::sleep_until((driver.started + deadline.unwrap_or(Duration::from_secs(3600))).into());
        tokio::select! {
            // What the databases say comes first: a transaction's reply must find its effect applied.
            biased;
            Some(notice) = nb_notices.recv() => driver.notice(Db::Nb, notice)?,
            Some(notice) = sb_notices.recv() => driver.notice(Db::Sb, notice)?,
            Some(input) = driver.work.next(), if !driver.work.is_empty() => {
                driver.drain(Db::Nb, &mut nb_notices)?;
                driver.drain(Db::Sb, &mut sb_notices)?;
                driver.step(input);
            }
            Some(change) = nodes.next() => driver.node(change),
            Some(change) = namespaces.next() => driver.namespace(change),
            Some(change) = services.next() => driver.service(change),
            Some(change) = slices.next() => driver.slice(change),
            Some(change) = network_policies.next() => driver.network_policy(change),
            Some(change) = admin_policies.next() => driver.admin_policy(change),
            Some(change) = baseline_policies.next() => driver.baseline_policy(change),
            Some(change) = cluster_policies.next() => driver.cluster_policy(change),
            Some(change) = pods.next() => driver.pod(change),
            () = timer, if deadline.is_some() => driver.step(Input::Tick),
        }
    }
}

/// A watch on a kind, or nothing where it does not count.
fn watch_if<T: kapi::Object>(kube: &Kube, wanted: bool) -> kube_io::Watch<T> {
    if wanted { kube.watch::<T>(Scope::all()) } else { futures::stream::pending().boxed() }
}

fn follow(options: ovsdb::Options, db: Db) -> ovsdb::Options {
    let spec = watched(db).fold(MonitorSpec::none(), |spec, table| spec.table(table, &[]));
    options.monitor(spec)
}

struct Driver {
    node: String,
    core: Core,
    kube: Kube,
    nb: Client,
    sb: Client,
    observer: Arc<dyn Observer>,
    started: Instant,
    work: FuturesUnordered<Work>,
    progress: Option<Progress>,
    bad: Feed,
}

impl Driver {
    fn notice(&mut self, db: Db, notice: Notice) -> Result<(), Error> {
        match notice {
            Notice::Up { capabilities, .. } => {
                check(db, &capabilities)?;
                tracing::info!(database = db.name(), version = capabilities.version(), "connected");
                self.step(Input::Back(db));
            }
            Notice::Reset(update) => self.step(Input::Loaded(db, update)),
            Notice::Update(update) => {
                self.step(Input::Updated(db, update));
                if !self.core.mirror(db).is_sound() {
                    tracing::error!(database = db.name(), "updates do not fit what is known; loading anew");
                    let client = self.client(db).clone();
                    tokio::spawn(async move { client.reload().await });
                }
            }
            Notice::Down { reason } => {
                tracing::warn!(database = db.name(), %reason, "connection lost; trying again");
                self.step(Input::Lost(db));
            }
        }
        Ok(())
    }

    fn client(&self, db: Db) -> &Client {
        match db {
            Db::Nb => &self.nb,
            Db::Sb => &self.sb,
        }
    }

    fn drain(&mut self, db: Db, notices: &mut ovsdb::client::Notices) -> Result<(), Error> {
        while let Some(notice) = notices.try_recv() {
            self.notice(db, notice)?;
        }
        Ok(())
    }

    fn node(&mut self, change: kube_io::Change<Node>) {
        let event = self.bad.nodes.event(&change);
        for change in self.bad.nodes.translate(change) {
            self.timed("Node", event, Input::Nodes(change));
        }
    }

    fn pod(&mut self, change: kube_io::Change<Pod>) {
        self.tell_own_pods(&change);
        let event = self.bad.pods.event(&change);
        for change in self.bad.pods.translate(change) {
            self.timed("Pod", event, Input::Pods(change));
        }
    }

    fn service(&mut self, change: kube_io::Change<Service>) {
        let known = |key: &ObjectKey| {
            let key = ServiceKey::new(&key.namespace, &key.name);
            self.core.world().services().service(&key).is_some()
        };
        let event = event_of(&change, known);
        let unreadable = |key: &ObjectKey| Unreadable::Service(ServiceKey::new(&key.namespace, &key.name));
        if let Some(input) = translate(change, |change| Input::Services(Box::new(change)), unreadable) {
            self.timed("Service", event, input);
        }
    }

    fn slice(&mut self, change: kube_io::Change<EndpointSlice>) {
        let event =
            event_of(&change, |key| self.core.world().services().has_slice(&key.namespace, &key.name));
        let unreadable = |key: &ObjectKey| Unreadable::Slice(format!("{}/{}", key.namespace, key.name));
        if let Some(input) = translate(change, Input::Slices, unreadable) {
            self.timed("EndpointSlice", event, input);
        }
    }

    /// What is told of pods of this node; those of others do not concern it, but they may have been here before.
    fn tell_own_pods(&self, change: &kube_io::Change<Pod>) {
        if let kube_io::Change::Snapshot(list) = change {
            let own = list.iter().filter(|pod| pod.spec.node_name == self.node);
            self.observer.pods(&kube_io::Change::Snapshot(own.cloned().collect()));
        } else {
            self.observer.pods(change);
        }
    }

    fn namespace(&mut self, change: kube_io::Change<Namespace>) {
        let event = self.bad.namespaces.event(&change);
        for change in self.bad.namespaces.translate(change) {
            self.timed("Namespace", event, Input::Namespaces(change));
        }
    }

    fn network_policy(&mut self, change: kube_io::Change<NetworkPolicy>) {
        let event = self.bad.network_policies.event(&change);
        for change in self.bad.network_policies.translate(change) {
            let change = change.map(|object| PolicyObject::from(Policy::from(&object)));
            self.timed("NetworkPolicy", event, Input::Policies(Kind::NetworkPolicy, change));
        }
    }

    fn admin_policy(&mut self, change: kube_io::Change<AdminNetworkPolicy>) {
        let event = self.bad.admin_policies.event(&change);
        for change in self.bad.admin_policies.translate(change) {
            let change = change.map(|object| PolicyObject {
                policy: Policy::from(&object),
                carried: carried(&self.node, &object.status),
            });
            self.timed("AdminNetworkPolicy", event, Input::Policies(Kind::AdminNetworkPolicy, change));
        }
    }

    fn baseline_policy(&mut self, change: kube_io::Change<BaselineAdminNetworkPolicy>) {
        let (kind, event) = (Kind::BaselineAdminNetworkPolicy, self.bad.baseline_policies.event(&change));
        for change in self.bad.baseline_policies.translate(change) {
            let change = change.map(|object| PolicyObject {
                policy: Policy::from(&object),
                carried: carried(&self.node, &object.status),
            });
            self.timed(kind.name(), event, Input::Policies(kind, change));
        }
    }

    fn cluster_policy(&mut self, change: kube_io::Change<ClusterNetworkPolicy>) {
        let event = self.bad.cluster_policies.event(&change);
        for change in self.bad.cluster_policies.translate(change) {
            let change = change.map(|object| PolicyObject {
                policy: Policy::from(&object),
                carried: carried(&self.node, &object.status),
            });
            self.timed("ClusterNetworkPolicy", event, Input::Policies(Kind::ClusterNetworkPolicy, change));
        }
    }

    fn timed(&mut self, kind: &'static str, event: Option<Event>, input: Input) {
        let start = Instant::now();
        self.step(input);
        if let Some(event) = event {
            self.observer.handled(kind, event, start.elapsed());
        }
    }

    fn step(&mut self, input: Input) {
        let outputs = self.core.step(input, self.started.elapsed());
        for output in outputs {
            self.execute(output);
        }
        let progress = self.core.progress();
        if self.progress != Some(progress) {
            self.progress = Some(progress);
            self.observer.progress(progress);
        }
    }

    fn execute(&mut self, output: Output) {
        match output {
            Output::Transact { db, id, ops } => self.transact(db, id, ops),
            Output::Annotate { key, uid, value } => self.annotate(key, uid, value),
            Output::Decided { key, uid, network } => {
                tracing::debug!(pod = %key, %uid, mac = %network.mac, ips = ?network.ips, "addresses decided");
                self.observer.decided(&key, &uid, &network);
            }
            Output::Waiting { key, uid, reason } => {
                tracing::info!(pod = %key, %uid, %reason, "pod has to wait");
                self.observer.waiting(&key, &uid, &reason);
            }
            Output::Warn { key, uid, reason, message } => {
                let pod =
                    ObjectRef::from_key::<Pod>(&ObjectKey { namespace: key.namespace, name: key.name, uid });
                self.kube.event(pod, Severity::Warning, reason, message);
            }
            Output::WarnService { key, uid, reason, message } => {
                tracing::warn!(service = %key, %message);
                let key = ObjectKey { namespace: key.namespace().into(), name: key.name().into(), uid };
                self.kube.event(ObjectRef::from_key::<Service>(&key), Severity::Warning, reason, message);
            }
            Output::ServicesChanged(keys) => self.observer.services(self.core.world().services(), &keys),
            Output::Programmed { key, took, triggers } => self.observer.programmed(&key, took, &triggers),
            Output::Report { id, uid, condition } => {
                let work =
                    crate::policy_status::report(self.kube.clone(), self.node.clone(), id, uid, condition);
                self.work.push(Box::pin(work));
            }
            Output::WarnPolicy { id, uid, message } => {
                tracing::warn!(policy = %id, %message, "policy cannot be used wholly");
                let object = crate::policy_status::reference(&id, uid);
                self.kube.event(object, Severity::Warning, "InvalidPolicy", message);
            }
            Output::WarnNamespace { name, message } => {
                tracing::warn!(namespace = %name, %message, "annotation cannot be used");
                let key = ObjectKey { name, ..ObjectKey::default() };
                let object = ObjectRef::from_key::<Namespace>(&key);
                self.kube.event(object, Severity::Warning, "InvalidAnnotation", message);
            }
            Output::Settled { db: Db::Nb, key: world::Key::Pod(key) } => self.observer.committed(&key),
            Output::Settled { .. } => {}
            Output::Refused { db, key, error } => {
                if let world::Key::Service(service) = &key {
                    self.observer.service_refused(service);
                }
                tracing::error!(database = db.name(), %key, %error, "the database refuses what this asks for");
            }
        }
    }

    fn transact(&mut self, db: Db, id: u64, ops: Vec<Op>) {
        let client = self.client(db).clone();
        tracing::debug!(database = db.name(), id, operations = ops.len(), "transaction");
        self.work.push(Box::pin(async move {
            let result = match client.transact(ops).await {
                Ok(_) => Ok(()),
                Err(TxnError::Rejected(rejection)) => Err(TxnFailure::Refused(rejection)),
                Err(error) => {
                    tracing::warn!(database = db.name(), id, %error, "transaction");
                    Err(TxnFailure::Unknown)
                }
            };
            Input::Transacted { db, id, result }
        }));
    }

    fn annotate(&mut self, key: PodKey, uid: String, value: String) {
        let kube = self.kube.clone();
        let observer = self.observer.clone();
        self.work.push(Box::pin(async move {
            let object =
                ObjectKey { namespace: key.namespace.clone(), name: key.name.clone(), uid: uid.clone() };
            let annotations = [(kapi::annotations::POD_NETWORKS, Some(value.as_str()))];
            let result = match kube.annotate::<Pod>(&object, &annotations).await {
                Ok(_) => {
                    observer.annotated(&key, &uid);
                    Ok(())
                }
                Err(error) => Err(match error.class() {
                    Class::NotFound | Class::Conflict => PatchError::Gone,
                    Class::Transient => PatchError::Transient(error.to_string()),
                    Class::Rejected => PatchError::Refused(error.to_string()),
                }),
            };
            Input::Annotated { key, uid, result }
        }));
    }
}

fn check(db: Db, capabilities: &Capabilities) -> Result<(), Error> {
    let missing = NEEDED.iter().find(|(of, table, column)| *of == db && !capabilities.has(table, column));
    match missing {
        None => Ok(()),
        Some((_, table, column)) => Err(Error::TooOld {
            database: db.name(),
            version: capabilities.version().to_owned(),
            table,
            column,
        }),
    }
}
