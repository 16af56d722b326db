//! A scheduler for development: binds pods without a node to Ready nodes in turn, looking at nothing else
//! than readiness, `unschedulable` and the pod's nodeSelector.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    error::ApiError,
    selector::Selector,
    store::{Store, WatchStart},
};

/// Runs until the server stops; a lost watch is opened again.
pub(crate) async fn run(store: Arc<Store>) {
    while let Err(error) = session(&store).await {
        tracing::debug!(%error, "scheduler starts over");
    }
}

async fn session(store: &Arc<Store>) -> Result<(), ApiError> {
    let gone = || ApiError::no_route();
    let pods = store.kind("", "v1", "pods").ok_or_else(gone)?;
    let nodes = store.kind("", "v1", "nodes").ok_or_else(gone)?;
    let unbound = Selector::parse("", "spec.nodeName=", &pods)?;
    let mut pod_watch = store.watch_objects(&pods, "", &unbound, WatchStart::Present)?;
    let mut node_watch = store.watch_objects(&nodes, "", &Selector::default(), WatchStart::Present)?;
    let mut ready: BTreeMap<String, Value> = BTreeMap::new();
    let mut waiting: BTreeMap<(String, String), Value> = BTreeMap::new();
    for node in &node_watch.present {
        note_node(&mut ready, &node.value, false);
    }
    for pod in &pod_watch.present {
        waiting.insert(key(&pod.value), pod.value.clone());
    }
    let mut turn = 0;
    loop {
        place(store, &mut waiting, &ready, &mut turn);
        tokio::select! {
            change = pod_watch.changes.recv() => {
                let Some(change) = change else { return Err(ApiError::internal("pod watch ended")) };
                let bound = change.new.value["spec"]["nodeName"].as_str().is_some_and(|n| !n.is_empty());
                if bound || change.ty == crate::store::ChangeType::Deleted {
                    waiting.remove(&key(&change.new.value));
                } else {
                    waiting.insert(key(&change.new.value), change.new.value.clone());
                }
            }
            change = node_watch.changes.recv() => {
                let Some(change) = change else { return Err(ApiError::internal("node watch ended")) };
                note_node(&mut ready, &change.new.value, change.ty == crate::store::ChangeType::Deleted);
            }
        }
    }
}

fn key(pod: &Value) -> (String, String) {
    let text = |f: &str| pod["metadata"][f].as_str().unwrap_or_default().to_string();
    (text("namespace"), text("name"))
}

fn note_node(ready: &mut BTreeMap<String, Value>, node: &Value, deleted: bool) {
    let name = node["metadata"]["name"].as_str().unwrap_or_default().to_string();
    let conditions = node["status"]["conditions"].as_array();
    let is_ready =
        conditions.into_iter().flatten().any(|c| c["type"] == json!("Ready") && c["status"] == json!("True"));
    if is_ready && !deleted && node["spec"]["unschedulable"] != json!(true) {
        ready.insert(name, node["metadata"]["labels"].clone());
    } else {
        ready.remove(&name);
    }
}

fn place(
    store: &Store,
    waiting: &mut BTreeMap<(String, String), Value>,
    ready: &BTreeMap<String, Value>,
    turn: &mut usize,
) {
    waiting.retain(|(namespace, name), pod| {
        let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|g| !g.is_empty());
        if gated || pod["metadata"].get("deletionTimestamp").is_some() {
            return true;
        }
        let wanted = pod["spec"]["nodeSelector"].as_object();
        let fits = |labels: &Value| wanted.into_iter().flatten().all(|(k, v)| labels.get(k) == Some(v));
        let nodes: Vec<&String> = ready.iter().filter(|(_, labels)| fits(labels)).map(|(n, _)| n).collect();
        if nodes.is_empty() {
            return true;
        }
        let node = nodes[*turn % nodes.len()];
        *turn += 1;
        let uid = json!({"metadata": {"uid": pod["metadata"]["uid"]}});
        if let Err(error) = store.bind(namespace, name, node, &uid) {
            tracing::debug!(%error, pod = %format!("{namespace}/{name}"), "not bound");
        }
        false
    });
}
