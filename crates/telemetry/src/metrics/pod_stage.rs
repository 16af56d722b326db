//! Every stage of a pod's way from the API to a working interface.

use super::{
    Histogram,
    registry::{Declare, exponential},
};
use std::time::Duration;

/// A stage; its duration counts from the end of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodStage {
    /// The watch delivered the scheduled pod; counts from the pod's scheduling where known.
    EventSeen,
    /// Addresses were chosen.
    Allocated,
    /// The transaction with the logical port is committed.
    Committed,
    /// The annotation is written.
    Annotated,
    /// The CNI server had waited for the annotation, from the arrival of the request.
    CniWait,
    /// The interface exists, in the pod and on the bridge.
    Plumbed,
    /// OVN reported the port as installed.
    Installed,
}

impl PodStage {
    /// All stages in order.
    pub const ALL: [Self; 7] = [
        Self::EventSeen,
        Self::Allocated,
        Self::Committed,
        Self::Annotated,
        Self::CniWait,
        Self::Plumbed,
        Self::Installed,
    ];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EventSeen => "event_seen",
            Self::Allocated => "allocated",
            Self::Committed => "committed",
            Self::Annotated => "annotated",
            Self::CniWait => "cni_wait",
            Self::Plumbed => "plumbed",
            Self::Installed => "installed",
        }
    }
}

/// `ovnkube_pod_stage_duration_seconds{stage}`
///
/// As with all measures of pods: observe only pods whose addition this process saw as an event, not those of the first list.
#[derive(Clone)]
pub struct PodStages([Histogram; 7]);

impl PodStages {
    pub(super) fn declare(d: &mut Declare<'_>) -> Self {
        // 1 ms to 131 s: from one database transaction to more than the limit of a CNI request.
        let family = d.histograms(
            "ovnkube_pod_stage_duration_seconds",
            "Time of one stage of a pod's way to a working interface, from the end of the stage before.",
            &["stage"],
            exponential(0.001, 2.0, 18),
        );
        Self(PodStage::ALL.map(|stage| Histogram(family.with_label_values(&[stage.as_str()]))))
    }

    /// One pod passed this stage.
    pub fn observe(&self, stage: PodStage, took: Duration) {
        self.0[stage as usize].observe(took);
    }

    /// How many pods passed this stage.
    pub fn count(&self, stage: PodStage) -> u64 {
        self.0[stage as usize].count()
    }
}
