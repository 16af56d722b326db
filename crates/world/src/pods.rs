//! Pods of this zone's node.

use std::sync::Arc;

use kapi::annotations::PodNetwork;

/// What the compiler needs to know of a pod: pods that want no network are not in the table at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodState {
    /// UID of the pod object; the port is bound to this very pod.
    pub uid: String,
    /// The addresses decided for the pod.
    pub network: Arc<PodNetwork>,
}
