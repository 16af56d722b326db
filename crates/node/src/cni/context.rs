//! The CNI server's parts.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use host::Handle;

use crate::board::PodBoard;

use super::{
    diagnose::Diagnose,
    links::LinkWatch,
    observe::{NoObserver, Observer},
    plug::Plug,
    ports::Ports,
    settings::CniSettings,
    turns::Turns,
};

/// Says why ADD cannot be served now; none if it can.
pub type Readiness = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Serves CNI requests. Share it in an `Arc`.
pub struct CniServer {
    pub(crate) settings: CniSettings,
    pub(crate) board: PodBoard,
    pub(crate) ports: Ports,
    pub(crate) host: Arc<Handle>,
    pub(crate) links: LinkWatch,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) diagnose: Option<Arc<dyn Diagnose>>,
    pub(crate) readiness: Option<Readiness>,
    pub(crate) turns: Turns,
    pub(crate) ledger: Ledger,
    pub(crate) nonce: Nonce,
}

/// Ports we plugged or found plugged, to put them back when Open vSwitch forgets them (`--delete-transient-ports`).
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    plugs: Mutex<BTreeMap<(String, String), Plug>>,
}

/// Texts that are never used twice, also not after a restart.
#[derive(Debug)]
pub(crate) struct Nonce {
    start: u128,
    count: AtomicU64,
}

// === impl CniServer ===

impl CniServer {
    /// A server for the calling process's network namespace. Needs a runtime.
    pub fn new(settings: CniSettings, board: PodBoard, ports: Ports) -> io::Result<CniServer> {
        Ok(CniServer {
            settings,
            board,
            ports,
            host: Arc::new(Handle::open().map_err(io::Error::other)?),
            links: LinkWatch::open()?,
            observer: Arc::new(NoObserver),
            diagnose: None,
            readiness: None,
            turns: Turns::default(),
            ledger: Ledger::default(),
            nonce: Nonce::new(),
        })
    }

    /// Reports durations.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> CniServer {
        self.observer = observer;
        self
    }

    /// Explains ports that are never installed.
    pub fn diagnose(mut self, diagnose: Arc<dyn Diagnose>) -> CniServer {
        self.diagnose = Some(diagnose);
        self
    }

    /// Adds a reason for STATUS to say no, beside the state of the Open vSwitch database.
    pub fn readiness(mut self, readiness: Readiness) -> CniServer {
        self.readiness = Some(readiness);
        self
    }

    /// Waits until the server knows what is in the Open vSwitch database, if it needs that.
    pub async fn connected(&self) {
        if !self.settings.unprivileged {
            self.ports.ready().await;
        }
    }

    /// Why ADD cannot be served now; none if it can.
    pub fn not_ready(&self) -> Option<String> {
        if self.settings.unprivileged {
            return self.readiness.as_ref().and_then(|ask| ask());
        }
        if !self.ports.is_up() {
            let reason = self.ports.link().borrow().reason.clone();
            let reason = reason.unwrap_or_else(|| "not connected yet".to_owned());
            return Some(format!("the Open vSwitch database is not available: {reason}"));
        }
        let bridge = self.ports.bridge();
        if self.ports.read(|cache| super::ports::bridge(cache, bridge).is_none()) {
            return Some(format!("bridge {bridge} does not exist yet"));
        }
        self.readiness.as_ref().and_then(|ask| ask())
    }
}

// === impl Ledger ===

impl Ledger {
    pub(crate) fn put(&self, plug: Plug) {
        let mut plugs = self.lock();
        // The newest owner of a logical port is the only one.
        plugs.retain(|_, p| p.iface_id != plug.iface_id);
        plugs.insert((plug.sandbox.clone(), plug.pod_ifname.clone()), plug);
    }

    pub(crate) fn remove(&self, sandbox: &str, ifname: &str) {
        self.lock().remove(&(sandbox.to_owned(), ifname.to_owned()));
    }

    pub(crate) fn all(&self) -> Vec<Plug> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Plug>> {
        self.plugs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Nonce ===

impl Nonce {
    fn new() -> Nonce {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        Nonce { start, count: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        format!("{} {} {count}", std::process::id(), self.start)
    }
}
