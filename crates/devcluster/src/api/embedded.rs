//! The embedded API server, listening inside the underlay.

use std::{net::TcpListener, thread};

use anyhow::{Context, Result, anyhow};
use tokio::sync::oneshot;

use super::{Api, Server, inside, listen_inside, service_cidrs};
use crate::cluster::Cluster;

/// A server on a thread of its own: a test that keeps its runtime busy does not hold up the API.
pub(super) struct Embedded {
    pub(super) server: devapi::Server,
    _stop: oneshot::Sender<()>,
}

pub(super) async fn start(cluster: &Cluster) -> Result<Api> {
    let embedded = serve(listen_inside(cluster)?, cluster).await?;
    let (token, ca) = (embedded.server.token().to_owned(), embedded.server.ca_pem().to_owned());
    Api::with_token(cluster, inside(cluster), token, ca, Server::Embedded(embedded)).await
}

async fn serve(listener: TcpListener, cluster: &Cluster) -> Result<Embedded> {
    let mut options = devapi::Options::new(listener);
    options.service_cidrs = service_cidrs(cluster)?;
    options.schedule = true;
    let (started, on_start) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    thread::Builder::new().name("devcluster-api".to_owned()).spawn(move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = started.send(Err(anyhow!(error)));
                return;
            }
        };
        runtime.block_on(async {
            let server = devapi::Server::start(options).await.map_err(anyhow::Error::from);
            if started.send(server).is_ok() {
                // Ends with an error when the other side is dropped: that is the signal.
                let _ = stopped.await;
            }
        });
    })?;
    let server = on_start.await.context("the API's thread ended")??;
    Ok(Embedded { server, _stop: stop })
}
