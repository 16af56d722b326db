//! Kubernetes Events: deduplicated, rate limited per object, written behind a bounded queue.

mod dedup;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kapi::Resource;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client::WeakKube;
use crate::path::path;
use crate::{Backoff, Class, Error, Kube, ObjectRef, Settings};
use dedup::{Decision, Dedup};

/// Reports waiting to be written; more are dropped.
const QUEUE: usize = 1024;
/// Attempts for one Event before it is given up: the queue must move on.
const ATTEMPTS: usize = 4;

const EVENTS: Resource =
    Resource { group: "", version: "v1", plural: "events", kind: "Event", namespaced: true };

/// The two kinds of Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// For information.
    Normal,
    /// Something an operator may have to act on.
    Warning,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What became of the Events so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCounters {
    /// Created or counted up on the server.
    pub written: u64,
    /// Left out: the queue was full, or the object had too many.
    pub dropped: u64,
    /// Given up after repeated errors.
    pub failed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) object: ObjectRef,
    pub(crate) severity: Severity,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

#[derive(Default)]
struct Counts {
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

pub(crate) struct EventQueue {
    sender: mpsc::Sender<Report>,
    counts: Arc<Counts>,
}

impl EventQueue {
    pub(crate) fn new() -> (Self, Pending) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let counts = Arc::new(Counts::default());
        (Self { sender, counts: Arc::clone(&counts) }, Pending { receiver, counts })
    }

    pub(crate) fn push(&self, report: Report) {
        if self.sender.try_send(report).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn counters(&self) -> EventCounters {
        EventCounters {
            written: self.counts.written.load(Ordering::Relaxed),
            dropped: self.counts.dropped.load(Ordering::Relaxed),
            failed: self.counts.failed.load(Ordering::Relaxed),
        }
    }
}

/// The receiving end, until the writer is spawned.
pub(crate) struct Pending {
    receiver: mpsc::Receiver<Report>,
    counts: Arc<Counts>,
}

/// Starts the writer. It ends when the last handle on the API is gone.
pub(crate) fn spawn(kube: WeakKube, queue: Pending, settings: &Settings) {
    let writer = Writer { component: settings.component.clone(), host: settings.host.clone(), serial: 0 };
    tokio::spawn(write_all(kube, queue, writer));
}

async fn write_all(kube: WeakKube, mut queue: Pending, mut writer: Writer) {
    let start = Instant::now();
    let mut dedup = Dedup::default();
    while let Some(report) = queue.receiver.recv().await {
        let counter = match dedup.decide(&report, start.elapsed()) {
            Decision::Drop => &queue.counts.dropped,
            decision => {
                let Some(kube) = kube.upgrade() else { return };
                match writer.write(&kube, &mut dedup, &report, decision, start).await {
                    Ok(()) => &queue.counts.written,
                    Err(error) => {
                        tracing::warn!(%error, object = report.object.name, reason = report.reason, "event not written");
                        &queue.counts.failed
                    }
                }
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

struct Writer {
    component: String,
    host: String,
    serial: u64,
}

impl Writer {
    async fn write(
        &mut self,
        kube: &Kube,
        dedup: &mut Dedup,
        report: &Report,
        mut decision: Decision,
        start: Instant,
    ) -> Result<(), Error> {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        let mut attempt = 1;
        loop {
            let result = match &decision {
                Decision::Repeat { name, count } => self.count_up(kube, report, name, *count).await,
                _ => self.create(kube, report).await.map(|name| dedup.created(report, name, start.elapsed())),
            };
            match result {
                // the first one has expired on the server
                Err(error)
                    if error.class() == Class::NotFound && matches!(decision, Decision::Repeat { .. }) =>
                {
                    decision = Decision::Create;
                }
                Err(error) if error.class() == Class::Transient && attempt < ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(backoff.next_delay()).await;
                }
                other => return other,
            }
        }
    }

    async fn create(&mut self, kube: &Kube, report: &Report) -> Result<String, Error> {
        let now = Timestamp::now();
        self.serial += 1;
        let stamp = now.as_nanosecond().wrapping_add(i128::from(self.serial));
        let name = format!("{}.{stamp:x}", report.object.name);
        let namespace = namespace(&report.object);
        let event = self.body(report, &name, namespace, now);
        kube.create(&EVENTS, Some(namespace), &event).await.map(|_| name)
    }

    async fn count_up(&self, kube: &Kube, report: &Report, name: &str, count: u32) -> Result<(), Error> {
        let what = format!("patch events {}/{name}", namespace(&report.object));
        let body =
            json!({ "count": count, "lastTimestamp": seconds(Timestamp::now()) }).to_string().into_bytes();
        let path = path(&EVENTS, Some(namespace(&report.object)), Some(name), None);
        kube.call(&what, http::Method::PATCH, path, Some(("application/merge-patch+json", body)))
            .await
            .map(drop)
    }

    fn body(&self, report: &Report, name: &str, namespace: &str, now: Timestamp) -> Value {
        let object = &report.object;
        let message: String = report.message.chars().take(1024).collect();
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace },
            "involvedObject": {
                "apiVersion": object.api_version,
                "kind": object.kind,
                "namespace": object.namespace,
                "name": object.name,
                "uid": object.uid,
            },
            "type": report.severity.name(),
            "reason": report.reason,
            "message": message,
            "source": { "component": self.component, "host": self.host },
            "reportingComponent": self.component,
            "reportingInstance": self.host,
            "firstTimestamp": seconds(now),
            "lastTimestamp": seconds(now),
            "count": 1,
        })
    }
}

/// Events on cluster-scoped objects live in `default`.
fn namespace(object: &ObjectRef) -> &str {
    if object.namespace.is_empty() { "default" } else { &object.namespace }
}

/// The time now as objects carry it (`metav1.Time`).
pub fn now() -> String {
    seconds(Timestamp::now())
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
