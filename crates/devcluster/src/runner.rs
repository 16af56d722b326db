//! Kubelet and container runtime in small: runs the pods that are bound to its node.
//!
//! ```text
//!  watch of the node's pods ─▶ one task a pod:  sandbox ─ CNI ADD ─ containers ─ status ─ … ─ stop ─ CNI DEL ─ delete
//!                                     └─▶ records: what tests and the demo look at
//! ```

mod containers;
mod life;
mod status;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::DeleteParams,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{sync::watch, task::JoinHandle};

use crate::{node::Node, sandbox::Sandbox, space::Process, wire::Program};

/// Namespace and name.
pub type PodKey = (String, String);

/// Runs the pods of one node until it is dropped.
pub struct Runner {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What all pod tasks of a runner use.
struct Shared {
    node: Arc<Node>,
    client: Client,
    records: watch::Sender<BTreeMap<PodKey, PodRecord>>,
}

/// How far a pod has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Seen; no network yet.
    Pending,
    /// Its containers run.
    Running,
    /// All its containers have ended for good.
    Finished,
}

/// What the runner knows of a pod.
#[derive(Clone)]
pub struct PodRecord {
    /// UID of the pod it ran.
    pub uid: String,
    /// How far it has come.
    pub stage: Stage,
    /// How often CNI ADD was called.
    pub attempts: u32,
    /// How long the successful CNI ADD took.
    pub add_took: Option<Duration>,
    /// Its addresses, without prefix lengths.
    pub addresses: Vec<String>,
    /// MAC of its interface; none on the host network.
    pub mac: Option<String>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// Its network namespace; none on the host network.
    pub sandbox: Option<Sandbox>,
}

/// A running pod, to run more things in.
#[derive(Clone)]
pub struct PodHandle {
    node: Arc<Node>,
    /// What the runner knows of it.
    pub record: PodRecord,
}

/// What a pod's task is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Deletion was asked for; processes get this long to end by themselves.
    Graceful(Duration),
    /// The object is gone already.
    Gone,
}

struct Task {
    stop: watch::Sender<Option<Stop>>,
    task: JoinHandle<()>,
}

// === impl Runner ===

impl Runner {
    /// Starts running the pods of `node`.
    pub fn start(node: Arc<Node>, client: Client) -> Self {
        let shared = Arc::new(Shared { node, client, records: watch::channel(BTreeMap::new()).0 });
        let task = tokio::spawn(follow(shared.clone()));
        Self { shared, task }
    }

    /// The pod, once its containers run.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<PodHandle> {
        let records = self.shared.records.borrow();
        let record = records.get(&(namespace.to_owned(), name.to_owned()))?;
        (record.stage == Stage::Running)
            .then(|| PodHandle { node: self.shared.node.clone(), record: record.clone() })
    }

    /// What is known of a pod, however far it has come.
    pub fn record(&self, namespace: &str, name: &str) -> Option<PodRecord> {
        self.shared.records.borrow().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// All pods.
    pub fn records(&self) -> BTreeMap<PodKey, PodRecord> {
        self.shared.records.borrow().clone()
    }

    /// Waits until `look` finds something in the records; looks again whenever they change.
    pub async fn wait_for<T>(&self, look: impl Fn(&BTreeMap<PodKey, PodRecord>) -> Option<T>) -> Result<T> {
        let mut records = self.shared.records.subscribe();
        loop {
            if let Some(found) = look(&records.borrow_and_update()) {
                return Ok(found);
            }
            records.changed().await.context("the runner was stopped")?;
        }
    }

    /// Waits until the pod's containers run; on failure tells what went wrong last.
    pub async fn running(&self, namespace: &str, name: &str, patience: Duration) -> Result<PodHandle> {
        let key = (namespace.to_owned(), name.to_owned());
        let wait = self
            .wait_for(|records| records.get(&key).filter(|record| record.stage == Stage::Running).cloned());
        match tokio::time::timeout(patience, wait).await {
            Ok(record) => Ok(PodHandle { node: self.shared.node.clone(), record: record? }),
            Err(_) => {
                let why = match self.record(namespace, name) {
                    None => format!("it was not seen on {}", self.shared.node.name()),
                    Some(record) => {
                        record.last_error.unwrap_or_else(|| "its CNI ADD has not returned".to_owned())
                    }
                };
                anyhow::bail!("pod {namespace}/{name} does not run after {patience:?}: {why}")
            }
        }
    }

    /// Waits until the pod has been taken down.
    pub async fn gone(&self, namespace: &str, name: &str, patience: Duration) -> Result<()> {
        let key = (namespace.to_owned(), name.to_owned());
        let wait = self.wait_for(|records| (!records.contains_key(&key)).then_some(()));
        tokio::time::timeout(patience, wait)
            .await
            .unwrap_or_else(|_| anyhow::bail!("pod {namespace}/{name} is still there after {patience:?}"))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Pods go on running, as they do without a kubelet.
        self.task.abort();
    }
}

// === impl PodHandle ===

impl PodHandle {
    /// Runs a command in the pod's network to its end and gives its standard output.
    pub async fn exec<S: AsRef<str>>(&self, argv: &[S]) -> Result<String> {
        match &self.record.sandbox {
            Some(sandbox) => sandbox.exec(argv).await,
            None => self.node.exec(argv).await,
        }
    }

    /// Starts a program in the pod's network.
    pub async fn spawn(&self, program: Program) -> Result<Process> {
        match &self.record.sandbox {
            Some(sandbox) => sandbox.spawn(program).await,
            None => self.node.spawn(program).await,
        }
    }

    /// The node it runs on.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

// === impl Shared ===

impl Shared {
    fn update(&self, key: &PodKey, change: impl FnOnce(&mut PodRecord)) {
        self.records.send_modify(|records| {
            if let Some(record) = records.get_mut(key) {
                change(record);
            }
        });
    }

    /// Deletes the object for good, unless another of the same name has taken its place.
    async fn delete(&self, key: &PodKey, uid: &str) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.0);
        let mut params = DeleteParams::default().grace_period(0);
        params.preconditions =
            Some(kube::api::Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let mut wait = Duration::from_millis(100);
        loop {
            match api.delete(&key.1, &params).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
                Err(error) => tracing::warn!("deleting pod {}/{}: {error}", key.0, key.1),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(5));
        }
    }
}

/// Watches for ever; the watcher reconnects by itself.
async fn follow(shared: Arc<Shared>) {
    let pods: Api<Pod> = Api::all(shared.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", shared.node.name()));
    let mut events = std::pin::pin!(watcher(pods, config).default_backoff());
    // By UID: a name may return while its former owner is still taken down.
    let mut tasks: HashMap<String, Task> = HashMap::new();
    let mut listed = None;
    loop {
        match events.try_next().await {
            Ok(None) => return,
            Err(error) => tracing::warn!("watching the pods of {}: {error}", shared.node.name()),
            Ok(Some(event)) => match event {
                watcher::Event::Init => listed = Some(Vec::new()),
                watcher::Event::InitApply(pod) => {
                    if let (Some(listed), Some(uid)) = (&mut listed, &pod.metadata.uid) {
                        listed.push(uid.clone());
                    }
                    apply(&shared, &mut tasks, pod);
                }
                watcher::Event::InitDone => {
                    let listed = listed.take().unwrap_or_default();
                    for (uid, task) in &tasks {
                        if !listed.contains(uid) {
                            task.stop.send_replace(Some(Stop::Gone));
                        }
                    }
                }
                watcher::Event::Apply(pod) => apply(&shared, &mut tasks, pod),
                watcher::Event::Delete(pod) => {
                    if let Some(task) = pod.metadata.uid.as_ref().and_then(|uid| tasks.get(uid)) {
                        task.stop.send_replace(Some(Stop::Gone));
                    }
                }
            },
        }
        tasks.retain(|_, task| !task.task.is_finished());
    }
}

fn apply(shared: &Arc<Shared>, tasks: &mut HashMap<String, Task>, pod: Pod) {
    let (Some(uid), Some(namespace), Some(name)) =
        (pod.metadata.uid.clone(), pod.metadata.namespace.clone(), pod.metadata.name.clone())
    else {
        return;
    };
    let stop = pod.metadata.deletion_timestamp.is_some().then(|| {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
        Stop::Graceful(Duration::from_secs(u64::try_from(grace).unwrap_or(0)))
    });
    if let Some(task) = tasks.get(&uid) {
        if stop.is_some() && task.stop.borrow().is_none() {
            task.stop.send_replace(stop);
        }
        return;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let terminal = matches!(phase, Some("Succeeded" | "Failed"));
    let key = (namespace, name);
    let shared = shared.clone();
    let (sender, receiver) = watch::channel(None);
    let task = if stop.is_some() {
        // Nothing of it runs here.
        let uid = uid.clone();
        tokio::spawn(async move { shared.delete(&key, &uid).await })
    } else if terminal {
        return;
    } else {
        tokio::spawn(life::live(shared, key, pod, receiver))
    };
    tasks.insert(uid, Task { stop: sender, task });
}
