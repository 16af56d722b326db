//! Pods of this node, and services, between controller, node agent and metrics.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use controller::{Event, Progress};
use kapi::annotations::PodNetwork;
use kapi::{Pod, PodKey, ServiceKey};
use node::board::{PodBoard, PodView};
use node::cni::Stage;
use node::kube_feed::apply_pod;
use node::services::{HostService, ServiceBoard};
use service::{Place, Services};
use telemetry::Metrics;
use telemetry::metrics::{PodStage, ResourceEvent};

/// Puts what the controller decides on the board the CNI server reads, and measures every stage on the way.
pub(crate) struct Pods {
    node: String,
    board: PodBoard,
    /// Where the node agent in this process hears of services.
    services: Option<ServiceBoard>,
    metrics: Metrics,
    progress: Mutex<Option<Progress>>,
    bad: Mutex<BTreeSet<PodKey>>,
    started: Instant,
}

impl Pods {
    pub(crate) fn new(node: &str, board: PodBoard, services: Option<ServiceBoard>, metrics: Metrics) -> Pods {
        Pods {
            node: node.to_owned(),
            board,
            services,
            metrics,
            progress: Mutex::default(),
            bad: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// Why the controller is not ready; none if it is.
    pub(crate) fn not_ready(&self) -> Option<String> {
        let progress = *self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(progress) = progress else { return Some("the network controller is starting".to_owned()) };
        let missing = [
            (progress.lists, "the first lists of nodes, pods, namespaces, services and endpoint slices"),
            (progress.northbound, "the Northbound database: is ovsdb-server running?"),
            (progress.southbound, "the Southbound database: is ovsdb-server running?"),
            (progress.node, "annotations of this node's Node object: is the cluster manager running?"),
        ];
        missing.into_iter().find(|(met, _)| !met).map(|(_, what)| format!("waiting for {what}"))
    }

    fn stage(&self, key: &PodKey, stage: PodStage, since: impl Fn(&PodView) -> Option<Instant>) {
        // Pods of the first list have no time of first sight: they would be counted again after each restart.
        let view = self.board.get(key);
        if let Some(since) = view.as_deref().filter(|view| view.stages.seen.is_some()).and_then(since) {
            self.metrics.pod_stages.observe(stage, since.elapsed());
        }
    }
}

impl controller::Observer for Pods {
    fn pods(&self, change: &kube_io::Change<Pod>) {
        let mut bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        apply_pod(&self.board, &self.node, &mut bad, change.clone());
    }

    fn services(&self, table: &Services, changed: &[ServiceKey]) {
        let Some(board) = &self.services else { return };
        // Which endpoints are near matters to load balancers only.
        let place = Place { node: &self.node, zone: None };
        for key in changed {
            board.set(key.clone(), HostService::of(table, key, place));
        }
        board.set_complete();
    }

    fn programmed(&self, _: &ServiceKey, took: Duration, triggers: &[SystemTime]) {
        self.metrics.services.programmed(took, triggers, SystemTime::now());
    }

    fn service_refused(&self, _: &ServiceKey) {
        self.metrics.services.requeued.inc();
    }

    fn decided(&self, key: &PodKey, uid: &str, network: &Arc<PodNetwork>) {
        self.stage(key, PodStage::Allocated, |view| view.stages.seen);
        self.board.amend(key, uid, |view| {
            view.annotation = Some(network.clone());
            view.waiting_reason = None;
            view.stages.allocated = Some(Instant::now());
        });
    }

    fn committed(&self, key: &PodKey) {
        let Some(view) = self.board.get(key).filter(|view| view.stages.committed.is_none()) else { return };
        if view.stages.allocated.is_none() {
            return;
        }
        self.stage(key, PodStage::Committed, |view| view.stages.allocated);
        if let Some(seen) = view.stages.seen {
            self.metrics.controller.pod_steps.first_seen_to_port.observe(seen.elapsed());
            if let Some(scheduled) = view.stages.scheduled {
                self.metrics.controller.pod_created(scheduled, SystemTime::now());
                let seen_at = SystemTime::now() - seen.elapsed();
                let delay = seen_at.duration_since(scheduled).unwrap_or_default();
                self.metrics.pod_stages.observe(PodStage::EventSeen, delay);
            }
        }
        self.board.amend(key, &view.uid, |view| view.stages.committed = Some(Instant::now()));
    }

    fn annotated(&self, key: &PodKey, uid: &str) {
        self.stage(key, PodStage::Annotated, |view| view.stages.allocated);
        self.board.amend(key, uid, |view| view.stages.annotated = Some(Instant::now()));
    }

    fn waiting(&self, key: &PodKey, uid: &str, reason: &str) {
        self.board.amend(key, uid, |view| view.waiting_reason = Some(reason.to_owned()));
    }

    fn handled(&self, kind: &'static str, event: Event, took: Duration) {
        let metrics = &self.metrics.controller;
        match event {
            Event::List => metrics.synced(kind, took),
            Event::Add => metrics.resource_handled(kind, ResourceEvent::Add, took),
            Event::Update => metrics.resource_handled(kind, ResourceEvent::Update, took),
            Event::Delete => metrics.resource_handled(kind, ResourceEvent::Delete, took),
        }
    }

    fn progress(&self, progress: Progress) {
        let mut last = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = |progress: &Progress| {
            progress.lists && progress.northbound && progress.southbound && progress.node && progress.idle
        };
        let was_ready = self.metrics.controller.ready_duration.get() > 0.0;
        if !was_ready && ready(&progress) {
            self.metrics.controller.ready_duration.set(self.started.elapsed().as_secs_f64());
            tracing::info!(after = ?self.started.elapsed(), "network controller is ready");
            host::memory::give_back();
        }
        *last = Some(progress);
    }
}

impl node::cni::Observer for Pods {
    fn stage(&self, stage: Stage, elapsed: Duration) {
        let stage = match stage {
            Stage::Annotation => PodStage::CniWait,
            Stage::Plugged => PodStage::Plumbed,
            Stage::Installed => PodStage::Installed,
            Stage::Queued | Stage::Configured => return,
        };
        self.metrics.pod_stages.observe(stage, elapsed);
    }

    fn request(&self, command: &str, elapsed: Duration, failed: bool) {
        self.metrics.node.cni_request(command, failed, elapsed);
    }

    fn served(&self, _: cni::Command, _: Duration, _: bool) {}
}
