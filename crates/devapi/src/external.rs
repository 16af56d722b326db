//! A real kube-apiserver with its etcd, from the folder `KUBEBUILDER_ASSETS` names (envtest's convention), behind
//! the same few methods as [`Server`](crate::Server), so that demos, tests and benches run on it unchanged.
//!
//! etcd listens on loopback with ports chosen by the system and keeps its data in a directory that goes away with
//! the server. Whoever holds the token is in `system:masters`; authorization is RBAC as in a real cluster.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use ipnet::IpNet;
use tokio::{
    process::{Child, Command},
    time::Instant,
};

use crate::{
    identity,
    pki::{Pki, default_names},
    server::kubeconfig,
};

/// Environment variable that names the folder with `kube-apiserver` and `etcd`.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// How long the two processes may take until they are ready.
const READY: Duration = Duration::from_secs(60);

/// How to start a real API server.
pub struct ExternalOptions {
    /// Address the API server binds and advertises; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Service ranges, the primary family first.
    pub service_cidrs: Vec<IpNet>,
    /// More names for the server certificate.
    pub names: Vec<String>,
    /// Network namespace (a file such as `/run/netns/NAME`) both processes run in; `None` for the caller's.
    pub netns: Option<PathBuf>,
    /// More flags for kube-apiserver.
    pub flags: Vec<String>,
}

impl Default for ExternalOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            service_cidrs: vec![IpNet::from(ipnet::Ipv4Net::new_assert([10, 96, 0, 0].into(), 16))],
            names: Vec::new(),
            netns: None,
            flags: Vec::new(),
        }
    }
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
        source: std::io::Error,
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
pub struct External {
    address: SocketAddr,
    ca_pem: String,
    token: String,
    directory: PathBuf,
    apiserver: Option<Child>,
    etcd: Option<Child>,
}

/// The folder of [`ASSETS`], if the variable is set and not empty.
pub fn assets() -> Option<PathBuf> {
    std::env::var_os(ASSETS).filter(|v| !v.is_empty()).map(PathBuf::from)
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ExternalError {
    let what = what.into();
    move |source| ExternalError::Io { what, source }
}

/// A port nobody listens on now.
fn free_port(address: IpAddr) -> Result<u16, ExternalError> {
    let listener = TcpListener::bind((address, 0)).map_err(io(format!("cannot get a port on {address}")))?;
    Ok(listener.local_addr().map_err(io("cannot read a listener's address"))?.port())
}

impl External {
    /// Starts etcd and kube-apiserver from `assets` and waits until the API is ready.
    pub async fn start(assets: &Path, options: ExternalOptions) -> Result<Self, ExternalError> {
        for program in ["etcd", "kube-apiserver"] {
            let path = assets.join(program);
            if !path.is_file() {
                return Err(ExternalError::Missing(path));
            }
        }
        let mut address = options.address;
        if address.port() == 0 {
            // An address of another namespace cannot be bound here; any free port of ours is as likely free there.
            let ip = if options.netns.is_some() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { address.ip() };
            address.set_port(free_port(ip)?);
        }
        let directory = std::env::temp_dir().join(format!("devapi-{}", identity::random_token()));
        std::fs::create_dir(&directory).map_err(io(format!("cannot create {}", directory.display())))?;
        let mut external = Self {
            address,
            ca_pem: String::new(),
            token: identity::random_token(),
            directory,
            apiserver: None,
            etcd: None,
        };
        // From here on dropping it cleans up.
        external.run(assets, &options).await?;
        Ok(external)
    }

    async fn run(&mut self, assets: &Path, options: &ExternalOptions) -> Result<(), ExternalError> {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (clients, peers) = (free_port(loopback)?, free_port(loopback)?);
        let (clients, peers) = (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
        let file = |name: &str| self.directory.join(name);
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let etcd = [
            flag("data-dir", &file("etcd")),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            "--unsafe-no-fsync".into(),
        ];
        let first = options.service_cidrs.first().and_then(|c| c.hosts().next());
        let mut names = default_names([Some(self.address.ip()), first].into_iter().flatten());
        names.extend(options.names.iter().cloned());
        let pki = Pki::new(&names)?;
        let accounts = rcgen::KeyPair::generate()?;
        let users = format!("{},admin,admin,\"system:masters\"\n", self.token);
        for (name, content) in [
            ("ca.crt", pki.ca_pem.as_str()),
            ("server.crt", &pki.certificate_pem),
            ("server.key", &pki.key_pem),
            ("accounts.key", &accounts.serialize_pem()),
            ("accounts.pub", &accounts.public_key_pem()),
            ("tokens.csv", &users),
        ] {
            write_private(&file(name), content)?;
        }
        self.ca_pem.clone_from(&pki.ca_pem);
        let cidrs: Vec<String> = options.service_cidrs.iter().map(|c| c.trunc().to_string()).collect();
        let mut apiserver = vec![
            format!("--etcd-servers={clients}"),
            format!("--bind-address={}", self.address.ip()),
            format!("--advertise-address={}", self.address.ip()),
            format!("--secure-port={}", self.address.port()),
            flag("tls-cert-file", &file("server.crt")),
            flag("tls-private-key-file", &file("server.key")),
            flag("token-auth-file", &file("tokens.csv")),
            flag("service-account-key-file", &file("accounts.pub")),
            flag("service-account-signing-key-file", &file("accounts.key")),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-cluster-ip-range={}", cidrs.join(",")),
            "--authorization-mode=RBAC".into(),
            "--allow-privileged=true".into(),
            // No controller-manager makes the service accounts this plugin insists on.
            "--disable-admission-plugins=ServiceAccount".into(),
        ];
        if self.address.ip().is_loopback() {
            // A Service may not have loopback endpoints, so the server must not publish itself.
            apiserver.push("--endpoint-reconciler-type=none".into());
        }
        apiserver.extend(options.flags.iter().cloned());
        let netns = options.netns.as_deref();
        self.etcd = Some(spawn(&assets.join("etcd"), &etcd, &file("etcd.log"), netns)?);
        self.apiserver =
            Some(spawn(&assets.join("kube-apiserver"), &apiserver, &file("kube-apiserver.log"), netns)?);
        self.ready(assets, netns).await
    }

    /// Asks `/readyz` until it answers `ok`.
    async fn ready(&mut self, assets: &Path, netns: Option<&Path>) -> Result<(), ExternalError> {
        let file = self.directory.join("kubeconfig");
        write_private(&file, &self.kubeconfig())?;
        let bundled = assets.join("kubectl");
        let kubectl = if bundled.is_file() { bundled } else { PathBuf::from("kubectl") };
        let deadline = Instant::now() + READY;
        loop {
            for (program, child) in [("etcd", &mut self.etcd), ("kube-apiserver", &mut self.apiserver)] {
                let ended = child.as_mut().and_then(|c| c.try_wait().ok().flatten());
                if let Some(status) = ended {
                    let log = tail(&self.directory.join(format!("{program}.log")));
                    return Err(ExternalError::NotReady {
                        program,
                        why: format!("ended with {status}"),
                        log,
                    });
                }
            }
            let mut ask = inside(&kubectl, netns);
            ask.arg("--kubeconfig").arg(&file).args(["--request-timeout=2s", "get", "--raw", "/readyz"]);
            let answer = ask
                .stdin(Stdio::null())
                .output()
                .await
                .map_err(io("cannot run kubectl to ask for /readyz"))?;
            if answer.status.success() && answer.stdout.starts_with(b"ok") {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let log = tail(&self.directory.join("kube-apiserver.log"));
                let why = format!("is not ready after {} s", READY.as_secs());
                return Err(ExternalError::NotReady { program: "kube-apiserver", why, log });
            }
            // The process tells nobody when it is ready, so it is asked again.
            tokio::time::sleep(Duration::from_millis(200)).await;
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
        for child in [&mut self.apiserver, &mut self.etcd].into_iter().flatten() {
            // It may have ended by itself; then there is nothing to kill.
            let _ = child.kill().await;
        }
    }
}

impl Drop for External {
    fn drop(&mut self) {
        for child in [&mut self.apiserver, &mut self.etcd].into_iter().flatten() {
            let _ = child.start_kill();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn inside(program: &Path, netns: Option<&Path>) -> Command {
    let Some(netns) = netns else { return Command::new(program) };
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", netns.display())).arg("--").arg(program);
    command
}

fn spawn(program: &Path, flags: &[String], log: &Path, netns: Option<&Path>) -> Result<Child, ExternalError> {
    let out = std::fs::File::create(log).map_err(io(format!("cannot create {}", log.display())))?;
    let errors = out.try_clone().map_err(io(format!("cannot write {}", log.display())))?;
    inside(program, netns)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors)
        .kill_on_drop(true)
        .spawn()
        .map_err(io(format!("cannot start {}", program.display())))
}

fn write_private(path: &Path, content: &str) -> Result<(), ExternalError> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let open = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    open.and_then(|mut f| f.write_all(content.as_bytes()))
        .map_err(io(format!("cannot write {}", path.display())))
}

fn tail(path: &Path) -> String {
    let text = std::fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(etcd: &str) -> tempfile::TempDir {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("folder");
        for (name, script) in [("etcd", etcd), ("kube-apiserver", "exec sleep 1000")] {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("script");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
        }
        folder
    }

    #[tokio::test]
    async fn a_folder_without_programs_is_named() {
        let folder = tempfile::tempdir().expect("folder");
        let error = External::start(folder.path(), ExternalOptions::default()).await.err().expect("missing");
        assert!(error.to_string().contains("KUBEBUILDER_ASSETS must name a folder"), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_ends_is_told_with_its_log() {
        let folder = folder("echo cannot listen; exit 3");
        let error =
            External::start(folder.path(), ExternalOptions::default()).await.err().expect("not ready");
        let text = error.to_string();
        assert!(text.contains("etcd ended with exit status: 3") && text.contains("cannot listen"), "{text}");
    }
}
