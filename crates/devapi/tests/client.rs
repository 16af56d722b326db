//! kube's client and watcher against the embedded API.

use std::{net::TcpListener, time::Duration};

use devapi::{Failure, Matcher, Options, Server};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::json;

async fn start(change: impl FnOnce(&mut Options)) -> (Server, Client) {
    let mut options = Options::new(TcpListener::bind("127.0.0.1:0").expect("a port"));
    change(&mut options);
    let server = Server::start(options).await.expect("server");
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).expect("kubeconfig");
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("config");
    (server, Client::try_from(config).expect("client"))
}

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": name},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}))
    .expect("a pod")
}

fn map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": value}})).expect("a map")
}

async fn next<T>(stream: &mut (impl Stream<Item = T> + Unpin)) -> T {
    tokio::time::timeout(Duration::from_secs(30), stream.next())
        .await
        .expect("within 30 s")
        .expect("not ended")
}

fn code(error: kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("not an API error: {other}"),
    }
}

#[tokio::test]
async fn plain_http_and_tokens() {
    let (server, client) = start(|o| {
        o.tls = None;
        o.tokens = None;
    })
    .await;
    assert!(server.url().starts_with("http://"));
    assert_eq!(client.apiserver_version().await.expect("version").minor, "36");
    let names: Vec<String> = Api::<Namespace>::all(client)
        .list(&ListParams::default())
        .await
        .expect("list")
        .iter()
        .map(|n| n.name_any())
        .collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    server.stop().await;

    let (server, _) = start(|_| {}).await;
    let wrong = server.kubeconfig().replace(server.token(), "wrong");
    let config = Kubeconfig::from_yaml(&wrong).expect("kubeconfig");
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("config");
    let nodes: Api<Node> = Api::all(Client::try_from(config).expect("client"));
    assert_eq!(code(nodes.list(&ListParams::default()).await.expect_err("refused")), 401);
}

#[tokio::test]
async fn conflicts_and_preconditions() {
    let (_server, client) = start(|_| {}).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let first = maps.create(&PostParams::default(), &map("m", "1")).await.expect("created");
    assert_eq!(code(maps.create(&PostParams::default(), &map("m", "1")).await.expect_err("exists")), 409);
    let mut newer = first.clone();
    newer.data.get_or_insert_default().insert("a".into(), "2".into());
    let second = maps.replace("m", &PostParams::default(), &newer).await.expect("replaced");
    assert_ne!(first.resource_version(), second.resource_version());
    let error = maps.replace("m", &PostParams::default(), &newer).await.expect_err("stale");
    assert!(error.to_string().contains("the object has been modified; please apply your changes"), "{error}");
    assert_eq!(code(error), 409);
    // A write that changes nothing makes no new version.
    let same = maps.replace("m", &PostParams::default(), &second).await.expect("same");
    assert_eq!(same.resource_version(), second.resource_version());
    let uid = json!({"metadata": {"uid": "00000000-0000-4000-8000-000000000000", "annotations": {"a": "b"}}});
    let refused = maps.patch("m", &PatchParams::default(), &Patch::Merge(&uid)).await;
    // What a patch says is no precondition but a change.
    assert_eq!(code(refused.expect_err("another object")), 422);
    let other = Preconditions { uid: Some("other".into()), resource_version: None };
    let refused =
        maps.delete("m", &DeleteParams { preconditions: Some(other), ..DeleteParams::default() }).await;
    assert_eq!(code(refused.expect_err("another object")), 409);
    maps.delete("m", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(code(maps.get("m").await.expect_err("gone")), 404);
}

#[tokio::test]
async fn status_patches_carry_annotations_but_no_spec() {
    let (_server, client) = start(|_| {}).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &pod("p")).await.expect("created");
    let patch = json!({"metadata": {"annotations": {"k8s.ovn.org/x": "y"}}, "spec": {"nodeName": "z"},
        "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}});
    let patched =
        pods.patch_status("p", &PatchParams::default(), &Patch::Strategic(&patch)).await.expect("patched");
    assert_eq!(patched.annotations()["k8s.ovn.org/x"], "y");
    assert_eq!(patched.spec.and_then(|s| s.node_name).as_deref(), Some("n1"));
    assert_eq!(patched.status.and_then(|s| s.pod_ip).as_deref(), Some("10.0.0.1"));
    let patch = json!({"status": {"podIP": "10.0.0.2"}});
    let patched = pods.patch("p", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    assert_eq!(patched.status.and_then(|s| s.pod_ip).as_deref(), Some("10.0.0.1"));
}

#[tokio::test]
async fn graceful_deletion_and_finalizers() {
    let (_server, client) = start(|_| {}).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &pod("p")).await.expect("created");
    let marked =
        pods.delete("p", &DeleteParams::default()).await.expect("marked").left().expect("still there");
    assert_eq!(marked.metadata.deletion_grace_period_seconds, Some(30));
    assert!(marked.metadata.deletion_timestamp.is_some());
    pods.delete("p", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
        .await
        .expect("gone");
    assert_eq!(code(pods.get("p").await.expect_err("gone")), 404);

    let mut unbound = pod("q");
    unbound.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    unbound.spec.as_mut().expect("spec").node_name = None;
    pods.create(&PostParams::default(), &unbound).await.expect("created");
    pods.delete("q", &DeleteParams::default()).await.expect("waits");
    let waiting = pods.get("q").await.expect("held by its finalizer");
    assert_eq!(waiting.metadata.deletion_grace_period_seconds, Some(0));
    let another = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/late"]}});
    let refused =
        pods.patch("q", &PatchParams::default(), &Patch::Merge(&another)).await.expect_err("too late");
    assert_eq!(code(refused), 422);
    let none = json!({"metadata": {"finalizers": null}});
    pods.patch("q", &PatchParams::default(), &Patch::Merge(&none)).await.expect("released");
    assert_eq!(code(pods.get("q").await.expect_err("gone")), 404);
}

#[tokio::test]
async fn applying() {
    let (_server, client) = start(|_| {}).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let body = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value}});
    let created =
        maps.patch("m", &PatchParams::apply("one"), &Patch::Apply(body("1"))).await.expect("created");
    assert_eq!(created.managed_fields()[0].manager.as_deref(), Some("one"));
    let refused =
        maps.patch("m", &PatchParams::apply("two"), &Patch::Apply(body("2"))).await.expect_err("owned");
    assert!(refused.to_string().contains("conflict with \"one\""), "{refused}");
    let taken =
        maps.patch("m", &PatchParams::apply("two").force(), &Patch::Apply(body("2"))).await.expect("forced");
    assert_eq!(taken.data.expect("data")["a"], "2");
}

#[tokio::test]
async fn watcher_with_lists_survives_loss_and_410() {
    let (server, client) = start(|_| {}).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    pods.create(&PostParams::default(), &pod("a")).await.expect("created");
    let mut events = Box::pin(watcher(pods.clone(), watcher::Config::default()));
    assert!(matches!(next(&mut events).await, Ok(Event::Init)));
    assert!(matches!(next(&mut events).await, Ok(Event::InitApply(p)) if p.name_any() == "a"));
    assert!(matches!(next(&mut events).await, Ok(Event::InitDone)));
    pods.create(&PostParams::default(), &pod("b")).await.expect("created");
    assert!(matches!(next(&mut events).await, Ok(Event::Apply(p)) if p.name_any() == "b"));

    // A lost watch resumes where it was: no new list.
    server.faults().drop_watches();
    pods.create(&PostParams::default(), &pod("c")).await.expect("created");
    assert!(matches!(next(&mut events).await, Ok(Event::Apply(p)) if p.name_any() == "c"));

    // An expired one lists again.
    server.faults().expire_watches();
    let mut relisted = false;
    for _ in 0..20 {
        match next(&mut events).await {
            Ok(Event::InitDone) => {
                relisted = true;
                break;
            }
            Ok(Event::Init | Event::InitApply(_)) | Err(_) => {}
            Ok(other) => panic!("{other:?}"),
        }
    }
    assert!(relisted);
    server.store().delete("pods", "default", "b", true).expect("deleted");
    assert!(matches!(next(&mut events).await, Ok(Event::Delete(p)) if p.name_any() == "b"));
}

#[tokio::test]
async fn watcher_with_streaming_lists() {
    let (_server, client) = start(|_| {}).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    for name in ["a", "b"] {
        pods.create(&PostParams::default(), &pod(name)).await.expect("created");
    }
    let mut events = Box::pin(watcher(pods.clone(), watcher::Config::default().streaming_lists()));
    assert!(matches!(next(&mut events).await, Ok(Event::Init)));
    for name in ["a", "b"] {
        assert!(matches!(next(&mut events).await, Ok(Event::InitApply(p)) if p.name_any() == name));
    }
    assert!(matches!(next(&mut events).await, Ok(Event::InitDone)));
    pods.create(&PostParams::default(), &pod("c")).await.expect("created");
    assert!(matches!(next(&mut events).await, Ok(Event::Apply(p)) if p.name_any() == "c"));
}

#[tokio::test]
async fn selections_change_with_their_objects() {
    let (_server, client) = start(|_| {}).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let selected = WatchParams::default().labels("app=web").timeout(60);
    let rv =
        pods.list(&ListParams::default()).await.expect("list").metadata.resource_version.expect("version");
    let mut events = pods.watch(&selected, &rv).await.expect("watch").boxed();
    pods.create(&PostParams::default(), &pod("p")).await.expect("created");
    let label = |value: Option<&str>| json!({"metadata": {"labels": {"app": value}}});
    for value in [Some("web"), None] {
        pods.patch("p", &PatchParams::default(), &Patch::Merge(label(value))).await.expect("patched");
    }
    assert!(matches!(next(&mut events).await, Ok(WatchEvent::Added(p)) if p.name_any() == "p"));
    assert!(matches!(next(&mut events).await, Ok(WatchEvent::Deleted(p)) if p.labels()["app"] == "web"));
}

#[tokio::test]
async fn a_timed_watch_ends_with_a_bookmark() {
    let (_server, client) = start(|_| {}).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut events = pods.watch(&WatchParams::default().timeout(1), "0").await.expect("watch").boxed();
    assert!(
        matches!(next(&mut events).await, Ok(WatchEvent::Bookmark(b)) if b.metadata.resource_version != "0")
    );
    let end = tokio::time::timeout(Duration::from_secs(30), events.next()).await.expect("ends");
    assert!(end.is_none());
}

#[tokio::test]
async fn too_old_a_version_is_told_in_the_stream() {
    let (server, client) = start(|o| o.history = 4).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &map("m", "0")).await.expect("created");
    let old = maps.get("m").await.expect("map").resource_version().expect("version");
    for n in 0..6 {
        let patch = json!({"data": {"n": n.to_string()}});
        server.store().merge("configmaps", "default", "m", &patch, false).expect("patched");
    }
    let mut events = maps.watch(&WatchParams::default(), &old).await.expect("watch").boxed();
    assert!(matches!(next(&mut events).await, Ok(WatchEvent::Error(e)) if e.code == 410));
}

#[tokio::test]
async fn list_items_leave_out_their_kind() {
    let (_server, client) = start(|_| {}).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &map("m", "1")).await.expect("created");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("p")).await.expect("created");
    for (plural, kind) in [("configmaps", "ConfigMapList"), ("pods", "PodList")] {
        let request = http::Request::get(format!("/api/v1/namespaces/default/{plural}")).body(Vec::new());
        let list: serde_json::Value = client.request(request.expect("request")).await.expect("list");
        assert_eq!((list["kind"].as_str(), list["items"].as_array().map(Vec::len)), (Some(kind), Some(1)));
        assert!(list["items"][0]["kind"].is_null() && list["items"][0]["apiVersion"].is_null(), "{list}");
        assert!(list["items"][0]["metadata"]["uid"].is_string());
    }
}

#[tokio::test]
async fn pages_show_one_state() {
    let (server, client) = start(|_| {}).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["a", "b", "c", "d"] {
        maps.create(&PostParams::default(), &map(name, "1")).await.expect("created");
    }
    let first = maps.list(&ListParams::default().limit(2)).await.expect("page");
    assert_eq!(first.metadata.remaining_item_count, Some(2));
    server.store().delete("configmaps", "default", "d", true).expect("deleted");
    maps.create(&PostParams::default(), &map("e", "1")).await.expect("created");
    let token = first.metadata.continue_.clone().expect("more");
    let second = maps.list(&ListParams::default().limit(5).continue_token(&token)).await.expect("page");
    let names: Vec<String> = second.iter().map(|m| m.name_any()).collect();
    assert_eq!(names, ["c", "d"]);
    server.faults().expire_watches();
    let late = maps.list(&ListParams::default().limit(5).continue_token(&token)).await.expect_err("expired");
    assert_eq!(code(late), 410);
}

#[tokio::test]
async fn faults() {
    let (server, client) = start(|_| {}).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for (failure, want) in [(Failure::Conflict, 409), (Failure::Internal, 500), (Failure::Gone, 410)] {
        server.faults().fail_next(Matcher::any().verb("create").resource("configmaps"), 1, failure);
        maps.list(&ListParams::default()).await.expect("other verbs work");
        assert_eq!(
            code(maps.create(&PostParams::default(), &map("m", "1")).await.expect_err("told to fail")),
            want
        );
    }
    assert_eq!(server.faults().pending(), 0);
    // The client itself tries these again.
    for failure in [Failure::TooManyRequests, Failure::Unavailable] {
        server.faults().fail_next(Matcher::any().verb("list"), 1, failure);
        maps.list(&ListParams::default()).await.expect("second try");
        assert_eq!(server.faults().pending(), 0);
    }
    maps.create(&PostParams::default(), &map("m", "1")).await.expect("no more faults");

    server.faults().pause();
    let mut waiting = Box::pin(maps.get("m"));
    // Polled once so that the request is under way; it cannot finish while the server is paused.
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut waiting).await.is_err());
    server.faults().resume();
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("within 30 s").expect("goes on");
}

#[tokio::test]
async fn scheduling_and_binding() {
    let (server, client) = start(|o| o.schedule = true).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut unbound = pod("p");
    unbound.spec.as_mut().expect("spec").node_name = None;
    pods.create(&PostParams::default(), &unbound).await.expect("created");
    let mut events = Box::pin(watcher(pods.clone(), watcher::Config::default()));
    for (name, status) in [("tired", "False"), ("fresh", "True")] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": status}]}});
        server.store().create(node).expect("node");
    }
    let node = loop {
        if let Ok(Event::Apply(p) | Event::InitApply(p)) = next(&mut events).await
            && let Some(node) = p.spec.and_then(|s| s.node_name)
        {
            break node;
        }
    };
    assert_eq!(node, "fresh");
}
