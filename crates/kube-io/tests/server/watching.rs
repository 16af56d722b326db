//! The list-and-watch loop against a server played by the test. Time is simulated.

use crate::fake;
use futures::StreamExt;
use kapi::Node;
use kube_io::{Change, Scope, Watch};
use serde_json::{Value, json};

fn node(name: &str, version: &str) -> Value {
    json!({ "metadata": { "name": name, "uid": format!("u-{name}"), "resourceVersion": version } })
}

fn bad(name: &str, version: &str) -> Value {
    json!({ "metadata": { "name": name, "uid": "u", "resourceVersion": version }, "status": { "addresses": 7 } })
}

/// The change in one line.
async fn next(watch: &mut Watch<Node>) -> String {
    match watch.next().await.expect("a watch never ends") {
        Change::Snapshot(nodes) => {
            let names: Vec<String> = nodes.into_iter().map(|node| node.metadata.name).collect();
            format!("snapshot {}", names.join(","))
        }
        Change::Applied(node) => format!("applied {}", node.metadata.name),
        Change::Deleted(key) => format!("deleted {} {}", key.name, key.uid),
        Change::Bad { key, error } => {
            assert!(error.contains("expected a sequence"), "{error}");
            format!("bad {}", key.name)
        }
        Change::Down { error } => format!("down {error}"),
        Change::Unserved => "unserved".to_owned(),
        Change::Up => "up".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_then_changes_then_a_resume() {
    let (kube, mut server) = fake::start();
    let mut watch = kube.watch::<Node>(Scope::all().labels("a=b"));
    let player = async {
        let call = server.next().await;
        assert_eq!(call.path, "/api/v1/nodes");
        assert!(call.has("sendInitialEvents=true") && call.has("labelSelector=a%3Db"));
        assert!(call.has("resourceVersionMatch=NotOlderThan") && call.has("allowWatchBookmarks=true"));
        let stream = call.stream();
        stream.event("ADDED", node("a", "1"));
        stream.event("ADDED", bad("x", "2"));
        stream.event("ADDED", node("b", "3"));
        stream.bookmark("3", true);
        stream.event("MODIFIED", node("a", "4"));
        stream.event("MODIFIED", bad("b", "5"));
        stream.event("DELETED", bad("b", "6"));
        stream.event("DELETED", node("a", "7"));
        stream.bookmark("9", false);
        drop(stream);
        // the server ended the watch: resume where it was, without a word
        let call = server.next().await;
        assert!(call.has("resourceVersion=9") && !call.has("sendInitialEvents=true"));
        let stream = call.stream();
        stream.event("ADDED", node("c", "11"));
        stream
    };
    let consumer = async {
        let mut seen = Vec::new();
        for _ in 0..7 {
            seen.push(next(&mut watch).await);
        }
        seen
    };
    let (_stream, seen) = tokio::join!(player, consumer);
    assert_eq!(
        seen,
        ["bad x", "snapshot a,b", "applied a", "bad b", "deleted b u", "deleted a u-a", "applied c"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_read_in_pages() {
    let (kube, mut server) = fake::start();
    let mut watch = kube.watch::<Node>(Scope::all());
    let player = async {
        server.next().await.refuse(422, "Invalid", "sendInitialEvents is forbidden");
        let call = server.next().await;
        assert!(call.has("limit=500") && !call.has("watch=true"));
        call.answer(200, &json!({
            "metadata": { "resourceVersion": "5", "continue": "next" }, "items": [node("a", "1"), bad("x", "2")],
        }));
        let call = server.next().await;
        assert!(call.has("continue=next"));
        call.answer(200, &json!({ "metadata": { "resourceVersion": "5" }, "items": [node("b", "3")] }));
        let call = server.next().await;
        assert!(call.has("resourceVersion=5") && call.has("watch=true"));
        let stream = call.stream();
        stream.event("ERROR", json!({ "kind": "Status", "code": 410, "message": "too old" }));
        // and it is not asked for streaming lists again
        let call = server.next().await;
        assert!(call.has("limit=500"));
        call.answer(200, &json!({ "metadata": { "resourceVersion": "9" }, "items": null }));
    };
    let consumer = async { [next(&mut watch).await, next(&mut watch).await, next(&mut watch).await] };
    let ((), seen) = tokio::join!(player, consumer);
    assert_eq!(seen, ["bad x", "snapshot a,b", "snapshot "]);
}

#[tokio::test(start_paused = true)]
async fn outages_are_told_once_and_their_end_too() {
    let (kube, mut server) = fake::start();
    let mut watch = kube.watch::<Node>(Scope::all());
    let player = async {
        server.next().await.refuse(503, "ServiceUnavailable", "starting");
        server.next().await.refuse(503, "ServiceUnavailable", "starting");
        server.next().await.refuse(403, "Forbidden", "nodes is forbidden");
        let stream = server.next().await.stream();
        stream.bookmark("1", true);
        stream.break_off();
        let call = server.next().await;
        assert!(call.has("resourceVersion=1"));
        call.refuse(500, "", "etcd is not ready");
        let stream = server.next().await.stream();
        stream.event("ADDED", node("a", "2"));
        stream
    };
    let consumer = async {
        let mut seen = Vec::new();
        for _ in 0..7 {
            seen.push(next(&mut watch).await);
        }
        seen
    };
    let (_stream, seen) = tokio::join!(player, consumer);
    let starts = [
        "down watch nodes: the API server answered 503 ServiceUnavailable: starting",
        "down watch nodes: the API server answered 403 Forbidden: nodes is forbidden",
        "snapshot ",
        "down watch nodes: ",
        "down watch nodes: the API server answered 500",
        "up",
        "applied a",
    ];
    for (seen, start) in seen.iter().zip(starts) {
        assert!(seen.starts_with(start), "{seen}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_the_server_cannot_serve_leads_to_a_new_list() {
    for (code, message) in
        [(410, "too old resource version"), (504, "Timeout: Too large resource version: 9")]
    {
        let (kube, mut server) = fake::start();
        let mut watch = kube.watch::<Node>(Scope::all());
        let player = async {
            let stream = server.next().await.stream();
            stream.event("ADDED", node("a", "1"));
            stream.bookmark("9", true);
            drop(stream);
            server.next().await.refuse(code, "", message);
            let call = server.next().await;
            assert!(call.has("sendInitialEvents=true"), "{code}");
            let stream = call.stream();
            stream.event("ADDED", node("b", "2"));
            stream.bookmark("3", true);
            stream
        };
        let consumer = async { [next(&mut watch).await, next(&mut watch).await] };
        let (_stream, seen) = tokio::join!(player, consumer);
        assert_eq!(seen, ["snapshot a", "snapshot b"], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_and_garbage_break_the_stream_and_it_comes_back() {
    let (kube, mut server) = fake::start();
    let mut watch = kube.watch::<Node>(Scope::all());
    let player = async {
        let silent = server.next().await.stream();
        silent.bookmark("1", true);
        // nothing more comes: simulated time runs until the client gives up on the connection
        let call = server.next().await;
        assert!(call.has("resourceVersion=1"));
        drop(silent);
        call.answer_text(200, "<html>proxy</html>\n");
        server.next().await.stream()
    };
    let consumer = async {
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(next(&mut watch).await);
        }
        seen
    };
    let (_stream, seen) = tokio::join!(player, consumer);
    assert_eq!(seen[0], "snapshot ");
    assert!(seen[1].contains("silent for"), "{seen:?}");
    assert_eq!(seen[2], "up");
    assert!(seen[3].contains("not a watch event"), "{seen:?}");
    assert_eq!(seen[4], "up");
}

#[tokio::test(start_paused = true)]
async fn a_kind_the_server_does_not_know_is_told_once() {
    let (kube, mut server) = fake::start();
    let mut watch = kube.watch::<Node>(Scope::all());
    let player = async {
        for _ in 0..3 {
            server.next().await.refuse(404, "NotFound", "the server could not find the requested resource");
        }
        let stream = server.next().await.stream();
        stream.event("ADDED", node("a", "1"));
        stream.bookmark("1", true);
        stream
    };
    let consumer = async {
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(next(&mut watch).await);
        }
        seen
    };
    let (_stream, seen) = tokio::join!(player, consumer);
    assert_eq!(seen[0], "unserved");
    assert!(seen[1].starts_with("down "), "{seen:?}");
    assert_eq!(seen[2], "snapshot a");
}
