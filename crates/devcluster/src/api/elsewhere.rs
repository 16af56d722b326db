//! An API server that exists already: nodes reach it through a relay in the underlay.

use std::{fs, net::ToSocketAddrs, path::Path};

use anyhow::{Context, Result};
use http::Uri;
use kube::config::Kubeconfig;

use super::{Access, Api, Server, client, inside, listen_inside};
use crate::{cluster::Cluster, relay::Relay};

pub(super) async fn start(cluster: &Cluster, file: &Path) -> Result<Api> {
    let mut config = Kubeconfig::read_from(file).with_context(|| format!("reading {}", file.display()))?;
    let context = config.current_context.clone().context("the kubeconfig has no current-context")?;
    let name = config
        .contexts
        .iter()
        .find(|named| named.name == context)
        .and_then(|named| named.context.as_ref())
        .map(|context| context.cluster.clone())
        .with_context(|| format!("the kubeconfig has no context {context}"))?;
    let target = config
        .clusters
        .iter_mut()
        .find(|named| named.name == name)
        .and_then(|named| named.cluster.as_mut())
        .with_context(|| format!("the kubeconfig has no cluster {name}"))?;
    let url: Uri = target.server.clone().context("the cluster has no server")?.parse()?;
    let host = url.host().context("the server's URL has no host")?.trim_matches(['[', ']']).to_owned();
    let scheme = url.scheme_str().unwrap_or("https").to_owned();
    let port = url.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    let address =
        (host.as_str(), port).to_socket_addrs()?.next().with_context(|| format!("{host} has no address"))?;
    let relay = Relay::start(listen_inside(cluster)?, address, None)?;
    target.server = Some(format!("{scheme}://{}", inside(cluster)));
    // The server's certificate does not know the underlay.
    target.tls_server_name.get_or_insert(host);
    inline_files(&mut config)?;
    let for_nodes = serde_json::to_string(&config)?;
    let kubeconfig = fs::canonicalize(file)?;
    Ok(Api {
        client: client(&kubeconfig).await?,
        kubeconfig,
        access: Access::Kubeconfig(for_nodes),
        server: Server::Elsewhere,
        made: Vec::new(),
        _relay: relay,
    })
}

/// Nodes do not see the files a kubeconfig may name.
fn inline_files(config: &mut Kubeconfig) -> Result<()> {
    use base64::Engine as _;
    let encode = |file: &str| -> Result<String> {
        let bytes = fs::read(file).with_context(|| format!("reading {file}"))?;
        Ok(base64::engine::general_purpose::STANDARD.encode(bytes))
    };
    for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        if let Some(file) = cluster.certificate_authority.take() {
            cluster.certificate_authority_data = Some(encode(&file)?);
        }
    }
    for user in config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        if let Some(file) = user.client_certificate.take() {
            user.client_certificate_data = Some(encode(&file)?);
        }
        if let Some(file) = user.client_key.take() {
            user.client_key_data = Some(encode(&file)?.into());
        }
    }
    Ok(())
}
