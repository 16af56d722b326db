//! The server: sockets, TLS, tasks.

use std::{net::SocketAddr, sync::Arc};

use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    access::Tokens,
    endpoints,
    error::ApiError,
    faults::Faults,
    http::{Api, serve_request},
    lifecycle,
    options::Options,
    pki::{Pki, default_names},
    scheduler,
    store::Store,
};

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The listener cannot be used.
    #[error("cannot serve on the given listener: {0}; pass a bound TCP listener")]
    Listener(#[from] std::io::Error),
    /// Certificates could not be made.
    #[error("cannot make the server's certificates: {0}; check the names in Tls")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The first objects could not be stored.
    #[error("cannot create the cluster's first objects: {0}; check service_cidrs")]
    Objects(#[from] ApiError),
}

/// A running API server; stops when dropped.
pub struct Server {
    address: SocketAddr,
    tls: bool,
    ca_pem: String,
    token: String,
    store: Arc<Store>,
    faults: Arc<Faults>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Starts serving on the current tokio runtime.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let address = options.address()?;
        let endpoint = options.kubernetes_endpoint.unwrap_or(address);
        let store = Store::new(options.history, &options.service_cidrs, endpoint)?;
        let faults = Arc::new(Faults::new(store.clone()));
        let mut ca_pem = String::new();
        let acceptor = match &options.tls {
            None => None,
            Some(tls) => {
                let first = store.lock().services.first();
                let addresses = [Some(address.ip()), Some(endpoint.ip()), first];
                let mut names = default_names(addresses.into_iter().flatten());
                names.extend(tls.names.iter().filter(|n| !names.contains(n)).cloned().collect::<Vec<_>>());
                let pki = Pki::new(&names)?;
                let config = pki.server_config()?;
                ca_pem = pki.ca_pem;
                Some(tokio_rustls::TlsAcceptor::from(Arc::new(config)))
            }
        };
        options.listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(options.listener)?;
        let token = options.tokens.as_ref().and_then(|t| t.first().cloned()).unwrap_or_default();
        let tls = acceptor.is_some();
        let stop = CancellationToken::new();
        let api = Arc::new(Api {
            store: store.clone(),
            faults: faults.clone(),
            tokens: Tokens::new(options.tokens),
            address: endpoint,
            stop: stop.clone(),
        });
        let schedule = options.schedule;
        let task = tokio::spawn(accept(listener, acceptor, api, schedule, stop.clone()));
        Ok(Self { address, tls, ca_pem, token, store, faults, stop, task })
    }

    /// Base URL for clients.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.address)
    }

    /// Address the server advertises.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Certificate of the CA that signed the server's, in PEM; empty without TLS.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The first accepted bearer token; empty if anonymous clients are allowed.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A kubeconfig for kubectl and other clients, in YAML.
    pub fn kubeconfig(&self) -> String {
        kubeconfig(&self.url(), &self.ca_pem, &self.token)
    }

    /// Switches to make requests fail and watches end.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The objects, for tests and seeding without HTTP.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Ends all connections and waits for the server's tasks.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // The task only fails if it panicked, which was reported already.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A kubeconfig with one cluster and one user.
pub(crate) fn kubeconfig(url: &str, ca_pem: &str, token: &str) -> String {
    use base64::Engine as _;
    let mut cluster = serde_json::json!({"server": url});
    if !ca_pem.is_empty() {
        let data = base64::engine::general_purpose::STANDARD.encode(ca_pem);
        cluster["certificate-authority-data"] = data.into();
    }
    let user = if token.is_empty() { serde_json::json!({}) } else { serde_json::json!({"token": token}) };
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "dev",
        "clusters": [{"name": "dev", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "dev", "context": {"cluster": "dev", "user": "admin"}}],
    });
    // JSON is YAML, but people read this file.
    serde_norway::to_string(&config).unwrap_or_else(|_| config.to_string())
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<tokio_rustls::TlsAcceptor>,
    api: Arc<Api>,
    schedule: bool,
    stop: CancellationToken,
) {
    let mut tasks = JoinSet::new();
    tasks.spawn(lifecycle::run(api.store.clone()));
    tasks.spawn(endpoints::run(api.store.clone()));
    if schedule {
        tasks.spawn(scheduler::run(api.store.clone()));
    }
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // Watch events are small; waiting to fill a segment would delay them.
                let _ = stream.set_nodelay(true);
                let (acceptor, api) = (acceptor.clone(), api.clone());
                tasks.spawn(async move {
                    match acceptor {
                        None => connection(TokioIo::new(stream), api).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => connection(TokioIo::new(stream), api).await,
                            Err(error) => tracing::debug!(%error, "TLS handshake failed"),
                        },
                    }
                });
            }
            Err(error) => {
                // Out of file descriptors, most likely; connections that end free some.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
    tasks.shutdown().await;
}

async fn connection<I>(io: I, api: Arc<Api>)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |request| {
        let api = api.clone();
        async move { Ok::<_, std::convert::Infallible>(serve_request(api, request).await) }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(1000);
    if let Err(error) = builder.serve_connection(io, service).await {
        tracing::debug!(error = %error, "connection ended");
    }
}
