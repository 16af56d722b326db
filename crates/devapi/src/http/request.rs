//! A request as handlers see it: path, query, body, and the resource it addresses.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::Value;

use crate::{
    error::ApiError,
    kind::Kind,
    store::{Store, Validation, WriteOptions},
};

/// Largest body accepted, as the real server's limit.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// A request with its body.
pub(super) struct Input {
    pub(super) method: Method,
    pub(super) path: String,
    query: BTreeMap<String, String>,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Input {
    pub(super) async fn read(request: Request<Incoming>) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(|e| {
            if e.is::<http_body_util::LengthLimitError>() {
                let message = format!("Request entity too large: limit is {MAX_BODY}");
                ApiError::new(413, "RequestEntityTooLarge", message)
            } else {
                ApiError::bad_request(format!("cannot read the request: {e}"))
            }
        })?;
        let mut query = BTreeMap::new();
        for pair in parts.uri.query().unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            query.entry(decode(name, true)).or_insert_with(|| decode(value, true));
        }
        Ok(Self {
            method: parts.method,
            path: parts.uri.path().to_string(),
            query,
            headers: parts.headers,
            body: body.to_bytes(),
        })
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    pub(super) fn query(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// A switch in the query; given without a value it is on.
    pub(super) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.query.get(name).map(String::as_str) {
            None | Some("0" | "false" | "False" | "f") => Ok(false),
            Some("" | "1" | "true" | "True" | "t") => Ok(true),
            Some(other) => Err(ApiError::bad_request(format!("{name}: {other:?} is neither true nor false"))),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.query.contains_key(name)
    }

    /// Media type of the body, without parameters.
    pub(super) fn content_type(&self) -> &str {
        self.header("content-type").split(';').next().unwrap_or_default().trim()
    }

    /// The body as JSON; YAML where the type says so.
    pub(super) fn json(&self) -> Result<Value, ApiError> {
        if self.content_type() == "application/vnd.kubernetes.protobuf" {
            return crate::protobuf::decode(&self.body).map_err(ApiError::bad_request);
        }
        let yaml = self.content_type().ends_with("yaml");
        if !yaml
            && !matches!(self.content_type(), "" | "application/json" | "*/*")
            && !self.content_type().ends_with("+json")
        {
            return Err(ApiError::unsupported_media(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json, application/yaml",
            ));
        }
        if yaml && !self.body.trim_ascii_start().starts_with(b"{") {
            return serde_norway::from_slice(&self.body)
                .map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")));
        }
        serde_json::from_slice(&self.body)
            .map_err(|e| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {e}")))
    }

    pub(super) fn write_options(&self) -> Result<WriteOptions, ApiError> {
        let validation = match self.query("fieldValidation") {
            "" | "Warn" => Validation::Warn,
            "Strict" => Validation::Strict,
            "Ignore" => Validation::Ignore,
            other => {
                return Err(ApiError::bad_request(format!(
                    "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
                )));
            }
        };
        let dry_run = match self.query("dryRun") {
            "" => false,
            "All" => true,
            other => {
                return Err(ApiError::bad_request(format!(
                    "dryRun: Unsupported value: {other:?}: supported values: \"All\""
                )));
            }
        };
        let mut manager = self.query("fieldManager").to_string();
        if manager.is_empty() {
            let agent = self.header("user-agent").split('/').next().unwrap_or_default();
            manager = if agent.is_empty() { "unknown".into() } else { agent.into() };
        }
        Ok(WriteOptions { dry_run, manager, validation, force: self.flag("force")? })
    }
}

/// Percent-decoding; in queries a plus is a space.
fn decode(text: &str, plus: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| bytes.get(i).and_then(|b| char::from(*b).to_digit(16));
        match bytes[at] {
            b'%' if hex(at + 1).is_some() && hex(at + 2).is_some() => {
                out.push((hex(at + 1).unwrap_or(0) * 16 + hex(at + 2).unwrap_or(0)) as u8);
                at += 2;
            }
            b'+' if plus => out.push(b' '),
            other => out.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The resource a path addresses.
pub(super) struct Target {
    pub(super) kind: Arc<Kind>,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) sub: String,
}

impl Target {
    /// Reads `/api/v1/…` and `/apis/GROUP/VERSION/…`; `None` if nothing is served there.
    pub(super) fn find(store: &Store, path: &str) -> Option<Self> {
        let parts: Vec<String> = path.trim_start_matches('/').split('/').map(|p| decode(p, false)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let target = |namespace: &str, plural: &str, name: &str, sub: &str| {
            let kind = store.kind(group, version, plural)?;
            (kind.namespaced || namespace.is_empty()).then(|| Self {
                kind,
                namespace: namespace.into(),
                name: name.into(),
                sub: sub.into(),
            })
        };
        match rest {
            ["namespaces", name, sub @ ("status" | "finalize")] => target("", "namespaces", name, sub),
            ["namespaces", namespace, plural] => target(namespace, plural, "", ""),
            ["namespaces", namespace, plural, name] => target(namespace, plural, name, ""),
            ["namespaces", namespace, plural, name, sub] => target(namespace, plural, name, sub),
            [plural] => target("", plural, "", ""),
            [plural, name] => target("", plural, name, ""),
            [plural, name, sub] => target("", plural, name, sub),
            _ => None,
        }
        .filter(|t| !t.kind.namespaced || !t.namespace.is_empty() || t.name.is_empty())
    }

    /// The one object the request can be about: a list or watch selects it by name.
    pub(super) fn asked_name<'a>(&'a self, input: &'a Input) -> &'a str {
        if !self.name.is_empty() {
            return &self.name;
        }
        let mut terms = input.query("fieldSelector").split(',');
        terms
            .find_map(|term| term.strip_prefix("metadata.name="))
            .map_or("", |name| name.trim_start_matches('='))
    }

    /// `pods` or `pods/status`.
    pub(super) fn resource_path(&self) -> String {
        if self.sub.is_empty() {
            self.kind.plural.clone()
        } else {
            format!("{}/{}", self.kind.plural, self.sub)
        }
    }
}
