//! What each path answers.

use crate::{Telemetry, clock::rfc3339, health::Outcome};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use std::{convert::Infallible, fmt::Write, time::SystemTime};

/// Which server was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Site {
    Main { debug: bool },
    Ovn,
    Healthz,
}

impl Site {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Main { .. } => "metrics",
            Self::Ovn => "ovn metrics",
            Self::Healthz => "healthz",
        }
    }
}

type Answer = Response<Full<Bytes>>;

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";

pub(super) async fn answer(
    site: Site,
    telemetry: &Telemetry,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let path = request.uri().path();
    let get = request.method() == Method::GET || request.method() == Method::HEAD;
    if let (Site::Main { debug: true }, "/debug/flags/v") = (site, path) {
        return Ok(level(telemetry, request).await);
    }
    if !get {
        return Ok(not_allowed("GET, HEAD"));
    }
    Ok(match (site, path) {
        (Site::Main { .. }, "/metrics") => reply(StatusCode::OK, PROMETHEUS, telemetry.metrics.render()),
        (Site::Ovn, "/metrics") => reply(StatusCode::OK, PROMETHEUS, telemetry.metrics.render_ovn()),
        (Site::Main { .. }, "/healthz" | "/livez") => checks(telemetry.health.liveness().await),
        (Site::Main { .. }, "/readyz") => checks(telemetry.health.readiness().await),
        (Site::Healthz, "/healthz") => load_balancers(telemetry),
        (Site::Main { debug }, "/") => reply(StatusCode::OK, TEXT, index(debug)),
        _ => reply(StatusCode::NOT_FOUND, TEXT, format!("no such page: {path}\n")),
    })
}

fn index(debug: bool) -> String {
    let debug = if debug { "/debug/flags/v\n" } else { "" };
    format!("/metrics\n/healthz\n/readyz\n{debug}")
}

/// One line a check, as Kubernetes' own servers write them.
fn checks(outcomes: Vec<Outcome>) -> Answer {
    let mut text = String::new();
    let mut failed = false;
    for Outcome { name, result } in outcomes {
        // Writing to a String cannot fail.
        match result {
            Ok(()) => _ = writeln!(text, "[+]{name} ok"),
            Err(reason) => {
                failed = true;
                _ = writeln!(text, "[-]{name} failed: {reason}");
            }
        }
    }
    text.push_str(if failed { "failed\n" } else { "ok\n" });
    reply(if failed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, TEXT, text)
}

/// The node's health for load balancers: unhealthy once our pod is being deleted, so that they drain the node.
fn load_balancers(telemetry: &Telemetry) -> Answer {
    let now = SystemTime::now();
    let since = telemetry.health.terminating_since();
    let status = if since.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let body =
        serde_json::json!({ "lastUpdated": rfc3339(since.unwrap_or(now)), "currentTime": rfc3339(now) });
    reply(status, JSON, body.to_string())
}

async fn level(telemetry: &Telemetry, request: Request<Incoming>) -> Answer {
    match *request.method() {
        Method::GET | Method::HEAD => reply(StatusCode::OK, TEXT, format!("{}\n", telemetry.log.level())),
        Method::PUT => {
            let body = Limited::new(request.into_body(), 64).collect().await.map(|b| b.to_bytes());
            let level = body.ok().and_then(|b| std::str::from_utf8(&b).ok()?.trim().parse::<u8>().ok());
            let Some(level) = level.filter(|l| *l <= 10) else {
                return reply(
                    StatusCode::BAD_REQUEST,
                    TEXT,
                    "the body must be a log level, 0 to 10\n".into(),
                );
            };
            let before = telemetry.log.level();
            telemetry.log.set_level(level);
            tracing::info!(before, level, "log level changed");
            reply(StatusCode::OK, TEXT, format!("successfully set log level to {level}\n"))
        }
        _ => not_allowed("GET, HEAD, PUT"),
    }
}

fn not_allowed(methods: &'static str) -> Answer {
    let mut answer = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("only {methods}\n"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

fn reply(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
