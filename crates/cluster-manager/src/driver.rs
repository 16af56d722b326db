//! The core joined to the API.

use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use k8s_openapi::jiff::Timestamp;
use kapi::annotations::DEFAULT_NETWORK;
use kapi::{Node, ObjectKey};
use kube_io::{
    Change, Class, Election, ElectionSettings, Error, Kube, ObjectRef, Patch, Patched, Scope, Severity,
    Standing, Subresource, Watch,
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::core::{Core, Input, NodePatch, Output, REASON};
use crate::{NetworkPlan, Observe, PlanError};

/// What the cluster manager needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The Lease and our name on it.
    pub election: ElectionSettings,
    /// The cluster's ranges.
    pub plan: NetworkPlan,
}

/// Why it did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configured ranges cannot work together.
    #[error("configuration: {0}")]
    Plan(#[from] PlanError),
}

/// Runs until `shutdown` completes: stands for election and, while leading, keeps the nodes' annotations right.
/// On the way out a leader gives its Lease up.
pub async fn run(
    settings: Settings,
    kube: Kube,
    observe: Arc<dyn Observe>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), StartError> {
    settings.plan.validate()?;
    let start = Instant::now();
    let election = Election::start(kube.clone(), settings.election.clone());
    let mut standing = election.standing();
    let mut office = Office { kube, plan: settings.plan, observe, start, ready: false };
    office.observe.leader(false);
    tokio::select! {
        () = office.serve(&mut standing) => {}
        () = shutdown => {}
    }
    election.withdraw().await;
    office.observe.leader(false);
    Ok(())
}

/// What outlives a term of leadership.
struct Office {
    kube: Kube,
    plan: NetworkPlan,
    observe: Arc<dyn Observe>,
    start: Instant,
    ready: bool,
}

impl Office {
    async fn serve(&mut self, standing: &mut watch::Receiver<Standing>) {
        loop {
            let now = standing.borrow_and_update().clone();
            match now {
                Standing::Leader => {
                    tracing::info!("leading");
                    self.observe.leader(true);
                    // patches in flight are dropped with the term: nothing is written by one who does not lead
                    tokio::select! {
                        () = self.lead() => {}
                        changed = standing.changed() => {
                            if changed.is_err() {
                                return;
                            }
                        }
                    }
                }
                Standing::Standby { holder } => {
                    tracing::info!(holder = holder.as_deref().unwrap_or("nobody"), "standing by");
                    self.observe.leader(false);
                    if holder.is_some() {
                        self.ready();
                    }
                    if standing.changed().await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn ready(&mut self) {
        if !std::mem::replace(&mut self.ready, true) {
            self.observe.ready(self.start.elapsed());
        }
    }

    async fn lead(&mut self) {
        let mut term = Term {
            core: Core::new(self.plan.clone()),
            nodes: self.kube.watch::<Node>(Scope::all()),
            patches: FuturesUnordered::new(),
            unreadable: Vec::new(),
        };
        loop {
            let wake = term.core.wake_at().map(|at| tokio::time::sleep_until(self.start + at));
            let input = tokio::select! {
                Some(change) = term.nodes.next() => term.heard(&self.kube, change),
                Some(input) = term.patches.next(), if !term.patches.is_empty() => Some(input),
                () = sleep(wake) => Some(Input::Tick),
            };
            let Some(input) = input else { continue };
            let listed = matches!(input, Input::Nodes { .. });
            for output in term.core.step(input, self.start.elapsed()) {
                self.act(&mut term, output);
            }
            if listed {
                self.ready();
            }
        }
    }

    fn act(&self, term: &mut Term, output: Output) {
        match output {
            Output::Patch(patch) => {
                let kube = self.kube.clone();
                term.patches.push(async move { apply(kube, patch).await }.boxed());
            }
            Output::Warn { key, reason, message } => {
                tracing::warn!(node = key.name, message, "node refused");
                self.kube.event(ObjectRef::from_key::<Node>(&key), Severity::Warning, reason, message);
            }
            Output::Usage { family, allocated, capacity } => {
                self.observe.host_subnets(DEFAULT_NETWORK, family, allocated, capacity);
            }
        }
    }
}

struct Term {
    core: Core,
    nodes: Watch<Node>,
    patches: FuturesUnordered<BoxFuture<'static, Input>>,
    /// Undecodable nodes since the last other change: those a snapshot that follows lacks.
    unreadable: Vec<String>,
}

impl Term {
    fn heard(&mut self, kube: &Kube, change: Change<Node>) -> Option<Input> {
        match change {
            Change::Snapshot(nodes) => {
                Some(Input::Nodes { nodes, unreadable: std::mem::take(&mut self.unreadable) })
            }
            Change::Applied(node) => {
                self.unreadable.clear();
                Some(Input::Applied(node))
            }
            Change::Deleted(key) => {
                self.unreadable.clear();
                Some(Input::Deleted(key))
            }
            Change::Bad { key, error } => {
                tracing::warn!(node = key.name, error, "node cannot be decoded, what is known of it stays");
                kube.event(
                    ObjectRef::from_key::<Node>(&key),
                    Severity::Warning,
                    REASON,
                    format!("the Node object cannot be read: {error}"),
                );
                self.unreadable.push(key.name);
                None
            }
            Change::Down { error } => {
                tracing::warn!(error, "the watch on nodes is broken, retrying");
                self.unreadable.clear();
                None
            }
            Change::Unserved => None,
            Change::Up => {
                tracing::info!("the watch on nodes is whole again");
                None
            }
        }
    }
}

async fn apply(kube: Kube, patch: NodePatch) -> Input {
    let NodePatch { key, annotations, clear_network_unavailable } = patch;
    match write(&kube, &key, &annotations, clear_network_unavailable).await {
        Ok(patched) => {
            tracing::debug!(node = key.name, ?annotations, "node annotated");
            Input::Patched { key, version: patched.resource_version }
        }
        Err(error) => {
            tracing::debug!(node = key.name, %error, "node not annotated");
            Input::PatchFailed { key, rejected: error.class() == Class::Rejected, error: error.to_string() }
        }
    }
}

async fn write(
    kube: &Kube,
    key: &ObjectKey,
    annotations: &[(&'static str, Option<String>)],
    clear_network_unavailable: bool,
) -> Result<Patched, Error> {
    if !clear_network_unavailable {
        let annotations: Vec<_> = annotations.iter().map(|(name, value)| (*name, value.as_deref())).collect();
        return kube.annotate::<Node>(key, &annotations).await;
    }
    let values: Map<String, Value> =
        annotations.iter().map(|(name, value)| ((*name).to_string(), json!(value))).collect();
    let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let body = json!({
        "metadata": { "annotations": values },
        "status": { "conditions": [{
            "type": "NetworkUnavailable",
            "status": "False",
            "reason": "RouteCreated",
            "message": "OVN provides the pod network, routes of the cloud are not needed",
            "lastTransitionTime": time,
            "lastHeartbeatTime": time,
        }] },
    });
    // conditions merge by their type, so the others stay
    kube.patch::<Node>(key, Subresource::Status, Patch::Strategic(body)).await
}

async fn sleep(until: Option<tokio::time::Sleep>) {
    match until {
        Some(until) => until.await,
        None => std::future::pending().await,
    }
}
