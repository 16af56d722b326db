//! The servers for metrics and health.
//!
//! They run on a thread of their own, so that they answer while the working loop is busy; the readiness checks, not the
//! server's own liveness, tell whether the loop works.

mod routes;
mod serve;
mod tls;

use crate::Telemetry;
use routes::Site;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};
pub use tls::{TlsFiles, TlsSettings};
use tokio::sync::watch;

/// What to serve where. Each address is a list of candidates to try in turn: `[::]:9410`, then `0.0.0.0:9410`.
#[derive(Debug, Clone, Default)]
pub struct AdminSettings {
    /// `/metrics`, `/healthz`, `/livez`, `/readyz`.
    pub metrics: Vec<SocketAddr>,
    /// `/metrics` of OVN and Open vSwitch.
    pub ovn_metrics: Vec<SocketAddr>,
    /// `/healthz` for load balancers.
    pub healthz: Vec<SocketAddr>,
    /// Serve both metrics addresses over TLS.
    pub tls: Option<TlsSettings>,
    /// Let `/debug/flags/v` read and change the log level.
    pub debug: bool,
}

/// The servers cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The TLS files cannot be used.
    #[error("cannot serve metrics over TLS: {0}")]
    Tls(#[from] tls::TlsError),
    /// No thread.
    #[error("cannot start the admin thread: {0}")]
    Thread(std::io::Error),
}

/// The running servers; dropping it stops them.
pub struct Admin {
    stop: watch::Sender<bool>,
    bound: watch::Receiver<Vec<SocketAddr>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Starts the servers. An address that is taken (by the instance we replace, say) is tried again until it is free.
    ///
    /// # Errors
    /// If the TLS files cannot be used or there is no thread.
    pub fn start(settings: AdminSettings, telemetry: &Telemetry) -> Result<Self, AdminError> {
        let tls = settings.tls.map(tls::Acceptor::load).transpose()?.map(Arc::new);
        let telemetry = Arc::new(telemetry.clone());
        let sites: Vec<serve::Listen> = [
            (settings.metrics, Site::Main { debug: settings.debug }, tls.clone()),
            (settings.ovn_metrics, Site::Ovn, tls),
            (settings.healthz, Site::Healthz, None),
        ]
        .into_iter()
        .filter(|(addresses, ..)| !addresses.is_empty())
        .map(|(addresses, site, tls)| serve::Listen { addresses, site, tls })
        .collect();

        let (stop, stopped) = watch::channel(false);
        let (report, bound) = watch::channel(Vec::new());
        let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(serve::all(sites, telemetry, report, stopped)),
            Err(error) => tracing::error!(%error, "no admin servers: their runtime cannot start"),
        };
        let thread = std::thread::Builder::new()
            .name("admin".into())
            // Handlers are shallow; the default of 2 MiB only costs address space, but some limit that too.
            .stack_size(512 * 1024)
            .spawn(run)
            .map_err(AdminError::Thread)?;
        Ok(Self { stop, bound, thread: Some(thread) })
    }

    /// The addresses in use once `count` servers listen; fewer if the servers stopped before.
    pub async fn listening(&self, count: usize) -> Vec<SocketAddr> {
        let mut bound = self.bound.clone();
        match bound.wait_for(|b| b.len() >= count).await {
            Ok(addresses) => addresses.clone(),
            Err(_) => self.bound.borrow().clone(),
        }
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed by its own hook.
            let _ = thread.join();
        }
    }
}

/// Addresses as they get bound.
struct Bound(Mutex<watch::Sender<Vec<SocketAddr>>>);

impl Bound {
    fn add(&self, address: SocketAddr) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.send_modify(|all| all.push(address));
    }
}
