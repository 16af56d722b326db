//! An API server with one Node and some pods: as much as the agent sees of a real one.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube_io::Kube;
use serde_json::{Value, json};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The server; clones are the same server.
#[derive(Clone, Default)]
pub(crate) struct Api {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    version: u64,
    node: Option<Value>,
    others: Vec<Value>,
    watchers: Vec<mpsc::UnboundedSender<Bytes>>,
    /// Services and EndpointSlices, and who watches them.
    served: Vec<Value>,
    serving: Vec<(&'static str, mpsc::UnboundedSender<Bytes>)>,
    events: Vec<Value>,
    patches: Vec<Value>,
    refuse_chassis_id: bool,
}

impl Api {
    /// A client of this server. Needs a tokio runtime.
    pub(crate) fn kube(&self) -> Kube {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        let client = kube::Client::new(service, "default");
        Kube::from_client(client, &kube_io::Settings::default())
    }

    /// Registers the Node, as a kubelet would, or replaces it.
    pub(crate) fn register(&self, uid: &str, internal_ip: &str, annotations: Value) {
        self.change("ADDED", |inner| {
            inner.node = Some(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": "node1", "uid": uid, "annotations": annotations },
                "spec": {}, "status": { "addresses": [{ "type": "InternalIP", "address": internal_ip }] },
            }));
        });
    }

    /// Registers another node.
    pub(crate) fn register_other(&self, name: &str, internal_ip: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.version += 1;
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "uid": name, "resourceVersion": inner.version.to_string() },
            "spec": {}, "status": { "addresses": [{ "type": "InternalIP", "address": internal_ip }] },
        });
        inner.send(&json!({ "type": "ADDED", "object": node }));
        inner.others.push(node);
    }

    /// Sets an annotation, as the cluster manager would.
    pub(crate) fn annotate(&self, key: &str, value: &str) {
        self.change("MODIFIED", |inner| {
            if let Some(node) = &mut inner.node {
                node["metadata"]["annotations"][key] = json!(value);
            }
        });
    }

    /// Changes the Node's address.
    pub(crate) fn move_to(&self, internal_ip: &str) {
        self.change("MODIFIED", |inner| {
            if let Some(node) = &mut inner.node {
                node["status"]["addresses"][0]["address"] = json!(internal_ip);
            }
        });
    }

    /// A Service or an EndpointSlice appears or changes.
    pub(crate) fn serve(&self, mut object: Value) {
        let mut inner = self.inner.lock().unwrap();
        inner.version += 1;
        object["metadata"]["resourceVersion"] = json!(inner.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", inner.version));
        }
        inner.served.retain(|known| !same(known, &object));
        inner.tell("MODIFIED", &object);
        inner.served.push(object);
    }

    /// It is gone.
    pub(crate) fn withdraw(&self, kind: &str, name: &str) {
        let mut inner = self.inner.lock().unwrap();
        let is_it = |object: &Value| object["kind"] == kind && object["metadata"]["name"] == name;
        let at = inner.served.iter().position(is_it).unwrap();
        let object = inner.served.remove(at);
        inner.tell("DELETED", &object);
    }

    /// Reasons of the Events that were written.
    pub(crate) fn events(&self) -> Vec<String> {
        let inner = self.inner.lock().unwrap();
        inner.events.iter().filter_map(|event| event["reason"].as_str().map(str::to_owned)).collect()
    }

    /// Deletes the Node.
    pub(crate) fn delete(&self) {
        let node = self.inner.lock().unwrap().node.clone().unwrap();
        self.change("DELETED", |inner| inner.node = None);
        self.inner.lock().unwrap().send(&json!({ "type": "DELETED", "object": node }));
    }

    /// From now on the admission webhook refuses a new chassis id.
    pub(crate) fn refuse_chassis_id(&self) {
        self.inner.lock().unwrap().refuse_chassis_id = true;
    }

    /// The value of an annotation.
    pub(crate) fn annotation(&self, key: &str) -> Option<String> {
        let inner = self.inner.lock().unwrap();
        inner.node.as_ref()?["metadata"]["annotations"][key].as_str().map(str::to_owned)
    }

    /// How many patches were asked for.
    pub(crate) fn patches(&self) -> usize {
        self.inner.lock().unwrap().patches.len()
    }

    fn change(&self, kind: &str, edit: impl FnOnce(&mut Inner)) {
        let mut inner = self.inner.lock().unwrap();
        inner.version += 1;
        edit(&mut inner);
        let version = inner.version.to_string();
        if let Some(node) = &mut inner.node {
            node["metadata"]["resourceVersion"] = json!(version);
            let event = json!({ "type": kind, "object": node });
            inner.send(&event);
        }
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        let body = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
        match (&head.method, path.as_str()) {
            (&Method::GET, "/api/v1/nodes") if query.contains("watch=true") => self.watch(true),
            (&Method::GET, "/api/v1/services") => self.watch_served("Service"),
            (&Method::GET, "/apis/discovery.k8s.io/v1/endpointslices") => self.watch_served("EndpointSlice"),
            (&Method::GET, _) => self.watch(false),
            (&Method::PATCH, "/api/v1/nodes/node1/status") => {
                self.patch(&serde_json::from_slice(&body).unwrap())
            }
            // Events are taken.
            (&Method::POST, _) => {
                let event = serde_json::from_slice(&body).unwrap_or_default();
                self.inner.lock().unwrap().events.push(event);
                reply(StatusCode::CREATED, &json!({ "metadata": { "name": "e", "resourceVersion": "1" } }))
            }
            _ => reply(StatusCode::CREATED, &json!({ "metadata": { "name": "e", "resourceVersion": "1" } })),
        }
    }

    fn watch(&self, nodes: bool) -> Response<Body> {
        let mut inner = self.inner.lock().unwrap();
        let (sender, receiver) = mpsc::unbounded();
        for node in inner.node.iter().chain(&inner.others).filter(|_| nodes) {
            let _ = sender.unbounded_send(line(&json!({ "type": "ADDED", "object": node })));
        }
        let end = json!({ "type": "BOOKMARK", "object": { "metadata": {
            "resourceVersion": inner.version.to_string(), "annotations": { "k8s.io/initial-events-end": "true" } } } });
        let _ = sender.unbounded_send(line(&end));
        let stream = receiver.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
        if nodes {
            inner.watchers.push(sender);
            return Response::new(StreamBody::new(stream).boxed_unsync());
        }
        // A stream of pods stays open and silent.
        let silence = futures::stream::once(async move {
            let _open = sender;
            futures::future::pending().await
        });
        Response::new(StreamBody::new(stream.take(1).chain(silence)).boxed_unsync())
    }

    fn watch_served(&self, kind: &'static str) -> Response<Body> {
        let mut inner = self.inner.lock().unwrap();
        let (sender, receiver) = mpsc::unbounded();
        for object in inner.served.iter().filter(|object| object["kind"] == kind) {
            let _ = sender.unbounded_send(line(&json!({ "type": "ADDED", "object": object })));
        }
        let end = json!({ "type": "BOOKMARK", "object": { "metadata": {
            "resourceVersion": inner.version.to_string(), "annotations": { "k8s.io/initial-events-end": "true" } } } });
        let _ = sender.unbounded_send(line(&end));
        inner.serving.push((kind, sender));
        let stream = receiver.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
        Response::new(StreamBody::new(stream).boxed_unsync())
    }

    fn patch(&self, patch: &Value) -> Response<Body> {
        {
            let mut inner = self.inner.lock().unwrap();
            inner.patches.push(patch.clone());
            let Some(node) = &inner.node else { return failure(StatusCode::NOT_FOUND, "no such node") };
            let guard = &patch["metadata"]["uid"];
            if !guard.is_null() && *guard != node["metadata"]["uid"] {
                return failure(StatusCode::CONFLICT, "another object");
            }
            if inner.refuse_chassis_id
                && !patch["metadata"]["annotations"]["k8s.ovn.org/node-chassis-id"].is_null()
            {
                return failure(StatusCode::FORBIDDEN, "the chassis id must not change");
            }
        }
        self.change("MODIFIED", |inner| {
            let annotations = patch["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            for (key, value) in annotations {
                let Some(all) =
                    inner.node.as_mut().and_then(|n| n["metadata"]["annotations"].as_object_mut())
                else {
                    return;
                };
                if value.is_null() {
                    all.remove(&key);
                } else {
                    all.insert(key, value);
                }
            }
        });
        let node = self.inner.lock().unwrap().node.clone().unwrap_or_default();
        reply(StatusCode::OK, &node)
    }
}

impl Inner {
    fn send(&mut self, event: &Value) {
        self.watchers.retain(|watcher| watcher.unbounded_send(line(event)).is_ok());
    }
}

impl Inner {
    fn tell(&mut self, kind: &str, object: &Value) {
        let event = line(&json!({ "type": kind, "object": object }));
        let concerned = |(of, _): &(&'static str, _)| object["kind"] == *of;
        self.serving.retain(|watcher| !concerned(watcher) || watcher.1.unbounded_send(event.clone()).is_ok());
    }
}

fn same(one: &Value, other: &Value) -> bool {
    one["kind"] == other["kind"] && one["metadata"]["name"] == other["metadata"]["name"]
}

fn line(event: &Value) -> Bytes {
    Bytes::from(format!("{event}\n"))
}

fn reply(status: StatusCode, body: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    Response::builder().status(status).header("content-type", "application/json").body(body).unwrap()
}

fn failure(status: StatusCode, message: &str) -> Response<Body> {
    reply(
        status,
        &json!({ "kind": "Status", "status": "Failure", "message": message, "code": status.as_u16() }),
    )
}
