//! A watch through everything that happens to watches.

use std::time::Duration;

use devapi::{Failure, Matcher};
use futures::StreamExt;
use kapi::{Node, Object, ObjectKey, Pod};
use kube_io::{Change, Class, Kube, Patch, Scope, Subresource, Watch};
use serde_json::json;

use crate::{connect, server};

/// The next change; a test that waits longer than this fails.
async fn next<T>(watch: &mut Watch<T>) -> Change<T> {
    let next = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
    next.expect("no change came").expect("a watch never ends")
}

async fn add(kube: &Kube, name: &str) -> Node {
    let body = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
    kube.create(&Node::RESOURCE, None, &body).await.unwrap();
    kube.get("", name).await.unwrap()
}

fn names(change: Change<Node>) -> Vec<String> {
    match change {
        Change::Snapshot(nodes) => nodes.into_iter().map(|node| node.metadata.name).collect(),
        other => panic!("{other:?} instead of a snapshot"),
    }
}

#[tokio::test]
async fn nothing_is_missed_when_watches_break() {
    let server = server().await;
    let kube = connect(&server).await;
    let a = add(&kube, "a").await;
    let mut watch = kube.watch::<Node>(Scope::all());
    assert_eq!(names(next(&mut watch).await), ["a"]);
    let b = add(&kube, "b").await;
    assert_eq!(next(&mut watch).await, Change::Applied(b));
    // resumed where it was
    server.faults().drop_watches();
    kube.delete::<Node>(&a.key()).await.unwrap();
    loop {
        match next(&mut watch).await {
            Change::Deleted(key) => {
                assert_eq!(key, a.key());
                break;
            }
            Change::Down { .. } | Change::Unserved | Change::Up => {}
            other => panic!("{other:?}"),
        }
    }
    // too old to resume: everything anew
    server.faults().expire_watches();
    loop {
        match next(&mut watch).await {
            Change::Down { .. } | Change::Unserved | Change::Up => {}
            change => {
                assert_eq!(names(change), ["b"]);
                break;
            }
        }
    }
}

#[tokio::test]
async fn selectors_narrow_the_stream() {
    let server = server().await;
    let kube = connect(&server).await;
    add(&kube, "a").await;
    let b = add(&kube, "b").await;
    let mut watch = kube.watch::<Node>(Scope::all().fields("metadata.name=b"));
    assert_eq!(names(next(&mut watch).await), ["b"]);
    kube.delete::<Node>(&b.key()).await.unwrap();
    assert_eq!(next(&mut watch).await, Change::Deleted(b.key()));
}

#[tokio::test]
async fn patches_hit_only_the_object_that_was_meant() {
    let server = server().await;
    let kube = connect(&server).await;
    let node = add(&kube, "a").await;
    kube.annotate::<Node>(&node.key(), &[("k8s.ovn.org/x", Some("1")), ("none", None)]).await.unwrap();
    assert_eq!(kube.get::<Node>("", "a").await.unwrap().metadata.annotation("k8s.ovn.org/x"), Some("1"));
    let earlier = ObjectKey { uid: "11111111-2222-4333-8444-555555555555".into(), ..node.key() };
    let error = kube.annotate::<Node>(&earlier, &[("k8s.ovn.org/x", Some("2"))]).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict, "{error}");
    for patch in [
        Patch::Strategic(json!({ "metadata": { "annotations": { "a": "b" } } })),
        Patch::Json(json!([{ "op": "add", "path": "/metadata/annotations/a", "value": "b" }])),
    ] {
        let error = kube.patch::<Node>(&earlier, Subresource::Status, patch).await.unwrap_err();
        assert_eq!(error.class(), Class::Conflict, "{error}");
    }
    assert_eq!(kube.get::<Node>("", "a").await.unwrap().metadata.annotation("a"), None);
    let error = kube.delete::<Node>(&earlier).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict, "{error}");
    let missing = ObjectKey { namespace: "default".into(), name: "nope".into(), uid: String::new() };
    let error = kube.annotate::<Pod>(&missing, &[("a", Some("b"))]).await.unwrap_err();
    assert_eq!(error.class(), Class::NotFound);
    server.faults().fail_next(Matcher::any().verb("patch"), 1, Failure::TooManyRequests);
    let error = kube.annotate::<Node>(&node.key(), &[("a", Some("b"))]).await.unwrap_err();
    assert_eq!(error.class(), Class::Transient);
}
