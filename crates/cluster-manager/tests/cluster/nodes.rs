//! Nodes come, go, and bring annotations along.

use kapi::Node;
use kapi::Object;
use kapi::annotations::{LEGACY_ROUTER_LRP_ADDRESSES, NODE_SUBNETS};
use serde_json::json;

use crate::api::{Api, Running, assigned, plan};

#[tokio::test]
async fn nodes_are_annotated_and_a_restart_writes_nothing() {
    let api = Api::start().await;
    api.add_node("node1", &[]).await;
    let manager = Running::start(&api, "m", plan("10.244.0.0/16", 24)).await;
    let mut nodes = api.nodes();
    let got = nodes.until("node1", |nodes| assigned(nodes, "node1")).await;
    assert_eq!(got, [r#"{"default":["10.244.0.0/24"]}"#, "2", r#"{"ipv4":"100.88.0.2/16"}"#]);
    api.add_node("node2", &[(LEGACY_ROUTER_LRP_ADDRESSES, "{}")]).await;
    let got = nodes.until("node2", |nodes| assigned(nodes, "node2")).await;
    assert_eq!(got, [r#"{"default":["10.244.1.0/24"]}"#, "3", r#"{"ipv4":"100.88.0.3/16"}"#]);
    nodes
        .until("the legacy annotation gone", |nodes| {
            nodes["node2"].meta().annotation(LEGACY_ROUTER_LRP_ADDRESSES).is_none().then_some(())
        })
        .await;
    manager.stop().await;
    let before = nodes.changes;
    let manager = Running::start(&api, "m", plan("10.244.0.0/16", 24)).await;
    // a node added after the restart is served, so the restarted one has looked at all nodes
    api.add_node("node3", &[]).await;
    nodes.until("node3", |nodes| assigned(nodes, "node3")).await;
    assert_eq!(nodes.changes - before, 2, "only node3 was created and annotated");
    manager.stop().await;
}

#[tokio::test]
async fn a_bad_node_gets_an_event_and_is_served_once_fixed() {
    let api = Api::start().await;
    api.add_node("good", &[]).await;
    let manager = Running::start(&api, "m", plan("10.244.0.0/16", 24)).await;
    let (mut nodes, mut events) = (api.nodes(), api.events());
    let good = nodes.until("good", |nodes| assigned(nodes, "good")).await;
    for (value, words) in [
        (r#"{"default":["10.99.0.0/24"]}"#, "10.99.0.0/24 is not inside the cluster CIDRs (10.244.0.0/16)"),
        (&good[0], "subnet 10.244.0.0/24 overlaps 10.244.0.0/24, which belongs to node good"),
        ("{", "not a JSON object"),
    ] {
        let bad = api.add_node("bad", &[(NODE_SUBNETS, value)]).await;
        events
            .until(words, |events| {
                events
                    .values()
                    .any(|event| {
                        event.reason == "ErrorReconcilingNode"
                            && event.involved_object.name == "bad"
                            && event.message.contains(words)
                    })
                    .then_some(())
            })
            .await;
        api.kube.annotate::<Node>(&bad.key(), &[(NODE_SUBNETS, None)]).await.unwrap();
        let got = nodes.until("bad node fixed", |nodes| assigned(nodes, "bad")).await;
        assert_ne!(got[0], good[0]);
        assert_eq!(got[1], "3", "the lowest free id, again and again");
        api.kube.delete::<Node>(&bad.key()).await.unwrap();
        nodes.until("bad gone", |nodes| (!nodes.contains_key("bad")).then_some(())).await;
    }
    assert_eq!(
        nodes.until("good", |nodes| assigned(nodes, "good")).await,
        good,
        "the other node was not touched"
    );
    manager.stop().await;
}

#[tokio::test]
async fn exhaustion_is_told_and_resolves_itself() {
    let api = Api::start().await;
    let first = api.add_node("first", &[]).await;
    let manager = Running::start(&api, "m", plan("10.244.0.0/24", 24)).await;
    let (mut nodes, mut events) = (api.nodes(), api.events());
    nodes.until("first", |nodes| assigned(nodes, "first")).await;
    api.add_node("second", &[]).await;
    events
        .until("the Event", |events| {
            events.values().any(|event| event.message.contains("no free IPv4 node subnet")).then_some(())
        })
        .await;
    api.kube.delete::<Node>(&first.key()).await.unwrap();
    let got = nodes.until("second", |nodes| assigned(nodes, "second")).await;
    assert_eq!(got[0], r#"{"default":["10.244.0.0/24"]}"#);
    manager.stop().await;
}

#[tokio::test]
async fn the_condition_a_cloud_left_is_cleared() {
    let api = Api::start().await;
    let node = api.add_node("node1", &[]).await;
    let conditions = json!([
        { "type": "Ready", "status": "True", "reason": "KubeletReady" },
        { "type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated" },
    ]);
    api.status(&node, json!({ "conditions": conditions })).await;
    let manager = Running::start(&api, "m", plan("10.244.0.0/16", 24)).await;
    let mut nodes = api.nodes();
    nodes
        .until("both conditions", |nodes| {
            let conditions = &nodes.get("node1")?.status.conditions;
            let status = |kind: &str| conditions.iter().find(|c| c.kind == kind).map(|c| c.status.as_str());
            (status("NetworkUnavailable") == Some("False") && status("Ready") == Some("True")).then_some(())
        })
        .await;
    nodes.until("annotations", |nodes| assigned(nodes, "node1")).await;
    manager.stop().await;
}

#[tokio::test]
async fn fifty_nodes_at_once_survive_faults_and_restarts() {
    use devapi::{Failure, Matcher};
    let api = Api::start().await;
    let mut manager = Running::start(&api, "m", plan("10.244.0.0/16", 24)).await;
    let faults = api.server.faults();
    for failure in [Failure::Internal, Failure::Conflict, Failure::Unavailable] {
        faults.fail_next(Matcher::any().verb("patch").resource("nodes"), 5, failure);
    }
    let mut nodes = api.nodes();
    for i in 0..50 {
        api.add_node(&format!("node{i:02}"), &[]).await;
        match i {
            15 => faults.drop_watches(),
            30 => faults.expire_watches(),
            25 => {
                manager.kill().await;
                manager = Running::start(&api, "m", plan("10.244.0.0/16", 24)).await;
            }
            _ => {}
        }
    }
    let all = nodes
        .until("fifty nodes", |nodes| {
            let all: Option<Vec<_>> = (0..50).map(|i| assigned(nodes, &format!("node{i:02}"))).collect();
            all
        })
        .await;
    for at in 0..3 {
        let values: std::collections::BTreeSet<&String> = all.iter().map(|values| &values[at]).collect();
        assert_eq!(values.len(), 50);
    }
    manager.stop().await;
}
