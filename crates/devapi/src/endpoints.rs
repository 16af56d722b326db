//! EndpointSlices of Services with a selector, as the control plane of a real cluster makes them: one slice for each
//! family and each set of port numbers that the Service's ports mean on its pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use serde_json::{Map, Value, json};

use crate::{
    error::ApiError,
    selector::Selector,
    store::{Change, ChangeType, DeleteOptions, ListOptions, Store, WatchStart, WriteOptions},
};

/// Label with the name of the Service a slice belongs to.
const SERVICE: &str = "kubernetes.io/service-name";
/// Label with the name of the controller that keeps a slice.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Our name in it, which is that of the real one.
const CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// Endpoints in one slice.
const SLICE: usize = 100;

/// Namespace and name.
type Name = (String, String);

/// Runs until the server stops; a lost watch is opened again.
pub(crate) async fn run(store: Arc<Store>) {
    while let Err(error) = session(&store).await {
        tracing::debug!(%error, "endpoint controller starts over");
    }
}

#[derive(Default)]
struct Tables {
    services: BTreeMap<Name, Value>,
    pods: BTreeMap<Name, Value>,
}

async fn session(store: &Arc<Store>) -> Result<(), ApiError> {
    let (mut services, mut pods) = (watch(store, "services")?, watch(store, "pods")?);
    let mut tables = Tables::default();
    for service in &services.present {
        tables.services.insert(name(&service.value), service.value.clone());
    }
    for pod in &pods.present {
        tables.pods.insert(name(&pod.value), pod.value.clone());
    }
    let mut dirty: BTreeSet<Name> = tables.services.keys().cloned().collect();
    loop {
        for key in std::mem::take(&mut dirty) {
            sync(store, &tables, &key)?;
        }
        tokio::select! {
            change = services.changes.recv() => {
                let change = change.ok_or_else(|| ApiError::internal("service watch ended"))?;
                dirty.insert(name(&change.new.value));
                note(&mut tables.services, &change);
            }
            change = pods.changes.recv() => {
                let change = change.ok_or_else(|| ApiError::internal("pod watch ended"))?;
                let (namespace, _) = name(&change.new.value);
                note(&mut tables.pods, &change);
                dirty.extend(tables.services.keys().filter(|(of, _)| *of == namespace).cloned());
            }
        }
    }
}

fn watch(store: &Arc<Store>, plural: &str) -> Result<crate::store::Subscription, ApiError> {
    let kind = store.kind("", "v1", plural).ok_or_else(ApiError::no_route)?;
    store.watch_objects(&kind, "", &Selector::default(), WatchStart::Present)
}

fn note(table: &mut BTreeMap<Name, Value>, change: &Change) {
    let key = name(&change.new.value);
    if change.ty == ChangeType::Deleted {
        table.remove(&key);
    } else {
        table.insert(key, change.new.value.clone());
    }
}

fn name(object: &Value) -> Name {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// Brings a Service's slices up to date.
fn sync(store: &Store, tables: &Tables, key: &Name) -> Result<(), ApiError> {
    let kind = store.kind("discovery.k8s.io", "v1", "endpointslices").ok_or_else(ApiError::no_route)?;
    let (namespace, service) = key;
    let labels = format!("{SERVICE}={service},{MANAGED_BY}={CONTROLLER}");
    let list = ListOptions {
        namespace: namespace.clone(),
        selector: Selector::parse(&labels, "", &kind)?,
        ..ListOptions::default()
    };
    let mut there: BTreeMap<String, Value> = store
        .list_objects(&kind, &list)?
        .entries
        .iter()
        .map(|entry| (name(&entry.value).1, entry.value.clone()))
        .collect();
    let wanted = tables.services.get(key).map(|service| slices(service, tables)).unwrap_or_default();
    for slice in wanted {
        let (_, slice_name) = name(&slice);
        let written = match there.remove(&slice_name) {
            Some(old) if old["endpoints"] == slice["endpoints"] && old["ports"] == slice["ports"] => continue,
            Some(mut old) => {
                old["endpoints"] = slice["endpoints"].clone();
                old["ports"] = slice["ports"].clone();
                let options = WriteOptions::default();
                store.update_object(&kind, namespace, &slice_name, crate::store::Sub::None, old, &options)
            }
            None => store.create_object(&kind, namespace, slice, &WriteOptions::default()),
        };
        // A namespace that is being deleted takes nothing new.
        if let Err(error) = written {
            tracing::debug!(%error, slice = slice_name, "not written");
        }
    }
    for gone in there.keys() {
        match store.delete_object(&kind, namespace, gone, &DeleteOptions::default()) {
            Err(error) if error.code != 404 => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The slices a Service should have.
fn slices(service: &Value, tables: &Tables) -> Vec<Value> {
    let spec = &service["spec"];
    let Some(selector) = spec["selector"].as_object().filter(|selector| !selector.is_empty()) else {
        return Vec::new();
    };
    if spec["type"] == json!("ExternalName") {
        return Vec::new();
    }
    let (namespace, service_name) = name(service);
    let families: Vec<String> = spec["ipFamilies"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|family| family.as_str().map(str::to_owned))
        .collect();
    let publish = spec["publishNotReadyAddresses"] == json!(true);
    let mut made = Vec::new();
    for family in families {
        // By the ports they have, as text: pods may give one name to different numbers.
        let mut groups: BTreeMap<String, (Value, Vec<Value>)> = BTreeMap::new();
        for ((of, _), pod) in &tables.pods {
            if *of != namespace || !selected(pod, selector) {
                continue;
            }
            let Some(endpoint) = endpoint(pod, &family, publish) else { continue };
            let ports = ports(spec, pod);
            let group = groups.entry(ports.to_string()).or_insert_with(|| (ports, Vec::new()));
            group.1.push(endpoint);
        }
        let mut number = 0;
        for (ports, endpoints) in groups.into_values() {
            for endpoints in endpoints.chunks(SLICE) {
                number += 1;
                made.push(json!({
                    "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
                    "metadata": {
                        "namespace": namespace,
                        "name": format!("{service_name}-{}-{number}", family.to_lowercase()),
                        "labels": { SERVICE: service_name, MANAGED_BY: CONTROLLER },
                        "ownerReferences": [{ "apiVersion": "v1", "kind": "Service", "name": service_name,
                            "uid": service["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true }],
                    },
                    "endpoints": endpoints, "ports": ports,
                }));
            }
        }
    }
    made
}

fn selected(pod: &Value, selector: &Map<String, Value>) -> bool {
    selector.iter().all(|(key, value)| pod["metadata"]["labels"].get(key) == Some(value))
}

/// A pod as an endpoint; none while it has no address of the family, or has run to its end.
fn endpoint(pod: &Value, family: &str, publish: bool) -> Option<Value> {
    let status = &pod["status"];
    if matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let node = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())?;
    let address = status["podIPs"].as_array()?.iter().find_map(|entry| {
        let ip: IpAddr = entry["ip"].as_str()?.parse().ok()?;
        (ip.is_ipv4() == (family == "IPv4")).then(|| ip.to_string())
    })?;
    let terminating = pod["metadata"].get("deletionTimestamp").is_some();
    let serving = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == json!("Ready") && condition["status"] == json!("True"));
    let (namespace, name) = name(pod);
    Some(json!({
        "addresses": [address], "nodeName": node,
        "conditions": {
            "ready": publish || (serving && !terminating), "serving": publish || serving, "terminating": terminating,
        },
        "targetRef": { "kind": "Pod", "namespace": namespace, "name": name, "uid": pod["metadata"]["uid"] },
    }))
}

/// What the Service's ports mean on a pod; a name the pod does not have means no port.
fn ports(spec: &Value, pod: &Value) -> Value {
    let mut found = Vec::new();
    for port in spec["ports"].as_array().into_iter().flatten() {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let number = match &port["targetPort"] {
            Value::String(name) => {
                let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
                let mut ports = containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
                let named = ports.find(|one| {
                    one["name"] == json!(name) && one["protocol"].as_str().unwrap_or("TCP") == protocol
                });
                named.map(|one| one["containerPort"].clone())
            }
            Value::Null => Some(port["port"].clone()),
            number => Some(number.clone()),
        };
        let Some(number) = number else { continue };
        let mut entry = json!({ "name": port["name"].as_str().unwrap_or_default(), "port": number, "protocol": protocol });
        if let Some(app) = port.get("appProtocol") {
            entry["appProtocol"] = app.clone();
        }
        found.push(entry);
    }
    Value::Array(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, port: u16, ready: bool) -> Value {
        json!({ "metadata": { "namespace": "n", "name": name, "uid": name, "labels": { "app": "web" } },
            "spec": { "nodeName": "node1", "containers": [{ "ports": [{ "name": "http", "containerPort": port }] }] },
            "status": { "phase": "Running", "podIPs": [{ "ip": "10.0.0.7" }, { "ip": "fd00::7" }],
                "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] } })
    }

    fn made(service: &Value, pods: Vec<Value>) -> Vec<Value> {
        let pods = pods.into_iter().map(|pod| (name(&pod), pod)).collect();
        slices(service, &Tables { pods, ..Tables::default() })
    }

    #[test]
    fn a_slice_for_each_family_and_each_meaning_of_a_named_port() {
        let mut service = json!({ "metadata": { "namespace": "n", "name": "s", "uid": "1" }, "spec": {
            "selector": { "app": "web" }, "ipFamilies": ["IPv4", "IPv6"],
            "ports": [{ "name": "", "port": 80, "targetPort": "http", "protocol": "TCP" }] } });
        let mut leaving = pod("c", 8080, true);
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut done = pod("d", 8080, true);
        done["status"]["phase"] = json!("Succeeded");
        let pods = vec![pod("a", 8080, true), pod("b", 9090, false), leaving, done];
        let all = made(&service, pods.clone());
        let found: Vec<String> = all
            .iter()
            .map(|slice| {
                let endpoints = slice["endpoints"].as_array().expect("a list").iter().map(|endpoint| {
                    let on = |field: &str| u8::from(endpoint["conditions"][field] == json!(true));
                    let name = endpoint["targetRef"]["name"].as_str().expect("a name");
                    format!("{name}{}{}{}", on("ready"), on("serving"), on("terminating"))
                });
                format!(
                    "{} {} {}",
                    slice["addressType"],
                    slice["ports"][0]["port"],
                    endpoints.collect::<Vec<_>>().join(",")
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                "\"IPv4\" 8080 a110,c011",
                "\"IPv4\" 9090 b000",
                "\"IPv6\" 8080 a110,c011",
                "\"IPv6\" 9090 b000"
            ]
        );
        service["spec"]["publishNotReadyAddresses"] = json!(true);
        service["spec"]["ipFamilies"] = json!(["IPv4"]);
        assert_eq!(made(&service, pods.clone())[1]["endpoints"][0]["conditions"]["ready"], json!(true));
        service["spec"]["selector"] = json!({});
        assert!(made(&service, pods).is_empty(), "somebody else makes them");
    }
}
