//! What a load balancer outside asks a node: whether it has endpoints of a service that keeps traffic on the node.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kapi::ServiceKey;
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{debug, info};

/// The servers that run, by service.
#[derive(Debug, Default)]
pub(super) struct Health {
    servers: BTreeMap<ServiceKey, Server>,
}

#[derive(Debug)]
struct Server {
    port: u16,
    endpoints: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Health {
    /// The service is asked about at `port`, and has so many endpoints here; without a port its server ends. The error
    /// tells why the port cannot be served; calling again tries again.
    pub(super) fn replace(
        &mut self,
        service: &ServiceKey,
        port: Option<u16>,
        endpoints: usize,
    ) -> Result<(), String> {
        let Some(port) = port else {
            self.servers.remove(service);
            return Ok(());
        };
        if let Some(server) = self.servers.get(service).filter(|server| server.port == port) {
            server.endpoints.store(endpoints, Ordering::Relaxed);
            return Ok(());
        }
        self.servers.remove(service);
        let count = Arc::new(AtomicUsize::new(endpoints));
        let listener = listen(port).map_err(|error| {
            format!(
                "health check port {port} cannot be opened on this node: {error}; find the process that listens \
                 there (ss -lnp). Load balancers will take this node for one without endpoints"
            )
        })?;
        info!(%service, port, "answering health checks of load balancers");
        let task = tokio::spawn(serve(listener, service.clone(), count.clone()));
        self.servers.insert(service.clone(), Server { port, endpoints: count, task });
        Ok(())
    }
}

/// All addresses of both families, or of IPv4 where there is no other.
fn listen(port: u16) -> io::Result<tokio::net::TcpListener> {
    let places: [SocketAddr; 2] =
        [(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()];
    let listener = TcpListener::bind(places.as_slice())?;
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

async fn serve(listener: tokio::net::TcpListener, service: ServiceKey, endpoints: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = stream else {
            // Out of descriptors, most likely; connections that end free some.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (service, endpoints) = (service.clone(), endpoints.clone());
        connections.spawn(async move {
            let answer = service_fn(|_: Request<Incoming>| {
                let response = answer(&service, endpoints.load(Ordering::Relaxed));
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.keep_alive(false);
            if let Err(error) = http.serve_connection(TokioIo::new(stream), answer).await {
                debug!(%error, "health check ended early");
            }
        });
    }
}

fn answer(service: &ServiceKey, endpoints: usize) -> Response<Full<Bytes>> {
    let body = json!({
        "service": { "namespace": service.namespace(), "name": service.name() },
        "localEndpoints": endpoints,
        "serviceProxyHealthy": true,
    });
    let mut response = Response::new(Full::new(Bytes::from(format!("{body:#}\n"))));
    if endpoints == 0 {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    let headers = response.headers_mut();
    headers.insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    headers.insert("x-content-type-options", hyper::header::HeaderValue::from_static("nosniff"));
    headers.insert("x-load-balancing-endpoint-weight", endpoints.into());
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn ask(port: u16) -> io::Result<String> {
        let mut stream = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(b"GET /anything HTTP/1.1\r\nhost: node\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    #[tokio::test]
    async fn tells_how_many_endpoints_there_are_here() {
        let key = ServiceKey::new("shop", "web");
        let mut health = Health::default();
        let port = listen(0).unwrap().local_addr().unwrap().port();
        health.replace(&key, Some(port), 2).unwrap();
        let text = ask(port).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        let body: serde_json::Value = serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(body["service"], json!({ "namespace": "shop", "name": "web" }));
        assert_eq!(body["localEndpoints"], 2);
        health.replace(&key, Some(port), 0).unwrap();
        assert!(ask(port).await.unwrap().starts_with("HTTP/1.1 503 "));
        let other = ServiceKey::new("shop", "other");
        assert!(health.replace(&other, Some(port), 1).unwrap_err().contains("ss -lnp"), "one has it already");
        health.replace(&key, None, 0).unwrap();
        tokio::task::yield_now().await;
        health.replace(&other, Some(port), 1).unwrap();
    }
}
