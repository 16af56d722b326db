//! What others in the process hear of the controller at once, before the API server echoes it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kapi::annotations::PodNetwork;
use kapi::{Pod, PodKey, ServiceKey};
use service::Services;

use crate::core::Progress;

/// What an event of the API was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A complete list.
    List,
    /// A new object.
    Add,
    /// A changed object.
    Update,
    /// A deleted object.
    Delete,
}

/// Listens to the controller. Calls come from its loop and must not wait.
pub trait Observer: Send + Sync {
    /// The feed of this node's pods, as it comes from the API server.
    fn pods(&self, change: &kube_io::Change<Pod>);

    /// These services changed, appeared or went; the first time all there are, which are in the table.
    fn services(&self, table: &Services, changed: &[ServiceKey]);

    /// Changes of a service are in the Northbound database: `took` since they were heard of; `triggers` are the
    /// times of what made its EndpointSlices change.
    fn programmed(&self, key: &ServiceKey, took: Duration, triggers: &[SystemTime]);

    /// The database refuses what a service asks for; it is tried again.
    fn service_refused(&self, key: &ServiceKey);

    /// The pod's addresses are decided.
    fn decided(&self, key: &PodKey, uid: &str, network: &Arc<PodNetwork>);

    /// The pod's port is in the Northbound database.
    fn committed(&self, key: &PodKey);

    /// The annotation of the pod of this UID has been written.
    fn annotated(&self, key: &PodKey, uid: &str);

    /// The pod of this UID has to wait, and why.
    fn waiting(&self, key: &PodKey, uid: &str, reason: &str);

    /// An event of the API was handled.
    fn handled(&self, kind: &'static str, event: Event, took: Duration);

    /// The controller got further, or fell back.
    fn progress(&self, progress: Progress);
}
