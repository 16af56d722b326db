//! Leader election on a Lease.

use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, OptionFuture};
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kapi::{Object, ObjectKey};
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::path::path;
use crate::standing::{Action, Rules};
use crate::{Change, Class, Error, Kube, Lease, LeaseSpec, Patched, Scope, Standing};

/// Which Lease, who we are, and the times of the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionSettings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Our name as holder; unique among the candidates.
    pub identity: String,
    /// How long a claim holds after its last renewal.
    pub lease_duration: Duration,
    /// How long a leader that cannot renew still leads; shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// Time between renewals.
    pub retry_period: Duration,
}

impl ElectionSettings {
    /// The cluster manager's Lease with the reference's default times (137, 107 and 26 s).
    pub fn new(namespace: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: "ovn-kubernetes-master".to_string(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(137),
            renew_deadline: Duration::from_secs(107),
            retry_period: Duration::from_secs(26),
        }
    }

    fn key(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone(), name: self.name.clone(), uid: String::new() }
    }
}

/// A candidacy. Dropping it ends it without a word: the others wait until the claim runs out.
pub struct Election {
    standing: watch::Receiver<Standing>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Election {
    /// Stands for election. Must be called within a tokio runtime.
    pub fn start(kube: Kube, settings: ElectionSettings) -> Self {
        let (sender, standing) = watch::channel(Standing::Standby { holder: None });
        let (stop, stopped) = oneshot::channel();
        let candidate =
            Candidate { rules: Rules::new(settings.clone()), kube, settings, start: Instant::now(), sender };
        Self { standing, stop: Some(stop), task: tokio::spawn(candidate.run(stopped)) }
    }

    /// Where we stand, and word of every change.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Whether we lead at the moment.
    pub fn leads(&self) -> bool {
        *self.standing.borrow() == Standing::Leader
    }

    /// Withdraws; a leader gives the Lease up, so that another can take it at once.
    pub async fn withdraw(mut self) {
        if let Some(stop) = self.stop.take() {
            // an error means that the task has ended already
            let _ = stop.send(());
        }
        let _ = (&mut self.task).await;
    }
}

impl Drop for Election {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How long a withdrawal waits for a renewal under way.
const LAST_WRITE: Duration = Duration::from_secs(5);

type Written = (Duration, Result<Lease, Error>);

struct Candidate {
    kube: Kube,
    settings: ElectionSettings,
    rules: Rules,
    start: Instant,
    sender: watch::Sender<Standing>,
}

impl Candidate {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let scope = Scope::namespace(&self.settings.namespace)
            .fields(format!("metadata.name={}", self.settings.name));
        let mut lease = self.kube.watch::<Lease>(scope);
        let mut write: OptionFuture<BoxFuture<'static, Written>> = None.into();
        let mut writing = false;
        loop {
            let mut wake = None;
            if writing {
                // a leader whose write hangs must still step down in time
                if let Action::Wait(until) = self.rules.next_while_writing(self.now()) {
                    wake = until;
                }
            } else {
                match self.rules.next(self.now()) {
                    Action::Wait(until) => wake = until,
                    action => {
                        self.publish();
                        write = Some(self.write(&action)).into();
                        writing = true;
                        continue;
                    }
                }
            }
            self.publish();
            let wake = wake.map(|at| tokio::time::sleep_until(self.start + at));
            tokio::select! {
                Some(change) = lease.next() => self.heard(change),
                Some((sent, result)) = &mut write, if writing => {
                    writing = false;
                    self.finished(sent, result);
                }
                () = wait(wake) => {}
                _ = &mut stopped => break,
            }
        }
        if writing {
            // a renewal that lands after the resignation would undo it
            let done = tokio::time::timeout(LAST_WRITE, &mut write).await;
            if let Ok(Some((sent, result))) = done {
                self.finished(sent, result);
            }
        }
        self.resign().await;
        self.publish();
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn publish(&self) {
        let standing = self.rules.standing();
        self.sender.send_if_modified(|old| {
            let changed = old != standing;
            if changed {
                *old = standing.clone();
            }
            changed
        });
    }

    fn heard(&mut self, change: Change<Lease>) {
        let now = self.now();
        match change {
            Change::Snapshot(mut leases) => self.rules.observe(leases.pop(), now),
            Change::Applied(lease) => self.rules.observe(Some(lease), now),
            Change::Deleted(_) => self.rules.observe(None, now),
            Change::Bad { error, .. } => {
                tracing::warn!(lease = self.settings.name, error, "unreadable Lease")
            }
            Change::Down { error } => tracing::warn!(error, "the watch on the election's Lease is broken"),
            Change::Unserved | Change::Up => {}
        }
    }

    fn finished(&mut self, sent: Duration, result: Result<Lease, Error>) {
        let now = self.now();
        match result {
            Ok(lease) => self.rules.written(lease, sent, now),
            Err(error) => {
                if error.class() != Class::Conflict {
                    tracing::warn!(%error, lease = self.settings.name, "Lease not written");
                }
                self.rules.failed(error.class(), now);
            }
        }
    }

    fn write(&self, action: &Action) -> BoxFuture<'static, Written> {
        let (version, take) = match action {
            Action::Write { version, take } => (Some(version.clone()), *take),
            _ => (None, true),
        };
        let spec = self.rules.claim(take, &wall_time());
        let (kube, settings, sent) = (self.kube.clone(), self.settings.clone(), self.now());
        Box::pin(async move {
            let result = match version {
                Some(version) => replace_claim(&kube, &settings, &version, &spec).await,
                None => create(&kube, &settings, &spec).await,
            };
            (sent, result)
        })
    }

    async fn resign(&mut self) {
        let Some(version) = self.rules.resign() else { return };
        let spec = LeaseSpec {
            // absent rather than empty, which servers with stricter validation refuse
            holder_identity: None,
            lease_duration_seconds: Some(1),
            renew_time: Some(wall_time()),
            ..self.rules.claim(false, &wall_time())
        };
        if let Err(error) = replace_claim(&self.kube, &self.settings, &version, &spec).await {
            tracing::warn!(%error, "could not give the Lease up, the next leader waits until it runs out");
        }
    }
}

async fn wait(sleep: Option<tokio::time::Sleep>) {
    match sleep {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}

fn wall_time() -> String {
    match serde_json::to_value(MicroTime(Timestamp::now())) {
        Ok(Value::String(text)) => text,
        _ => String::new(),
    }
}

async fn replace_claim(
    kube: &Kube,
    settings: &ElectionSettings,
    version: &str,
    spec: &LeaseSpec,
) -> Result<Lease, Error> {
    // a merge patch keeps labels and fields we do not know; the version makes it conditional
    let body = json!({ "metadata": { "resourceVersion": version }, "spec": spec });
    let key = settings.key();
    let done = kube.patch::<Lease>(&key, crate::Subresource::Main, crate::Patch::Merge(body)).await?;
    Ok(as_written(settings, done, spec))
}

async fn create(kube: &Kube, settings: &ElectionSettings, spec: &LeaseSpec) -> Result<Lease, Error> {
    let what = format!("create leases {}/{}", settings.namespace, settings.name);
    let object = json!({
        "apiVersion": Lease::RESOURCE.api_version(),
        "kind": Lease::RESOURCE.kind,
        "metadata": { "name": settings.name, "namespace": settings.namespace },
        "spec": spec,
    });
    let path = path(&Lease::RESOURCE, Some(&settings.namespace), None, None);
    let body = object.to_string().into_bytes();
    let reply = kube.call(&what, Method::POST, path, Some(("application/json", body))).await?;
    crate::client::patched(&what, &reply).map(|done| as_written(settings, done, spec))
}

fn as_written(settings: &ElectionSettings, done: Patched, spec: &LeaseSpec) -> Lease {
    let mut lease = Lease { spec: spec.clone(), ..Lease::default() };
    lease.metadata.name.clone_from(&settings.name);
    lease.metadata.namespace.clone_from(&settings.namespace);
    lease.metadata.uid = done.uid;
    lease.metadata.resource_version = done.resource_version;
    lease
}
