//! A real kube-apiserver on a real etcd, started inside the underlay.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
};

use anyhow::Result;
use devapi::external::{External, ExternalOptions, Place, Running};

use super::{Api, Server, inside, service_cidrs};
use crate::{
    cluster::Cluster,
    space::{Process, Space},
    wire::Program,
};

/// A namespace's processes end with it, so nothing is left when the builder is killed.
pub(super) async fn start(cluster: &Cluster, assets: &Path) -> Result<Api> {
    let options = ExternalOptions {
        address: inside(cluster),
        service_cidrs: service_cidrs(cluster)?,
        work_dir: cluster.work_dir().to_owned(),
        ..ExternalOptions::default()
    };
    let server = External::start(cluster.underlay(), assets, options).await?;
    let (address, token, ca) = (server.address(), server.token().to_owned(), server.ca_pem().to_owned());
    Api::with_token(cluster, address, token, ca, Server::Real { _until_dropped: server }).await
}

// === impl Space ===

impl Place for Space {
    type Process = Process;

    async fn start(&self, argv: Vec<String>, log: PathBuf) -> io::Result<Process> {
        self.spawn(Program { argv, log: Some(log), ..Program::default() }).await.map_err(io::Error::other)
    }

    fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        self.in_network(|| Ok(TcpListener::bind(address)?)).map_err(io::Error::other)
    }

    fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.in_network(|| Ok(TcpStream::connect(address)?)).map_err(io::Error::other)
    }
}

// === impl Process ===

impl Running for Process {
    fn ended(&mut self) -> Option<String> {
        self.exit_so_far().map(|exit| exit.how())
    }

    async fn kill(&mut self) {
        // A namespace that is gone has taken it along.
        let _ = self.kill9().await;
    }
}
