//! A node with a gateway, services and slices, and what a client would find.

use kapi::{EndpointSlice, Object, PodKey, Service};
use serde_json::{Value, json};

use super::balance::{self, Answer, Place};
use super::objects;
use super::world::Zone;

pub(crate) fn key<T: Object>(object: &T) -> PodKey {
    PodKey::new(&*object.meta().namespace, &*object.meta().name)
}

/// Node `node1` with a gateway, in a cluster of one family.
pub(crate) fn zone() -> Zone {
    let mut zone = Zone::new("node1", false);
    let node = objects::with_gateway(objects::node("node1", 1, &["10.244.0.0/24"]), 1, true, &[]);
    zone.nodes.insert("node1".into(), node);
    zone
}

pub(crate) fn service(name: &str, spec: Value) -> Service {
    let json =
        json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")}, "spec": spec});
    serde_json::from_value(json).expect("a Service")
}

/// A slice of `service` with port `http`; endpoints as address and node.
pub(crate) fn slice(name: &str, service: &str, port: u16, endpoints: &[(&str, &str)]) -> EndpointSlice {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(ip, node)| json!({"addresses": [ip], "nodeName": node, "conditions": {"ready": true}}))
        .collect();
    let json = json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": port}], "endpoints": endpoints});
    serde_json::from_value(json).expect("an EndpointSlice")
}

pub(crate) fn cluster_ip() -> Value {
    json!({"clusterIP": "10.96.0.9", "ports": [{"name": "http", "port": 80}]})
}

/// Where `10.96.0.9:80` leads on the switch; `None` if nothing serves it.
pub(crate) fn on_switch(zone: &Zone) -> Option<Vec<String>> {
    let found = balance::found(zone);
    let answer: &Answer = found.get(&(Place::Switch, "tcp", "10.96.0.9:80".to_owned()))?;
    Some(answer.backends.iter().cloned().collect())
}

/// Where an address leads on the switch and on the gateway router, each as a sorted list; `None` if nothing serves it.
pub(crate) fn leads(zone: &Zone, vip: &str) -> [Option<Vec<String>>; 2] {
    let found = balance::found(zone);
    [Place::Switch, Place::Router].map(|place| {
        let answer: &Answer = found.get(&(place, "tcp", vip.to_owned()))?;
        Some(answer.backends.iter().cloned().collect())
    })
}

/// An option of every load balancer of service `shop/web`, without repetitions.
pub(crate) fn options(zone: &Zone, option: &str) -> Vec<String> {
    let rows = zone.nb.rows("Load_Balancer");
    let of_web = rows.iter().filter(|row| row.key("external_ids", ovn::names::OWNER) == Some("shop/web"));
    let mut values: Vec<String> =
        of_web.map(|row| row.key("options", option).unwrap_or("-").to_owned()).collect();
    values.sort();
    values.dedup();
    values
}
