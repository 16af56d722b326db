//! A real kube-apiserver with its etcd, from the folder `KUBEBUILDER_ASSETS` names (envtest's convention), behind
//! the same few methods as [`Server`](crate::Server), so that demos, tests and benches run on it unchanged.
//!
//! etcd listens on loopback. Whoever holds the token is in `system:masters`; authorization is RBAC as in a real
//! cluster. Where the two programs run is the caller's choice: a [`Place`].

mod flags;
mod place;
mod ready;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use tokio::time::Instant;

pub use place::{Here, Place, Running};

use crate::{identity, server::kubeconfig};

/// Environment variable that names the folder with `kube-apiserver` and `etcd`.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// How long the two processes may take until they are ready.
const READY: Duration = Duration::from_secs(60);

/// How to start a real API server.
pub struct ExternalOptions {
    /// Address the API server binds and advertises; port 0 takes a free one.
    pub address: SocketAddr,
    /// Service ranges, the primary family first.
    pub service_cidrs: Vec<IpNet>,
    /// More names for the server certificate.
    pub names: Vec<String>,
    /// Directory in which one of its own is made for the server's files and data; it goes away with the server.
    pub work_dir: PathBuf,
    /// More flags for kube-apiserver.
    pub flags: Vec<String>,
}

/// Why a real API server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ExternalError {
    /// A program is missing.
    #[error("{0} is not there; {ASSETS} must name a folder with kube-apiserver and etcd")]
    Missing(PathBuf),
    /// Files, ports or processes.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// Certificates could not be made.
    #[error("cannot make certificates: {0}; check the names")]
    Certificate(#[from] rcgen::Error),
    /// A process ended or did not become ready.
    #[error("{program} {why}; the end of its log:\n{log}")]
    NotReady {
        /// Which one.
        program: &'static str,
        /// What happened.
        why: String,
        /// Its last lines.
        log: String,
    },
}

/// A running kube-apiserver with its etcd; both are killed when it is dropped.
pub struct External<P: Place = Here> {
    address: SocketAddr,
    ca_pem: String,
    token: String,
    apiserver: Option<P::Process>,
    etcd: Option<P::Process>,
    directory: Directory,
}

/// A directory that is removed with everything in it.
struct Directory(PathBuf);

/// The folder of [`ASSETS`], if the variable is set and not empty.
pub fn assets() -> Option<PathBuf> {
    std::env::var_os(ASSETS).filter(|v| !v.is_empty()).map(PathBuf::from)
}

// === impl ExternalOptions ===

impl Default for ExternalOptions {
    /// A free port of loopback, service range 10.96.0.0/16, files in the system's temporary directory.
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            service_cidrs: vec![IpNet::from(ipnet::Ipv4Net::new_assert([10, 96, 0, 0].into(), 16))],
            names: Vec::new(),
            work_dir: std::env::temp_dir(),
            flags: Vec::new(),
        }
    }
}

// === impl External ===

impl<P: Place> External<P> {
    /// Starts etcd and kube-apiserver from the folder `assets` in `place` and waits until the API is ready.
    pub async fn start(place: &P, assets: &Path, options: ExternalOptions) -> Result<Self, ExternalError> {
        for program in ["etcd", "kube-apiserver"] {
            let path = assets.join(program);
            if !path.is_file() {
                return Err(ExternalError::Missing(path));
            }
        }
        let (address, ports) = ports(place, options.address)
            .map_err(failed(format!("cannot get ports on {} and on loopback", options.address.ip())))?;
        let directory = options.work_dir.join(format!("devapi-{}", identity::random_token()));
        std::fs::create_dir(&directory).map_err(failed(format!("cannot create {}", directory.display())))?;
        let directory = Directory(directory);
        let token = identity::random_token();
        let flags = flags::prepare(&directory.0, address, ports, &token, &options)?;
        let mut external =
            Self { address, ca_pem: flags.ca_pem, token, apiserver: None, etcd: None, directory };
        external.etcd = Some(external.spawn(place, assets, "etcd", flags.etcd).await?);
        external.apiserver = Some(external.spawn(place, assets, "kube-apiserver", flags.apiserver).await?);
        external.ready(place).await?;
        Ok(external)
    }

    async fn spawn(
        &self,
        place: &P,
        assets: &Path,
        program: &str,
        flags: Vec<String>,
    ) -> Result<P::Process, ExternalError> {
        let path = assets.join(program).display().to_string();
        let what = format!("cannot start {path}");
        let argv = std::iter::once(path).chain(flags).collect();
        place.start(argv, self.log(program)).await.map_err(failed(what))
    }

    fn log(&self, program: &str) -> PathBuf {
        self.directory.0.join(format!("{program}.log"))
    }

    /// Asks `/readyz` until it answers `ok`.
    async fn ready(&mut self, place: &P) -> Result<(), ExternalError> {
        let name = self.address.ip().to_string();
        let deadline = Instant::now() + READY;
        loop {
            let ended = |process: &mut Option<P::Process>| process.as_mut().and_then(Running::ended);
            for (program, how) in
                [("etcd", ended(&mut self.etcd)), ("kube-apiserver", ended(&mut self.apiserver))]
            {
                if let Some(how) = how {
                    let log = tail(&self.log(program));
                    return Err(ExternalError::NotReady { program, why: format!("ended with {how}"), log });
                }
            }
            let asked = async {
                let stream = place.connect(self.address).map_err(|e| e.to_string())?;
                ready::ask(stream, &name, &self.ca_pem, &self.token).await
            };
            let why = match tokio::time::timeout_at(deadline, asked).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(why)) => why,
                Err(_) => "it does not answer".to_owned(),
            };
            if Instant::now() >= deadline {
                let why = format!("is not ready after {} s: {why}", READY.as_secs());
                let log = tail(&self.log("kube-apiserver"));
                return Err(ExternalError::NotReady { program: "kube-apiserver", why, log });
            }
            // The process tells nobody when it is ready, so it is asked again.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Base URL for clients.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Address the server advertises.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Certificate of the CA that signed the server's, in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Bearer token of a member of `system:masters`.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A kubeconfig for kubectl and other clients, in YAML.
    pub fn kubeconfig(&self) -> String {
        kubeconfig(&self.url(), &self.ca_pem, &self.token)
    }

    /// Ends both processes and removes their files.
    pub async fn stop(mut self) {
        for process in [&mut self.apiserver, &mut self.etcd].into_iter().flatten() {
            process.kill().await;
        }
    }
}

// === impl Directory ===

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The server's address with a port, and two ports on loopback for etcd, on which nobody listens now.
fn ports(place: &impl Place, mut address: SocketAddr) -> io::Result<(SocketAddr, (u16, u16))> {
    let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    // All are held until all are known: otherwise they might be the same.
    let (own, clients, peers) = (place.listen(address)?, place.listen(loopback)?, place.listen(loopback)?);
    address.set_port(own.local_addr()?.port());
    Ok((address, (clients.local_addr()?.port(), peers.local_addr()?.port())))
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> ExternalError {
    let what = what.into();
    move |source| ExternalError::Io { what, source }
}

/// The last lines of a log.
fn tail(path: &Path) -> String {
    let text = std::fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
