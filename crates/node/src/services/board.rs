//! What changed about services since the agent last looked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kapi::ServiceKey;
use tokio::sync::Notify;

use super::host_service::HostService;

/// Changes on their way from whoever watches services to the agent. Cheap to clone; all clones are one board.
#[derive(Debug, Clone, Default)]
pub struct ServiceBoard {
    inner: Arc<Mutex<Inner>>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    pending: Pending,
    complete: bool,
}

/// Services with what became of them; none stands for one that is gone.
pub(crate) type Pending = BTreeMap<ServiceKey, Option<Arc<HostService>>>;

impl ServiceBoard {
    /// An empty board.
    pub fn new() -> ServiceBoard {
        ServiceBoard::default()
    }

    /// A service is now so, or gone.
    pub fn set(&self, key: ServiceKey, service: Option<HostService>) {
        self.lock().pending.insert(key, service.map(Arc::new));
        self.changed.notify_one();
    }

    /// All services that exist have been told: from now on a service that is not known does not exist.
    pub fn set_complete(&self) {
        if !std::mem::replace(&mut self.lock().complete, true) {
            self.changed.notify_one();
        }
    }

    /// Takes what changed; none until all services have been told.
    pub(crate) fn take(&self) -> Option<Pending> {
        let mut inner = self.lock();
        inner.complete.then(|| std::mem::take(&mut inner.pending))
    }

    /// Waits for a change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
