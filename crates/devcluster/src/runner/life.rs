//! The life of one pod: network, containers, end.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use futures::{StreamExt, stream::FuturesUnordered};
use k8s_openapi::{
    api::core::v1::{Event, Pod},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::watch;

use super::{
    PodKey, PodRecord, Shared, Stage, Stop,
    containers::{Place, Running, State, restart_delay, runs_again},
    status::Status,
};
use crate::{
    sandbox::{PodArgs, Sandbox, network_ready},
    wire::Exit,
};

struct Life {
    shared: Arc<Shared>,
    key: PodKey,
    uid: String,
    pod: Pod,
    stop: watch::Receiver<Option<Stop>>,
    started: Timestamp,
    sandbox: Option<Sandbox>,
    addresses: Vec<String>,
    inits: Vec<Running>,
    containers: Vec<Running>,
}

/// Why a part of the life ended early.
enum Interrupted {
    Stopped,
    Failed(anyhow::Error),
}

// === impl Interrupted ===

impl From<anyhow::Error> for Interrupted {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Runs the pod until its object is gone.
pub(super) async fn live(shared: Arc<Shared>, key: PodKey, pod: Pod, stop: watch::Receiver<Option<Stop>>) {
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let record = PodRecord {
        uid: uid.clone(),
        stage: Stage::Pending,
        attempts: 0,
        add_took: None,
        addresses: Vec::new(),
        mac: None,
        last_error: None,
        sandbox: None,
    };
    shared.records.send_modify(|records| {
        records.insert(key.clone(), record);
    });
    let spec = pod.spec.clone().unwrap_or_default();
    let mut life = Life {
        shared: shared.clone(),
        key: key.clone(),
        uid: uid.clone(),
        pod,
        stop,
        started: Timestamp::now(),
        sandbox: None,
        addresses: Vec::new(),
        inits: spec.init_containers.iter().flatten().map(Running::new).collect(),
        containers: spec.containers.iter().map(Running::new).collect(),
    };
    match life.run().await {
        Ok(phase) => life.finish(phase).await,
        Err(Interrupted::Stopped) => {}
        Err(Interrupted::Failed(error)) => {
            // Retries are inside; this is the node itself failing.
            life.note(format!("{error:#}"));
        }
    }
    life.stopped().await;
    life.tear_down().await;
    if *life.stop.borrow() != Some(Stop::Gone) {
        shared.delete(&key, &uid).await;
    }
    shared.records.send_modify(|records| {
        if records.get(&key).is_some_and(|record| record.uid == uid) {
            records.remove(&key);
        }
    });
}

// === impl Life ===

impl Life {
    /// From nothing to the end of the last container; the final phase.
    async fn run(&mut self) -> Result<&'static str, Interrupted> {
        self.report("Pending").await;
        let spec = self.pod.spec.clone().unwrap_or_default();
        if spec.host_network == Some(true) {
            self.addresses = self.shared.node.addresses().iter().map(ToString::to_string).collect();
        } else {
            self.attach().await?;
        }
        let policy = spec.restart_policy.clone();
        if !self.run_inits(policy.as_deref()).await? {
            return Ok("Failed");
        }
        for at in 0..self.containers.len() {
            self.start(at).await;
        }
        self.shared.update(&self.key, |record| {
            record.stage = Stage::Running;
            record.addresses.clone_from(&self.addresses);
            record.last_error = None;
        });
        self.report("Running").await;
        self.supervise(policy.as_deref()).await
    }

    /// A sandbox on the network, however often it takes: a failed one is taken down and a new one made.
    async fn attach(&mut self) -> Result<(), Interrupted> {
        let node = self.shared.node.clone();
        let mut stop = self.stop.clone();
        tokio::select! {
            ready = network_ready(&node) => ready?,
            () = asked(&mut stop) => return Err(Interrupted::Stopped),
        }
        let mut wait = Duration::from_secs(1);
        loop {
            match self.attach_once().await {
                Ok(()) => return Ok(()),
                Err(Interrupted::Stopped) => return Err(Interrupted::Stopped),
                Err(Interrupted::Failed(error)) => {
                    let error = format!("{error:#}");
                    tracing::warn!("pod {}/{}: {error}", self.key.0, self.key.1);
                    self.note(error.clone());
                    self.event("FailedCreatePodSandBox", &error).await;
                }
            }
            self.tear_down().await;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = asked(&mut stop) => return Err(Interrupted::Stopped),
            }
            wait = (wait * 2).min(Duration::from_secs(10));
        }
    }

    async fn attach_once(&mut self) -> Result<(), Interrupted> {
        let sandbox = Sandbox::create(&self.shared.node).await?;
        self.sandbox = Some(sandbox.clone());
        self.shared.update(&self.key, |record| record.attempts += 1);
        let call = sandbox.start_cni("ADD", &self.args(), json!({})).await?;
        let reply = tokio::select! {
            reply = call.wait() => reply?,
            () = asked(&mut self.stop) => {
                call.give_up().await?;
                return Err(Interrupted::Stopped);
            }
        };
        reply.success()?;
        self.addresses = reply
            .addresses()
            .iter()
            .map(|address| address.split('/').next().unwrap_or_default().to_owned())
            .collect();
        self.shared.update(&self.key, |record| {
            record.add_took = Some(reply.took);
            record.mac = reply.mac();
            record.sandbox = Some(sandbox);
        });
        Ok(())
    }

    /// Init containers, one after the other; false when one failed for good.
    async fn run_inits(&mut self, policy: Option<&str>) -> Result<bool, Interrupted> {
        for at in 0..self.inits.len() {
            loop {
                let container = self.inits[at].container.clone();
                let state = self.place().start(&container).await?;
                self.inits[at].state = state;
                self.report("Pending").await;
                let Some(process) = self.inits[at].process().cloned() else { continue };
                let exit = tokio::select! {
                    exit = process.wait() => exit?,
                    () = asked(&mut self.stop) => return Err(Interrupted::Stopped),
                };
                ended(&mut self.inits[at], exit.clone());
                if exit.success() {
                    break;
                }
                if policy == Some("Never") {
                    return Ok(false);
                }
                self.inits[at].restarts += 1;
                tokio::time::sleep(restart_delay(self.inits[at].restarts)).await;
            }
        }
        Ok(true)
    }

    async fn start(&mut self, at: usize) {
        let container = self.containers[at].container.clone();
        let state = self.place().start(&container).await;
        self.containers[at].state = match state {
            Ok(state) => state,
            // A program that is not there will not be there later, but kubelet tries again too.
            Err(error) => {
                let now = Timestamp::now();
                let exit = Exit { code: Some(127), stderr: format!("{error:#}"), ..Exit::default() };
                State::Ended { since: now, until: now, exit }
            }
        };
    }

    /// Waits for containers to end and starts them again; the final phase when none will.
    async fn supervise(&mut self, policy: Option<&str>) -> Result<&'static str, Interrupted> {
        let mut stop = self.stop.clone();
        let mut ends = FuturesUnordered::new();
        for at in 0..self.containers.len() {
            ends.push(end_of(at, self.containers[at].state.clone(), Duration::ZERO));
        }
        loop {
            let ended_one = tokio::select! {
                one = ends.next() => one,
                () = asked(&mut stop) => return Err(Interrupted::Stopped),
            };
            let Some((at, exit)) = ended_one else { break };
            match exit {
                // Its pause is over.
                None => {
                    self.start(at).await;
                    ends.push(end_of(at, self.containers[at].state.clone(), Duration::ZERO));
                }
                Some(exit) => {
                    ended(&mut self.containers[at], exit.clone());
                    if runs_again(policy, &exit) {
                        let container = &mut self.containers[at];
                        container.restarts += 1;
                        let message = (!exit.stderr.is_empty()).then(|| exit.stderr.clone());
                        let waiting = State::Waiting { reason: "CrashLoopBackOff", message };
                        container.last = Some(std::mem::replace(&mut container.state, waiting.clone()));
                        let delay = restart_delay(container.restarts);
                        ends.push(end_of(at, waiting, delay));
                    }
                }
            }
            if !ends.is_empty() {
                self.report("Running").await;
            }
        }
        let all_well = self.containers.iter().all(|one| match &one.state {
            State::Ended { exit, .. } => exit.success(),
            _ => false,
        });
        Ok(if all_well { "Succeeded" } else { "Failed" })
    }

    /// A finished pod keeps its object but not its network.
    async fn finish(&mut self, phase: &'static str) {
        self.report(phase).await;
        self.shared.update(&self.key, |record| record.stage = Stage::Finished);
        self.tear_down().await;
        let mut stop = self.stop.clone();
        asked(&mut stop).await;
    }

    /// Ends the containers: asks first, and kills when the grace is over.
    async fn stopped(&mut self) {
        let mut stop = self.stop.clone();
        asked(&mut stop).await;
        let grace = match *stop.borrow() {
            Some(Stop::Graceful(grace)) => grace,
            _ => Duration::ZERO,
        };
        let processes: Vec<_> =
            self.inits.iter().chain(&self.containers).filter_map(|one| one.process().cloned()).collect();
        let end = futures::future::join_all(processes.iter().map(|process| process.terminate()));
        let _ = tokio::time::timeout(grace, end).await;
        futures::future::join_all(processes.iter().map(|process| process.kill9())).await;
    }

    /// CNI DEL, as often as it takes, then the namespace.
    async fn tear_down(&mut self) {
        let Some(sandbox) = self.sandbox.take() else { return };
        let mut wait = Duration::from_millis(200);
        loop {
            let deleted = match sandbox.cni("DEL", &self.args()).await {
                Ok(reply) => reply.success().map(drop),
                Err(error) => Err(error),
            };
            match deleted {
                Ok(()) => break,
                Err(error) => {
                    // A node that was stopped takes its sandboxes with it.
                    if !self.shared.node.is_up() {
                        return;
                    }
                    self.note(format!("CNI DEL: {error:#}"));
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(5));
        }
        if let Err(error) = sandbox.remove().await {
            self.note(format!("{error:#}"));
        }
        self.shared.update(&self.key, |record| record.sandbox = None);
    }

    fn place(&self) -> Place<'_> {
        Place {
            node: &self.shared.node,
            sandbox: self.sandbox.as_ref(),
            pod: &self.pod,
            addresses: &self.addresses,
        }
    }

    fn args(&self) -> PodArgs {
        PodArgs { namespace: self.key.0.clone(), name: self.key.1.clone(), uid: Some(self.uid.clone()) }
    }

    fn note(&self, error: String) {
        self.shared.update(&self.key, |record| record.last_error = Some(error));
    }

    /// Writes the status; gives up when the pod is gone or on its way out, and tries again otherwise.
    async fn report(&self, phase: &str) {
        let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), &self.key.0);
        let patch = Status {
            pod: &self.pod,
            phase,
            started: self.started,
            host_addresses: self.shared.node.addresses().iter().map(ToString::to_string).collect(),
            addresses: &self.addresses,
            inits: &self.inits,
            containers: &self.containers,
        }
        .patch();
        let mut stop = self.stop.clone();
        let mut wait = Duration::from_millis(100);
        loop {
            match api.patch_status(&self.key.1, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => return,
                Err(error) => tracing::warn!("status of pod {}/{}: {error}", self.key.0, self.key.1),
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = asked(&mut stop) => return,
            }
            wait = (wait * 2).min(Duration::from_secs(5));
        }
    }

    /// A warning Event about the pod, for `kubectl describe`.
    async fn event(&self, reason: &str, message: &str) {
        let now = Timestamp::now();
        let event = json!({
            "metadata": { "generateName": format!("{}.", self.key.1), "namespace": self.key.0 },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": self.key.0, "name": self.key.1, "uid": self.uid,
            },
            "reason": reason,
            "message": message.chars().take(1000).collect::<String>(),
            "type": "Warning",
            "source": { "component": "kubelet", "host": self.shared.node.name() },
            "firstTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "lastTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "count": 1,
        });
        let Ok(event) = serde_json::from_value::<Event>(event) else { return };
        let api: Api<Event> = Api::namespaced(self.shared.client.clone(), &self.key.0);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::debug!("event about pod {}/{}: {error}", self.key.0, self.key.1);
        }
    }
}

/// Waits until the pod shall stop. When the runner went away nobody will ask any more, and the pod goes on.
async fn asked(stop: &mut watch::Receiver<Option<Stop>>) {
    if stop.wait_for(Option::is_some).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn ended(running: &mut Running, exit: Exit) {
    let since = match &running.state {
        State::Running { since, .. } | State::Ended { since, .. } => *since,
        State::Waiting { .. } => Timestamp::now(),
    };
    running.state = State::Ended { since, until: Timestamp::now(), exit };
}

/// Waits for a container's end, or out its pause (then without an exit).
async fn end_of(at: usize, state: State, pause: Duration) -> (usize, Option<Exit>) {
    match state {
        State::Running { process, .. } => (at, Some(process.wait().await.unwrap_or_default())),
        State::Ended { exit, .. } => (at, Some(exit)),
        State::Waiting { .. } => {
            tokio::time::sleep(pause).await;
            (at, None)
        }
    }
}
