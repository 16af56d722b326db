//! Listeners and connections.

use super::{Bound, routes, routes::Site, tls};
use crate::Telemetry;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};

/// Connections of one server at a time; more wait in the kernel's queue.
const CONNECTIONS: usize = 32;
/// Time a client may take for a TLS handshake or the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Listen {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) site: Site,
    pub(super) tls: Option<Arc<tls::Acceptor>>,
}

pub(super) async fn all(
    sites: Vec<Listen>,
    telemetry: Arc<Telemetry>,
    report: watch::Sender<Vec<SocketAddr>>,
    mut stopped: watch::Receiver<bool>,
) {
    let bound = Arc::new(Bound(report.into()));
    let mut servers = JoinSet::new();
    for site in sites {
        servers.spawn(one(site, telemetry.clone(), bound.clone()));
    }
    // The sender lives in the Admin; its loss means stop too. The set ends its tasks when it is dropped.
    let _ = stopped.wait_for(|stop| *stop).await;
}

async fn one(listen: Listen, telemetry: Arc<Telemetry>, bound: Arc<Bound>) {
    let listener = bind(&listen.addresses).await;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, site = listen.site.name(), tls = listen.tls.is_some(), "serving");
        bound.add(address);
    }
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: the others need time to finish.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (site, telemetry, tls) = (listen.site, telemetry.clone(), listen.tls.clone());
        connections.spawn(async move {
            let _slot = slot;
            if let Err(error) = connection(stream, site, telemetry, tls).await {
                tracing::debug!(error, "an admin connection failed");
            }
        });
    }
}

async fn bind(addresses: &[SocketAddr]) -> TcpListener {
    let mut wait = Duration::from_millis(250);
    loop {
        let mut last = None;
        for address in addresses {
            match TcpListener::bind(address).await {
                Ok(listener) => return listener,
                Err(error) => last = Some((address, error)),
            }
        }
        if let Some((address, error)) = last {
            tracing::warn!(%address, %error, again_in = ?wait, "cannot listen; is another instance running?");
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(5));
    }
}

async fn connection(
    stream: TcpStream,
    site: Site,
    telemetry: Arc<Telemetry>,
    tls: Option<Arc<tls::Acceptor>>,
) -> Result<(), String> {
    let Some(tls) = tls else { return http(stream, site, telemetry).await };
    let accept = tls.current().accept(stream);
    let stream = tokio::time::timeout(PATIENCE, accept)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|e| format!("TLS handshake: {e}"))?;
    http(stream, site, telemetry).await
}

async fn http<S>(stream: S, site: Site, telemetry: Arc<Telemetry>) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let telemetry = telemetry.clone();
        async move { routes::answer(site, &telemetry, request).await }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(|e| e.to_string())
}
