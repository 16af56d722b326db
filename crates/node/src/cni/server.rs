//! HTTP on the unix socket.

use std::{
    convert::Infallible,
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use ::cni::{COUNTED_HEADER, CniError, METRICS_PATH, MetricsPost, Request, STARTED_HEADER, code};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, StatusCode,
    body::{Bytes, Incoming},
    header::{HeaderMap, HeaderValue},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{context::CniServer, socket, stale};

/// A request is an environment and a configuration; anything larger is no request.
const BODY_LIMIT: usize = 4 << 20;

type Reply = hyper::Response<Full<Bytes>>;

/// Serves requests on the settings' socket until `stop` fires, then lets running requests end.
pub async fn serve(server: Arc<CniServer>, stop: CancellationToken) -> io::Result<()> {
    let (listener, path) = socket::listen(&server.settings.socket_dir)?;
    tracing::info!(socket = %path.display(), "CNI server listens");
    let tender = tokio::spawn(stale::tend(server.clone()));
    let requests = TaskTracker::new();
    let outcome = loop {
        let stream = tokio::select! {
            () = stop.cancelled() => break Ok(()),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of descriptors or the like: others are being closed.
                Err(e) => {
                    tracing::warn!(error = %e, "CNI connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        tokio::spawn(connection(server.clone(), stream, requests.clone(), stop.child_token()));
    };
    tender.abort();
    requests.close();
    requests.wait().await;
    outcome
}

async fn connection(
    server: Arc<CniServer>,
    stream: UnixStream,
    requests: TaskTracker,
    stop: CancellationToken,
) {
    let service = service_fn(move |request| {
        let (server, requests, stop) = (server.clone(), requests.clone(), stop.clone());
        async move { Ok::<_, Infallible>(route(server, request, &requests, &stop).await) }
    });
    // When the client goes away, hyper drops the request's future and with it the guard that cancels the request.
    let served = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(e) = served {
        tracing::debug!(error = %e, "CNI connection ended early");
    }
}

async fn route(
    server: Arc<CniServer>,
    request: hyper::Request<Incoming>,
    requests: &TaskTracker,
    stop: &CancellationToken,
) -> Reply {
    let path = request.uri().path().to_owned();
    if path != "/" && path != METRICS_PATH {
        return reply(StatusCode::NOT_FOUND, "no such path");
    }
    if request.method() != Method::POST {
        return reply(StatusCode::METHOD_NOT_ALLOWED, "only POST is served");
    }
    let started = started(request.headers());
    let body = match Limited::new(request.into_body(), BODY_LIMIT).collect().await {
        Ok(body) => body.to_bytes(),
        Err(e) => return reply(StatusCode::BAD_REQUEST, format!("request could not be read: {e}")),
    };
    if path == METRICS_PATH {
        return metrics(&server, &body);
    }
    let request: Request = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(e) => return failure(&CniError::new(code::DECODE, "request is not valid JSON", e.to_string())),
    };
    // The request runs in a task of its own, so that it can undo its work after its caller has gone.
    let cancel = stop.clone();
    let cancel = cancel.child_token();
    let guard = cancel.clone().drop_guard();
    let task = requests.spawn(async move {
        let outcome = server.handle(&request, &cancel).await;
        // Where the shim has work left it alone knows how long that takes.
        let over = outcome.as_ref().map_or(true, |response| response.pod_if_info.is_none());
        let counted = started.filter(|_| over).is_some_and(|at| server.count(&request, at, outcome.is_err()));
        (outcome, counted)
    });
    let outcome = task.await;
    drop(guard);
    let (outcome, counted) = match outcome {
        Ok(done) => done,
        Err(e) => return reply(StatusCode::BAD_REQUEST, format!("request failed unexpectedly: {e}")),
    };
    let mut reply = match outcome.map(|response| serde_json::to_string(&response)) {
        Ok(Ok(text)) => reply(StatusCode::OK, text),
        Ok(Err(e)) => reply(StatusCode::BAD_REQUEST, format!("response could not be written: {e}")),
        Err(error) => failure(&error),
    };
    if counted {
        reply.headers_mut().insert(COUNTED_HEADER, HeaderValue::from_static("1"));
    }
    reply
}

/// When the shim was started, if it says so.
fn started(headers: &HeaderMap) -> Option<SystemTime> {
    let nanoseconds: u64 = headers.get(STARTED_HEADER)?.to_str().ok()?.parse().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(nanoseconds))
}

fn metrics(server: &CniServer, body: &[u8]) -> Reply {
    match serde_json::from_slice::<MetricsPost>(body) {
        Ok(post) => {
            let elapsed = Duration::try_from_secs_f64(post.elapsed).unwrap_or_default();
            server.observer.request(&post.command, elapsed, post.failed);
            reply(StatusCode::OK, "")
        }
        Err(e) => reply(StatusCode::BAD_REQUEST, format!("duration report is not valid JSON: {e}")),
    }
}

/// Errors of the CNI specification go as an object, all others as the plain text older shims know.
fn failure(error: &CniError) -> Reply {
    if error.code == code::INTERNAL {
        reply(StatusCode::BAD_REQUEST, error.to_string())
    } else {
        reply(StatusCode::BAD_REQUEST, error.to_json())
    }
}

fn reply(status: StatusCode, body: impl Into<Bytes>) -> Reply {
    let mut response = hyper::Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}
