//! An API server played by the test: it sees each request and decides the answer.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Frame;
use kube::client::Body;
use kube_io::{Kube, Settings};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

type Reply = Response<BoxBody<Bytes, std::io::Error>>;

pub(crate) struct Fake {
    calls: mpsc::UnboundedReceiver<(Request<Body>, oneshot::Sender<Reply>)>,
}

/// One request waiting for its answer.
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Vec<String>,
    pub(crate) content_type: String,
    pub(crate) body: Value,
    reply: oneshot::Sender<Reply>,
}

/// An open watch.
pub(crate) struct Stream(mpsc::UnboundedSender<Result<Frame<Bytes>, std::io::Error>>);

pub(crate) fn start() -> (Kube, Fake) {
    let (sender, calls) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let sender = sender.clone();
        async move {
            let (reply, answer) = oneshot::channel();
            if sender.send((request, reply)).is_err() {
                return Err(std::io::Error::other("connection refused"));
            }
            answer.await.map_err(|_| std::io::Error::other("connection reset"))
        }
    });
    let client = kube::Client::new(service, "default");
    let settings = Settings { component: "tester".into(), ..Settings::default() };
    (Kube::from_client(client, &settings), Fake { calls })
}

impl Fake {
    /// The next request; fails the test when none comes.
    pub(crate) async fn next(&mut self) -> Call {
        let next = tokio::time::timeout(Duration::from_secs(600), self.calls.recv()).await;
        let (request, reply) = next.expect("no request came").expect("the client is gone");
        let (parts, body) = request.into_parts();
        let body = body.collect().await.expect("request body").to_bytes();
        let content_type =
            parts.headers.get("content-type").map(|value| value.to_str().unwrap_or_default().to_owned());
        Call {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().split('&').map(str::to_owned).collect(),
            content_type: content_type.unwrap_or_default(),
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
            reply,
        }
    }
}

impl Call {
    pub(crate) fn has(&self, pair: &str) -> bool {
        self.query.iter().any(|other| other == pair)
    }

    pub(crate) fn answer(self, code: u16, body: &Value) {
        self.answer_text(code, &body.to_string());
    }

    pub(crate) fn answer_text(self, code: u16, body: &str) {
        let body =
            Full::new(Bytes::from(body.to_owned())).map_err(|never: Infallible| match never {}).boxed();
        send(self.reply, code, body);
    }

    /// Answers with the error the API server sends for this code and reason.
    pub(crate) fn refuse(self, code: u16, reason: &str, message: &str) {
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "reason": reason, "message": message, "code": code,
        });
        self.answer(code, &status);
    }

    /// Answers 200 and keeps the body open.
    pub(crate) fn stream(self) -> Stream {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let frames = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
        send(self.reply, 200, BodyExt::boxed(StreamBody::new(frames)));
        Stream(sender)
    }
}

fn send(reply: oneshot::Sender<Reply>, code: u16, body: BoxBody<Bytes, std::io::Error>) {
    let response = Response::builder().status(code).body(body).expect("a response");
    assert!(reply.send(response).is_ok(), "the client gave up");
}

impl Stream {
    pub(crate) fn event(&self, kind: &str, object: Value) {
        let line = format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
        // in two pieces: lines do not arrive whole
        let (head, tail) = line.split_at(line.len() / 2);
        for piece in [head, tail] {
            self.0.send(Ok(Frame::data(Bytes::from(piece.to_owned())))).expect("the client closed the watch");
        }
    }

    pub(crate) fn bookmark(&self, version: &str, ends_initial: bool) {
        let mut meta = serde_json::json!({ "resourceVersion": version });
        if ends_initial {
            meta["annotations"] = serde_json::json!({ "k8s.io/initial-events-end": "true" });
        }
        self.event("BOOKMARK", serde_json::json!({ "kind": "Node", "apiVersion": "v1", "metadata": meta }));
    }

    pub(crate) fn break_off(self) {
        self.0.send(Err(std::io::Error::other("connection reset"))).expect("the client closed the watch");
    }
}
