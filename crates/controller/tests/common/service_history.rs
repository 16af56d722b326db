//! Random changes of services, of their slices, and of the node's addresses.

use kapi::{EndpointSlice, PodKey, Service};
use serde_json::{Value, json};

use super::dice::Dice;
use super::objects;
use super::world::Zone;

const SERVICES: usize = 6;
const SLICES: usize = 12;
/// Addresses of pods and hosts, and the node each is on.
const ENDPOINTS: [(&str, &str); 7] = [
    ("10.244.0.5", "node1"),
    ("10.244.0.6", "node1"),
    ("10.244.1.3", "node2"),
    ("10.244.2.3", "node3"),
    ("172.18.0.1", "node1"),
    ("172.18.0.2", "node2"),
    ("203.0.113.77", ""),
];

/// One random change.
pub(crate) fn step(dice: &mut Dice, zone: &mut Zone) {
    match dice.roll(14) {
        0..=2 => {
            let number = dice.roll(SERVICES);
            zone.put_service(service(dice, number));
        }
        3 => {
            let key = PodKey::new("shop", format!("s{}", dice.roll(SERVICES)));
            zone.remove_service(&key);
        }
        4..=8 => {
            let number = dice.roll(SLICES);
            let slice = slice(dice, number);
            zone.put_slice(slice);
        }
        9 => {
            let key = PodKey::new("shop", format!("e{}", dice.roll(SLICES)));
            zone.remove_slice(&key);
        }
        10 => zone.relist_services(),
        11 => gateway(dice, zone),
        12 => {
            // An older state once more, then the newer one.
            let number = dice.roll(SLICES);
            let stale = slice(dice, number);
            let key = PodKey::new("shop", format!("e{number}"));
            if let Some(now) = zone.slices.get(&key).cloned() {
                zone.put_slice(stale);
                zone.put_slice(now);
            }
        }
        _ => zone.unreadable_slice(&PodKey::new("shop", format!("e{}", dice.roll(SLICES)))),
    }
}

fn service(dice: &mut Dice, number: usize) -> Service {
    let pick = |dice: &mut Dice, items: &[Value]| items[dice.roll(items.len())].clone();
    let kind = pick(
        dice,
        &[
            json!("ClusterIP"),
            json!("ClusterIP"),
            json!("NodePort"),
            json!("LoadBalancer"),
            json!("ExternalName"),
        ],
    );
    let cluster_ips = pick(
        dice,
        &[
            json!([format!("10.96.1.{number}")]),
            json!([format!("10.96.1.{number}")]),
            json!([format!("10.96.1.{number}"), format!("fd00:10:96::1:{number}")]),
            json!(["None"]),
        ],
    );
    let mut ports = vec![json!({"name": "http", "port": 80, "nodePort": 30000 + number})];
    if dice.roll(2) == 0 {
        ports.push(json!({"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30100 + number}));
    }
    if dice.roll(4) == 0 {
        ports.push(json!({"name": "other", "port": 81}));
    }
    let external = format!("198.51.100.{number}");
    let (affinity, timeout) =
        [("None", 0), ("ClientIP", 600), ("ClientIP", 86_400), ("ClientIP", 70_000)][dice.roll(4)];
    let labels = match dice.roll(12) {
        0 => json!({"service.kubernetes.io/service-proxy-name": "other"}),
        _ => json!({}),
    };
    let json = json!({
        "metadata": {"name": format!("s{number}"), "namespace": "shop", "uid": format!("s{number}"), "labels": labels},
        "spec": {"type": kind, "clusterIPs": cluster_ips, "ports": ports,
            "externalIPs": if dice.roll(3) == 0 { json!([external]) } else { json!([]) },
            "sessionAffinity": affinity,
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": timeout}},
            "externalTrafficPolicy": if kind != "ClusterIP" && dice.roll(2) == 0 { "Local" } else { "Cluster" },
            "internalTrafficPolicy": if dice.roll(3) == 0 { "Local" } else { "Cluster" },
            "loadBalancerSourceRanges": if dice.roll(5) == 0 { json!(["192.0.2.0/24"]) } else { json!([]) },
            "publishNotReadyAddresses": dice.roll(6) == 0},
        "status": {"loadBalancer": {"ingress": [{"ip": format!("203.0.113.{number}")}]}}});
    serde_json::from_value(json).expect("a Service")
}

fn slice(dice: &mut Dice, number: usize) -> EndpointSlice {
    let v6 = number.is_multiple_of(4);
    let mut endpoints = Vec::new();
    for _ in 0..dice.roll(4) {
        let (ip, node) = ENDPOINTS[dice.roll(ENDPOINTS.len())];
        let ip = if v6 { format!("fd00:10:244::{}", ip.replace('.', ":")) } else { ip.to_owned() };
        let condition =
            |dice: &mut Dice| [json!(null), json!(true), json!(false), json!(true)][dice.roll(4)].clone();
        endpoints.push(json!({"addresses": [ip], "nodeName": if node.is_empty() { json!(null) } else { json!(node) },
            "conditions": {"ready": condition(dice), "serving": condition(dice), "terminating": condition(dice)}}));
    }
    let port = 8080 + dice.roll(3);
    let ports = [
        json!([{"name": "http", "port": port}, {"name": "dns", "port": 5353, "protocol": "UDP"}]),
        json!([{"name": "http", "port": port}]),
        json!([{"name": "http", "port": null}, {"name": "other", "port": 81}]),
    ][dice.roll(3)]
    .clone();
    let json = json!({
        "metadata": {"name": format!("e{number}"), "namespace": "shop",
            "labels": {"kubernetes.io/service-name": format!("s{}", dice.roll(SERVICES))}},
        "addressType": if v6 { "IPv6" } else { "IPv4" }, "ports": ports, "endpoints": endpoints});
    serde_json::from_value(json).expect("an EndpointSlice")
}

/// The node gets or loses its gateway, its node ports, or a further address.
fn gateway(dice: &mut Dice, zone: &mut Zone) {
    let Some(node) = zone.nodes.get("node1").cloned() else { return };
    let further: &[&str] =
        [&[] as &[&str], &["192.0.2.1/24"], &["192.0.2.1/24", "192.0.2.2/24"]][dice.roll(3)];
    let node = objects::with_gateway(node, 1, dice.roll(4) > 0, further);
    zone.put_node(node);
}
