//! Requests: one-shot reads, guarded patches with many in flight, and the streams that watches read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use kapi::{Object, Resource};
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::{RwLock, Semaphore};

use crate::credentials::{self, Stamp};
use crate::event::{self, EventCounters, EventQueue};
use crate::lines::Lines;
use crate::path::{describe, path, query};
use crate::{Change, Error, ObjectKey, ObjectRef, Scope, Settings, Severity, Watch};

/// Bound on one request that is not a watch: a connection that died silently must not hold its caller.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// Which face of an object a write goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself.
    Main,
    /// Its status; annotations are written here too, so that no admission of the spec is triggered.
    Status,
}

impl Subresource {
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Main => None,
            Self::Status => Some("status"),
        }
    }
}

/// A change to an object, in one of the forms the API server merges itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// JSON merge patch (RFC 7396): null removes.
    Merge(Value),
    /// Strategic merge patch, for lists with a key such as conditions. Built-in kinds only.
    Strategic(Value),
    /// JSON patch (RFC 6902).
    Json(Value),
    /// Server-side apply, for lists with a key such as conditions, of all kinds. What this manager applied before and
    /// does not name any more is removed. `apiVersion` and `kind` are filled in.
    Apply {
        /// Who owns what is applied.
        manager: String,
        /// The fields.
        value: Value,
    },
}

/// What a patch made of the object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Patched {
    /// Version the patch produced; equal to the old one when nothing changed.
    pub resource_version: String,
    /// Identity of the object that was patched.
    pub uid: String,
}

/// A handle on the API server; clones share connections, limits and the Event queue.
#[derive(Clone)]
pub struct Kube {
    inner: Arc<Inner>,
}

struct Inner {
    client: RwLock<(kube::Client, Stamp)>,
    /// `None` when the client was given to us and cannot be rebuilt.
    settings: Option<Settings>,
    writes: Semaphore,
    events: EventQueue,
}

impl Kube {
    /// Reads the credentials and prepares a client. The server is not contacted: a watch says whether it is there.
    ///
    /// Must be called within a tokio runtime.
    pub async fn connect(settings: Settings) -> Result<Self, Error> {
        let stamp = Stamp::of(&settings);
        let client = credentials::client(&settings).await?;
        Ok(Self::assemble(client, stamp, Some(settings.clone()), &settings))
    }

    /// Uses a client made elsewhere, e.g. one whose service is an API server inside this process. Of `settings`
    /// only the Event source and the limits matter.
    pub fn from_client(client: kube::Client, settings: &Settings) -> Self {
        Self::assemble(client, Stamp::default(), None, settings)
    }

    fn assemble(client: kube::Client, stamp: Stamp, rebuild: Option<Settings>, settings: &Settings) -> Self {
        let (events, queue) = EventQueue::new();
        let kube = Self {
            inner: Arc::new(Inner {
                client: RwLock::new((client, stamp)),
                settings: rebuild,
                writes: Semaphore::new(settings.writes_in_flight.max(1)),
                events,
            }),
        };
        event::spawn(Arc::downgrade(&kube.inner).into(), queue, settings);
        kube
    }

    /// Watches a kind for ever. See [`Change`] for what the stream says. Nothing happens until it is polled.
    pub fn watch<T: Object>(&self, scope: Scope) -> Watch<T> {
        crate::watch::start(self.clone(), scope)
    }

    /// Reads one object.
    pub async fn get<T: Object>(&self, namespace: &str, name: &str) -> Result<T, Error> {
        let what = describe("get", &T::RESOURCE, Some(namespace), Some(name), None);
        let body = self
            .call(&what, Method::GET, path(&T::RESOURCE, Some(namespace), Some(name), None), None)
            .await?;
        decode(&what, &body)
    }

    /// Reads all objects of a scope, in pages. Objects that do not decode are left out and logged.
    pub async fn list<T: Object>(&self, scope: &Scope) -> Result<Vec<T>, Error> {
        let (mut objects, mut bad) = (Vec::new(), Vec::new());
        crate::watch::list_pages(self, scope, &mut objects, &mut bad).await?;
        for change in bad {
            if let Change::<T>::Bad { key, error } = change {
                tracing::warn!(kind = T::RESOURCE.kind, object = %key, error, "object left out of the list");
            }
        }
        Ok(objects)
    }

    /// Sets (`Some`) and removes (`None`) annotations in one merge patch on the status subresource. With a uid in
    /// the key the server refuses (as [`Conflict`](crate::Class::Conflict)) to touch a later object of the name.
    pub async fn annotate<T: Object>(
        &self,
        key: &ObjectKey,
        annotations: &[(&str, Option<&str>)],
    ) -> Result<Patched, Error> {
        let values: Map<String, Value> =
            annotations.iter().map(|(name, value)| ((*name).to_string(), json!(value))).collect();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": values } }));
        self.patch::<T>(key, Subresource::Status, patch).await
    }

    /// Sends a patch, guarded by the uid of the key when it has one.
    pub async fn patch<T: Object>(
        &self,
        key: &ObjectKey,
        subresource: Subresource,
        patch: Patch,
    ) -> Result<Patched, Error> {
        let mut by = None;
        let (mut body, content_type) = match patch {
            Patch::Merge(value) => (value, "application/merge-patch+json"),
            Patch::Strategic(value) => (value, "application/strategic-merge-patch+json"),
            Patch::Json(value) => (value, "application/json-patch+json"),
            Patch::Apply { manager, mut value } => {
                value["apiVersion"] = T::RESOURCE.api_version().into();
                value["kind"] = T::RESOURCE.kind.into();
                value["metadata"]["name"] = key.name.clone().into();
                by = Some(manager);
                (value, "application/apply-patch+yaml")
            }
        };
        if !key.uid.is_empty() {
            guard(&mut body, &key.uid);
        }
        let sub = subresource.name();
        let what = describe("patch", &T::RESOURCE, Some(&key.namespace), Some(&key.name), sub);
        let mut path = path(&T::RESOURCE, Some(&key.namespace), Some(&key.name), sub);
        if let Some(manager) = by {
            query(&mut path, "fieldManager", &manager);
            query(&mut path, "force", "true");
        }
        let reply =
            self.call(&what, Method::PATCH, path, Some((content_type, encode(&what, &body)?))).await?;
        patched(&what, &reply)
    }

    /// Creates an object given as JSON (`apiVersion` and `kind` included).
    pub async fn create(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        object: &impl Serialize,
    ) -> Result<Patched, Error> {
        let what = describe("create", resource, namespace, None, None);
        let body = encode(&what, object)?;
        let reply = self
            .call(
                &what,
                Method::POST,
                path(resource, namespace, None, None),
                Some(("application/json", body)),
            )
            .await?;
        patched(&what, &reply)
    }

    /// Deletes an object, if it is still the one the key names. Deletion may be graceful: the object is gone when a
    /// watch says so.
    pub async fn delete<T: Object>(&self, key: &ObjectKey) -> Result<(), Error> {
        let what = describe("delete", &T::RESOURCE, Some(&key.namespace), Some(&key.name), None);
        let mut options = json!({ "kind": "DeleteOptions", "apiVersion": "v1" });
        if !key.uid.is_empty() {
            options["preconditions"] = json!({ "uid": key.uid });
        }
        let path = path(&T::RESOURCE, Some(&key.namespace), Some(&key.name), None);
        let body = encode(&what, &options)?;
        self.call(&what, Method::DELETE, path, Some(("application/json", body))).await.map(drop)
    }

    /// Records an Event on an object: never waits, never fails. Repetitions raise the count of the first one;
    /// too many on one object, or more than the queue holds, are dropped and counted.
    pub fn event(
        &self,
        object: ObjectRef,
        severity: Severity,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.inner.events.push(event::Report { object, severity, reason, message: message.into() });
    }

    /// How many Events were written, dropped and failed so far.
    pub fn event_counters(&self) -> EventCounters {
        self.inner.events.counters()
    }

    /// Opens a watch.
    pub(crate) async fn open(&self, what: &str, path: String) -> Result<Lines, Error> {
        self.refresh().await;
        let request = request(what, Method::GET, &path, None)?;
        let response = self.send(what, request).await?;
        Ok(Lines::new(response.into_body()))
    }

    /// Sends one request and reads the whole reply.
    pub(crate) async fn call(
        &self,
        what: &str,
        method: Method,
        path: String,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Bytes, Error> {
        // acquire fails only on a closed semaphore, and this one is never closed
        let _permit = match method {
            Method::GET => None,
            _ => self.inner.writes.acquire().await.ok(),
        };
        let request = request(what, method, &path, body)?;
        let exchange = async {
            let response = self.send(what, request).await?;
            response.into_body().collect_bytes().await.map_err(|error| Error::transport(what, &error))
        };
        let result = tokio::time::timeout(REQUEST_LIMIT, exchange).await.unwrap_or_else(|_| {
            let message = format!("no answer within {} s", REQUEST_LIMIT.as_secs());
            Err(Error::Transport { what: what.to_string(), message })
        });
        if result.as_ref().err().and_then(Error::code) == Some(401) {
            self.refresh().await;
        }
        result
    }

    async fn send(&self, what: &str, request: Request<Body>) -> Result<http::Response<Body>, Error> {
        let client = self.inner.client.read().await.0.clone();
        let response = client.send(request).await.map_err(|error| Error::transport(what, &error))?;
        let code = response.status().as_u16();
        if code < 400 {
            return Ok(response);
        }
        let body = response.into_body().collect_bytes().await.unwrap_or_default();
        Err(status_error(what, code, &body))
    }

    /// Builds the client anew when a credential file changed; keeps the old one when the new files are unusable.
    async fn refresh(&self) {
        let Some(settings) = &self.inner.settings else { return };
        let stamp = Stamp::of(settings);
        if self.inner.client.read().await.1 == stamp {
            return;
        }
        let mut current = self.inner.client.write().await;
        match credentials::client(settings).await {
            Ok(client) => {
                tracing::info!("credentials changed, API client rebuilt");
                *current = (client, stamp);
            }
            Err(error) => tracing::warn!(%error, "changed credentials are not usable, keeping the old ones"),
        }
    }
}

/// Used by the Event task, which must not keep the handle alive.
pub(crate) struct WeakKube(std::sync::Weak<Inner>);

impl From<std::sync::Weak<Inner>> for WeakKube {
    fn from(inner: std::sync::Weak<Inner>) -> Self {
        Self(inner)
    }
}

impl WeakKube {
    pub(crate) fn upgrade(&self) -> Option<Kube> {
        self.0.upgrade().map(|inner| Kube { inner })
    }
}

fn request(
    what: &str,
    method: Method,
    path: &str,
    body: Option<(&'static str, Vec<u8>)>,
) -> Result<Request<Body>, Error> {
    let mut builder = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, concat!("ovnkube-rs/", env!("CARGO_PKG_VERSION")));
    if let Some((content_type, _)) = &body {
        builder = builder.header(header::CONTENT_TYPE, *content_type);
    }
    let body = body.map_or_else(Body::empty, |(_, bytes)| Body::from(bytes));
    builder.body(body).map_err(|error| Error::Settings(format!("{what}: cannot form a request: {error}")))
}

pub(crate) fn status_error(what: &str, code: u16, body: &[u8]) -> Error {
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        reason: String,
        message: String,
        details: Option<Details>,
    }
    #[derive(Deserialize)]
    struct Details {
        causes: Option<Vec<Cause>>,
    }
    #[derive(Deserialize)]
    struct Cause {
        #[serde(default)]
        field: String,
    }
    let status = serde_json::from_slice::<Status>(body).unwrap_or_else(|_| {
        // proxies and paths that do not exist answer in plain text
        let text = String::from_utf8_lossy(body);
        let message = text.trim().chars().take(200).collect();
        Status { reason: String::new(), message, details: None }
    });
    let causes = status.details.and_then(|details| details.causes).into_iter().flatten();
    Error::Status {
        what: what.to_string(),
        code,
        reason: status.reason,
        message: status.message,
        fields: causes.map(|cause| cause.field).collect(),
    }
}

/// Adds the uid as a precondition, in the form each patch type has for it.
fn guard(patch: &mut Value, uid: &str) {
    match patch {
        Value::Array(operations) => {
            // Not a test: a test that fails is refused without telling what failed.
            operations.insert(0, json!({ "op": "replace", "path": "/metadata/uid", "value": uid }));
        }
        Value::Object(fields) => {
            let meta = fields.entry("metadata").or_insert_with(|| json!({}));
            if let Value::Object(meta) = meta {
                meta.insert("uid".to_string(), json!(uid));
            }
        }
        _ => {}
    }
}

fn encode(what: &str, value: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|error| Error::Settings(format!("{what}: cannot encode: {error}")))
}

fn decode<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error::Transport {
        what: what.to_string(),
        message: format!("the answer does not decode: {error}"),
    })
}

pub(crate) fn patched(what: &str, body: &[u8]) -> Result<Patched, Error> {
    #[derive(Deserialize)]
    struct Reply {
        metadata: Patched,
    }
    decode::<Reply>(what, body).map(|reply| reply.metadata)
}

/// Path of a list or watch with its selectors.
pub(crate) fn scoped_path(resource: &Resource, scope: &Scope) -> String {
    let mut text = path(resource, scope.namespace.as_deref(), None, None);
    if let Some(selector) = &scope.field_selector {
        query(&mut text, "fieldSelector", selector);
    }
    if let Some(selector) = &scope.label_selector {
        query(&mut text, "labelSelector", selector);
    }
    text
}
