//! The recorded scenarios: the same objects give the same rows, and rows of the reference are taken over without
//! a write.

mod common;

use std::collections::BTreeMap;

use common::objects;
use common::world::Zone;
use controller::{Change, Input};
use kapi::{
    AdminNetworkPolicy, BaselineAdminNetworkPolicy, Namespace, NetworkPolicy, Node, Object, Pod, PodKey,
};
use policy::Policy;
use scenario::{Scenario, canonical, compare};
use serde::Deserialize;
use serde_json::Value;

/// The zone of node `number` with the objects of a scenario as they were at the end.
fn zone(scenario: &Scenario, number: usize) -> Zone {
    let dual = scenario.name == Scenario::DUAL_STACK.name;
    let mut zone = Zone::new(&format!("node{number}"), dual);
    let mut pods: Vec<Pod> = Vec::new();
    for object in scenario.objects() {
        let metadata = serde_json::json!({"name": object["name"], "namespace": object["namespace"], "uid": object["uid"],
            "labels": object["labels"], "annotations": object["annotations"]});
        match object["kind"].as_str() {
            Some("Node") => {
                let node: Node =
                    serde_json::from_value(serde_json::json!({"metadata": metadata})).expect("a node");
                zone.nodes.insert(node.metadata.name.clone(), node);
            }
            Some("Namespace") => {
                let namespace: Namespace =
                    serde_json::from_value(serde_json::json!({"metadata": metadata})).expect("a namespace");
                zone.namespaces.insert(namespace.metadata.name.clone(), namespace);
            }
            Some("Pod") => {
                let node = if object["status"]["hostIP"] == "172.18.0.1" { "node1" } else { "node2" };
                let host = object["annotations"].as_object().is_none_or(|map| map.is_empty());
                let spec = serde_json::json!({"nodeName": node, "hostNetwork": host});
                let json = serde_json::json!({"metadata": metadata, "spec": spec, "status": {"phase": object["status"]["phase"]}});
                pods.push(serde_json::from_value(json).expect("a pod"));
            }
            _ => {}
        }
    }
    for pod in pods {
        zone.pods.insert(pod.pod_key(), pod);
    }
    let (services, slices) = objects::services(scenario);
    zone.services = services.into_iter().map(|service| (key(&service), service)).collect();
    zone.slices = slices.into_iter().map(|slice| (key(&slice), slice)).collect();
    // Labels, ports and policies are not in the recorder's form; they are as they were applied.
    for document in manifest(scenario) {
        apply(&mut zone, document);
    }
    zone
}

fn manifest(scenario: &Scenario) -> Vec<Value> {
    let documents = serde_norway::Deserializer::from_str(scenario.manifest);
    documents.map(|document| Value::deserialize(document).expect("a document")).collect()
}

fn apply(zone: &mut Zone, document: Value) {
    let (namespace, name) = (&document["metadata"]["namespace"], &document["metadata"]["name"]);
    let name = name.as_str().unwrap_or_default();
    let labels = || -> BTreeMap<String, String> {
        serde_json::from_value(document["metadata"]["labels"].clone()).unwrap_or_default()
    };
    match (document["lab"].as_str(), document["kind"].as_str().unwrap_or_default()) {
        (None, "Namespace") => {
            zone.namespaces.get_mut(name).expect("a recorded namespace").metadata.labels = labels();
        }
        (Some("annotate"), "Namespace") => {
            let annotations = document["metadata"]["annotations"].clone();
            let meta = &mut zone.namespaces.get_mut(name).expect("a recorded namespace").metadata;
            meta.annotations = serde_json::from_value(annotations).expect("annotations");
        }
        (None, "Pod") => {
            let key = kapi::PodKey::new(namespace.as_str().unwrap_or_default(), name);
            let applied: Pod = serde_json::from_value(document.clone()).expect("a pod");
            if let Some(pod) = zone.pods.get_mut(&key) {
                pod.metadata.labels = labels();
                pod.spec.named_ports = applied.spec.named_ports;
            }
        }
        (None, "NetworkPolicy") => put::<NetworkPolicy>(zone, document),
        (None, "AdminNetworkPolicy") => put::<AdminNetworkPolicy>(zone, document),
        (None, "BaselineAdminNetworkPolicy") => put::<BaselineAdminNetworkPolicy>(zone, document),
        _ => {}
    }
}

fn put<T: serde::de::DeserializeOwned>(zone: &mut Zone, document: Value)
where
    Policy: for<'a> From<&'a T>,
{
    let policy = Policy::from(&serde_json::from_value::<T>(document).expect("a policy"));
    assert!(policy.problems.is_empty(), "{:?}", policy.problems);
    zone.policies.insert(policy.id.clone(), policy);
}

fn key<T: Object>(object: &T) -> PodKey {
    PodKey::new(&*object.meta().namespace, &*object.meta().name)
}

#[test]
fn rows_equal_the_recorded_ones() {
    for scenario in Scenario::ALL {
        for number in [1, 2] {
            let mut zone = zone(&scenario, number);
            zone.start();
            zone.settle();
            assert!(zone.patches.is_empty() && zone.refusals.is_empty(), "{:?}", zone.refusals);
            let rows: Vec<ovsdb::Row> =
                zone.nb.schema.tables().iter().flat_map(|table| zone.nb.rows(&table.name)).collect();
            let report = compare(&scenario.northbound(number), &canonical(&rows));
            println!(
                "{} node{number}: {} rows equal, {} pending",
                scenario.name, report.equal, report.pending
            );
            assert!(report.different.is_empty(), "{} node{number}:\n{report}", scenario.name);
            assert!(report.equal > 40, "only {} rows were compared", report.equal);
        }
    }
}

/// Pods that had no annotation get the recorded addresses when they arrive in the recorded order.
#[test]
fn annotations_equal_the_recorded_ones() {
    for (scenario, number) in
        [(Scenario::PODS, 1), (Scenario::PODS, 2), (Scenario::DUAL_STACK, 1), (Scenario::DUAL_STACK, 2)]
    {
        let mut zone = zone(&scenario, number);
        let recorded = std::mem::take(&mut zone.pods);
        zone.start();
        zone.settle();
        let order = ["web-1", "web-2", "db-1", "host-1", "a", "job-1", "late-1"];
        let mut compared = 0;
        for name in order {
            let Some(pod) = recorded.values().find(|pod| pod.metadata.name == name) else { continue };
            let mut fresh = pod.clone();
            fresh.metadata.annotations.clear();
            fresh.status = Default::default();
            zone.put_pod(fresh.clone());
            zone.settle();
            let key = pod.pod_key();
            if pod.is_finished() {
                fresh = zone.pods[&key].clone();
                fresh.status = pod.status.clone();
                zone.put_pod(fresh);
                zone.settle();
            }
            if pod.spec.node_name == format!("node{number}") {
                assert_eq!(zone.pods[&key].metadata.annotations, pod.metadata.annotations, "{key}");
                compared += 1;
            }
        }
        assert!(compared > 0);
        zone.check_rest();
    }
}

#[test]
fn another_order_of_events_gives_the_same_rows() {
    let mut zone = zone(&Scenario::PODS, 1);
    let (nodes, pods) = (zone.nodes.clone(), zone.pods.clone());
    zone.nodes.clear();
    zone.pods.clear();
    zone.start();
    zone.settle();
    for pod in pods.values().rev() {
        zone.send("pods", Input::Pods(Change::Applied(pod.clone())));
        zone.pods.insert(pod.pod_key(), pod.clone());
    }
    zone.settle();
    for node in nodes.values().rev() {
        zone.put_node(node.clone());
        zone.settle();
    }
    let rows: Vec<ovsdb::Row> =
        zone.nb.schema.tables().iter().flat_map(|table| zone.nb.rows(&table.name)).collect();
    let report = compare(&Scenario::PODS.northbound(1), &canonical(&rows));
    assert!(report.different.is_empty(), "{report}");
}

/// A database as the reference left it, with rows of features we do not have: nothing is written.
#[test]
fn recorded_rows_are_taken_over_without_a_write() {
    let mut taken = 0;
    for scenario in Scenario::ALL {
        for number in [1, 2] {
            let Some(database) = scenario.database(number) else { continue };
            let mut zone = zone(&scenario, number);
            zone.nb.load_log(database);
            let tables = ["Logical_Switch_Port", "Load_Balancer", "ACL", "Port_Group"];
            let count = |zone: &Zone| tables.map(|table| zone.nb.rows(table).len());
            let before = count(&zone);
            assert!(before[0] > 8 && before[1] > 0, "the recorded database was not read");
            zone.start();
            zone.settle();
            // A named port: the set of pods at which it has its number is made, and the match corrected.
            let expected = if scenario.name == Scenario::POLICIES.name { 2 } else { 0 };
            assert_eq!(zone.nb.ops, expected, "{}: operations on taken-over rows", scenario.name);
            assert_eq!(count(&zone), before);
            let chassis: Vec<Value> =
                zone.sb.rows("Chassis").iter().map(|row| Value::from(row.str("hostname"))).collect();
            assert_eq!(chassis, [Value::from(if number == 1 { "node2" } else { "node1" })]);
            taken += 1;
        }
    }
    assert_eq!(taken, 8);
}
