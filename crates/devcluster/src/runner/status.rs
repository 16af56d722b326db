//! A pod's status as kubelet writes it.

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use serde_json::{Value, json};

use super::containers::{Running, State};

/// What the status is made of.
pub(super) struct Status<'a> {
    pub(super) pod: &'a Pod,
    pub(super) phase: &'a str,
    pub(super) started: Timestamp,
    pub(super) host_addresses: Vec<String>,
    pub(super) addresses: &'a [String],
    pub(super) inits: &'a [Running],
    pub(super) containers: &'a [Running],
}

// === impl Status ===

impl Status<'_> {
    /// The merge patch of the status subresource; it fails on another pod of the same name.
    pub(super) fn patch(&self) -> Value {
        let ended = matches!(self.phase, "Succeeded" | "Failed");
        let ready = self.phase == "Running" && self.containers.iter().all(|one| one.process().is_some());
        let initialized = self.inits.iter().all(succeeded);
        let now = Timestamp::now();
        let condition = |kind: &str, holds: bool| {
            let reason = if ended && kind.ends_with("Ready") { Some("PodCompleted") } else { None };
            let same =
                self.pod.status.iter().flat_map(|status| status.conditions.iter().flatten()).find(|old| {
                    old.type_ == kind && (old.status == "True") == holds && old.last_transition_time.is_some()
                });
            json!({
                "type": kind,
                "status": if holds { "True" } else { "False" },
                "reason": reason,
                "lastTransitionTime": same
                    .and_then(|old| old.last_transition_time.as_ref().map(|time| seconds(time.0)))
                    .unwrap_or_else(|| seconds(now)),
            })
        };
        let mut conditions = vec![
            condition("PodReadyToStartContainers", !self.addresses.is_empty() && !ended),
            condition("Initialized", initialized),
            condition("Ready", ready),
            condition("ContainersReady", ready),
            condition("PodScheduled", true),
        ];
        for other in self.pod.status.iter().flat_map(|status| status.conditions.iter().flatten()) {
            if !conditions.iter().any(|one| one["type"] == json!(other.type_)) {
                conditions.push(json!(other));
            }
        }
        let ips = |list: &[String]| list.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>();
        let mut status = json!({
            "phase": self.phase,
            "conditions": conditions,
            "startTime": seconds(self.started),
            "hostIP": self.host_addresses.first(),
            "hostIPs": ips(&self.host_addresses),
            "containerStatuses": self.containers.iter().map(container).collect::<Vec<_>>(),
            "qosClass": "BestEffort",
        });
        if !self.inits.is_empty() {
            status["initContainerStatuses"] = self.inits.iter().map(container).collect();
        }
        if let Some(first) = self.addresses.first() {
            status["podIP"] = json!(first);
            status["podIPs"] = json!(ips(self.addresses));
        }
        json!({ "metadata": { "uid": self.pod.metadata.uid }, "status": status })
    }
}

fn succeeded(container: &Running) -> bool {
    matches!(&container.state, State::Ended { exit, .. } if exit.success())
}

fn container(running: &Running) -> Value {
    let is_running = running.process().is_some();
    json!({
        "name": running.container.name,
        "image": running.container.image.as_deref().unwrap_or_default(),
        "imageID": "",
        "ready": is_running || succeeded(running),
        "started": is_running,
        "restartCount": running.restarts,
        "state": state(&running.state),
        "lastState": running.last.as_ref().map_or_else(|| json!({}), state),
    })
}

fn state(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } => json!({ "waiting": { "reason": reason, "message": message } }),
        State::Running { since, .. } => json!({ "running": { "startedAt": seconds(*since) } }),
        State::Ended { since, until, exit } => json!({ "terminated": {
            "exitCode": exit.code.unwrap_or_else(|| 128 + exit.signal.unwrap_or(0)),
            "signal": exit.signal,
            "reason": if exit.success() { "Completed" } else { "Error" },
            "startedAt": seconds(*since),
            "finishedAt": seconds(*until),
        } }),
    }
}

/// Kubernetes' times have whole seconds.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
