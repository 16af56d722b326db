//! The transport under kube's client: HTTP/2 where the server speaks it.
//!
//! All watches and writes then share one TLS connection. A burst of patches costs no handshakes, and pings find a
//! dead connection, where HTTP/1 would only notice that a watch has been silent for too long.

use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::{Body, ConfigExt};
use tower::{BoxError, ServiceBuilder};

use crate::Error;
use crate::error::chain;

/// A ping when the connection was idle this long, and how long its answer may take.
const PING_AFTER: Duration = Duration::from_secs(20);
const PING_LIMIT: Duration = Duration::from_secs(10);
/// Pings of TCP's own within that time.
const PINGS: u32 = 4;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn client(config: Config) -> Result<kube::Client, Error> {
    let bad = |error: &dyn std::error::Error| {
        Error::Settings(format!("cannot set up the client: {}", chain(error)))
    };
    if let Some(proxy) = &config.proxy_url {
        return Err(Error::Settings(format!(
            "the kubeconfig asks for the proxy {proxy}: proxies are not supported"
        )));
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_LIMIT));
    // The same over HTTP/1, and for a write nobody acknowledges: a node whose address changed has such connections.
    tcp.set_keepalive(Some(PING_AFTER));
    tcp.set_keepalive_interval(Some(PING_LIMIT / PINGS));
    tcp.set_keepalive_retries(Some(PINGS));
    tcp.set_tcp_user_timeout(Some(PING_LIMIT));
    let tls = config.rustls_client_config().map_err(|error| bad(&error))?;
    let mut connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = config.tls_server_name.clone() {
        let name = name.try_into().map_err(|error| bad(&error))?;
        connector = connector.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let connector = connector.enable_http1().enable_http2().wrap_connector(tcp);
    let transport: Client<_, Body> = Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_LIMIT)
        // a list of thousands of pods must not stop at a window, nor hold up the writes beside it
        .http2_initial_stream_window_size(1 << 20)
        .http2_initial_connection_window_size(8 << 20)
        .build(connector);
    // retries are ours: the consumer is told and the backoff is one
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(|error| bad(&error))?)
        .map_err(BoxError::from)
        .service(transport);
    Ok(kube::Client::new(service, config.default_namespace))
}
