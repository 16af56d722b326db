//! Durations, for whoever keeps metrics.

use std::{sync::Arc, time::Duration};

use ::cni::Command;

use crate::board::PodView;

/// A stage of an ADD, each measured from the end of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Waited for an earlier request of the same pod.
    Queued,
    /// Waited for the pod and its annotation.
    Annotation,
    /// Created the interface and committed the port.
    Plugged,
    /// Addressed the interface in the pod.
    Configured,
    /// Waited for OVN to install the port's flows.
    Installed,
}

impl Stage {
    /// Label value in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Queued => "queued",
            Stage::Annotation => "annotation",
            Stage::Plugged => "plugged",
            Stage::Configured => "configured",
            Stage::Installed => "installed",
        }
    }
}

/// Receives durations. Called from request tasks: must not block.
pub trait Observer: Send + Sync {
    /// A stage of an ADD is over.
    fn stage(&self, stage: Stage, elapsed: Duration);
    /// A request is over, as the shim measured it (`ovnkube_node_cni_request_duration_seconds`).
    fn request(&self, command: &str, elapsed: Duration, failed: bool);
    /// A request is over, as the server measured it.
    fn served(&self, command: Command, elapsed: Duration, failed: bool);
    /// A pod has its interface; its view tells when it passed the controller's stages.
    fn attached(&self, _pod: &Arc<PodView>) {}
}

/// Forgets everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn stage(&self, _: Stage, _: Duration) {}
    fn request(&self, _: &str, _: Duration, _: bool) {}
    fn served(&self, _: Command, _: Duration, _: bool) {}
}
