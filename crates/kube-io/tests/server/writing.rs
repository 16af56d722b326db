//! Patches and Events against a server played by the test. Time is simulated.

use crate::fake;
use kapi::{Node, ObjectKey, Pod};
use kube_io::{Class, EventCounters, ObjectRef, Patch, Scope, Severity, Subresource};
use serde_json::json;

fn key(namespace: &str, name: &str, uid: &str) -> ObjectKey {
    ObjectKey { namespace: namespace.into(), name: name.into(), uid: uid.into() }
}

#[tokio::test(start_paused = true)]
async fn annotations_are_a_guarded_merge_patch_of_the_status() {
    let (kube, mut server) = fake::start();
    let key = key("ns", "p", "u1");
    let annotations = [("a/b", Some("v")), ("gone", None)];
    let player = async {
        let call = server.next().await;
        assert_eq!(
            (call.method.as_str(), call.path.as_str()),
            ("PATCH", "/api/v1/namespaces/ns/pods/p/status")
        );
        assert_eq!(call.content_type, "application/merge-patch+json");
        assert_eq!(
            call.body,
            json!({ "metadata": { "uid": "u1", "annotations": { "a/b": "v", "gone": null } } })
        );
        call.answer(200, &json!({ "metadata": { "name": "p", "resourceVersion": "8", "uid": "u1" } }));
    };
    let ((), done) = tokio::join!(player, kube.annotate::<Pod>(&key, &annotations));
    assert_eq!(done.unwrap().resource_version, "8");
}

#[tokio::test(start_paused = true)]
async fn json_patches_are_guarded_too() {
    let (kube, mut server) = fake::start();
    let key = key("", "n", "u1");
    let patch = Patch::Json(json!([{ "op": "remove", "path": "/spec/x" }]));
    let player = async {
        let call = server.next().await;
        assert_eq!(
            (call.path.as_str(), call.content_type.as_str()),
            ("/api/v1/nodes/n", "application/json-patch+json")
        );
        assert_eq!(call.body[0], json!({ "op": "replace", "path": "/metadata/uid", "value": "u1" }));
        call.answer(200, &json!({ "metadata": {} }));
    };
    let ((), done) = tokio::join!(player, kube.patch::<Node>(&key, Subresource::Main, patch));
    assert!(done.is_ok());
}

#[tokio::test(start_paused = true)]
async fn errors_are_classified_and_name_what_was_tried() {
    let (kube, mut server) = fake::start();
    let key = key("ns", "p", "u");
    for (code, reason, class) in [
        (409, "Conflict", Class::Conflict),
        (404, "NotFound", Class::NotFound),
        (422, "Invalid", Class::Rejected),
        (429, "TooManyRequests", Class::Transient),
    ] {
        let player = async { server.next().await.refuse(code, reason, "because") };
        let ((), done) = tokio::join!(player, kube.annotate::<Pod>(&key, &[("a", None)]));
        let error = done.unwrap_err();
        assert_eq!(error.class(), class);
        let expected = format!("patch pods ns/p (status): the API server answered {code} {reason}: because");
        assert_eq!(error.to_string(), expected);
    }
    // answers that never come, and connections that break
    let player = async { server.next().await };
    let (unanswered, done) = tokio::join!(player, kube.get::<Node>("", "n"));
    assert!(done.unwrap_err().to_string().contains("no answer within 30 s"));
    drop(unanswered);
    let player = async { drop(server.next().await) };
    let scope = Scope::all();
    let ((), done) = tokio::join!(player, kube.list::<Node>(&scope));
    let error = done.unwrap_err();
    assert!(error.class() == Class::Transient && error.to_string().contains("connection reset"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn many_patches_are_in_flight_at_once_but_not_all() {
    let (kube, mut server) = fake::start();
    let mut patches = tokio::task::JoinSet::new();
    for i in 0..100 {
        let (kube, key) = (kube.clone(), key("ns", &format!("p{i}"), ""));
        patches.spawn(async move { kube.annotate::<Pod>(&key, &[("a", Some("b"))]).await.map(drop) });
    }
    let mut waiting = Vec::new();
    for _ in 0..64 {
        waiting.push(server.next().await);
    }
    let more = tokio::time::timeout(std::time::Duration::from_secs(1), server.next()).await;
    assert!(more.is_err(), "more than 64 writes in flight");
    for _ in 0..100 {
        let call = match waiting.pop() {
            Some(call) => call,
            None => server.next().await,
        };
        call.answer(200, &json!({ "metadata": {} }));
    }
    while let Some(done) = patches.join_next().await {
        done.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_created_once_and_then_counted_up() {
    let (kube, mut server) = fake::start();
    let object = ObjectRef::from_key::<Node>(&key("", "n1", "u1"));
    for _ in 0..2 {
        kube.event(object.clone(), Severity::Warning, "Broken", "it is broken");
    }
    let call = server.next().await;
    assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", "/api/v1/namespaces/default/events"));
    assert_eq!(
        call.body["involvedObject"],
        json!({
            "apiVersion": "v1", "kind": "Node", "namespace": "", "name": "n1", "uid": "u1",
        })
    );
    assert_eq!((&call.body["reason"], &call.body["type"]), (&json!("Broken"), &json!("Warning")));
    assert_eq!((&call.body["count"], &call.body["source"]["component"]), (&json!(1), &json!("tester")));
    let name = call.body["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("n1."), "{name}");
    // a busy server is asked again
    call.refuse(500, "InternalError", "etcd");
    server.next().await.answer(201, &json!({ "metadata": {} }));
    let call = server.next().await;
    assert_eq!(call.method, "PATCH");
    assert!(call.path.starts_with("/api/v1/namespaces/default/events/n1."), "{}", call.path);
    assert_eq!(call.body["count"], json!(2));
    // it has expired meanwhile: a new one
    call.refuse(404, "NotFound", "gone");
    let call = server.next().await;
    assert_eq!(call.method, "POST");
    call.refuse(403, "Forbidden", "namespace is terminating");
    // refused for good: on to the next
    kube.event(object, Severity::Normal, "Fixed", "it works");
    server.next().await.answer(201, &json!({ "metadata": {} }));
    let expected = EventCounters { written: 2, dropped: 0, failed: 1 };
    for _ in 0..1000 {
        if kube.event_counters() == expected {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{:?}", kube.event_counters());
}
