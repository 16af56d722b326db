//! Nodes, namespaces and pods.

use serde_json::{Value, json};

use super::{Dice, Shape};

pub(super) const NAMESPACES: [&str; 4] = ["x", "y", "z", "empty"];
/// Keys and values that labels and selectors are made of; few, so that they meet.
pub(super) const KEYS: [&str; 3] = ["app", "tier", "pod"];
pub(super) const VALUES: [&str; 3] = ["a", "b", "c"];
/// Names of container ports; what they stand for differs from pod to pod.
pub(super) const PORT_NAMES: [&str; 3] = ["http", "dns", "alt"];
/// The same, and the name only containers that run first use.
pub(super) const ALL_PORT_NAMES: [&str; 4] = ["http", "dns", "alt", "side"];
pub(super) const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

pub(super) fn objects(dice: &mut Dice, shape: Shape) -> Vec<Value> {
    let mut objects: Vec<Value> = (1..=shape.nodes).map(|number| node(dice, shape, number)).collect();
    for name in NAMESPACES {
        objects.push(json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": labels(dice, &["team", "env"]) } }));
    }
    if dice.chance(50) {
        objects.push(json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "ovn-host-network", "labels": labels(dice, &["team", "env"]) } }));
    }
    let mut used = vec![2; shape.nodes + 1];
    let count = shape.pods / 2 + dice.below(shape.pods / 2 + 1);
    for at in 0..count {
        let number = 1 + dice.below(shape.nodes);
        objects.push(pod(dice, shape, at, number, &mut used[number]));
    }
    objects
}

pub(super) fn labels(dice: &mut Dice, keys: &[&str]) -> Value {
    let mut labels = serde_json::Map::new();
    for key in keys {
        if dice.chance(65) {
            labels.insert((*key).to_owned(), json!(dice.pick(&VALUES)));
        }
    }
    Value::Object(labels)
}

fn node(dice: &mut Dice, shape: Shape, number: usize) -> Value {
    let (mut subnets, mut addresses) = (
        vec![format!("10.244.{}.0/24", number - 1)],
        vec![json!({ "type": "InternalIP", "address": format!("172.18.0.{number}") })],
    );
    let (mut transit, mut hosts) =
        (format!("{{\"ipv4\":\"100.88.0.{}/16\"", number + 1), vec![format!("172.18.0.{number}/16")]);
    let (mut gateway, mut hop) = (format!("\"172.18.0.{number}/16\""), "\"172.18.0.254\"".to_owned());
    if shape.dual {
        subnets.push(format!("fd00:10:244:{number}::/64"));
        addresses.push(json!({ "type": "InternalIP", "address": format!("fc00:f853:ccd:e793::{number}") }));
        transit += &format!(",\"ipv6\":\"fd97::{}/64\"", number + 1);
        hosts.push(format!("fc00:f853:ccd:e793::{number}/64"));
        gateway += &format!(",\"fc00:f853:ccd:e793::{number}/64\"");
        hop += ",\"fc00:f853:ccd:e793::fffe\"";
    }
    transit.push('}');
    let gateway = format!(
        "{{\"default\":{{\"mode\":\"shared\",\"bridge-id\":\"breth0\",\"interface-id\":\"breth0_node{number}\",\
         \"mac-address\":\"02:42:ac:12:00:{number:02x}\",\"ip-addresses\":[{gateway}],\"next-hops\":[{hop}],\
         \"node-port-enable\":\"true\",\"vlan-id\":\"0\"}}}}"
    );
    json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": format!("node{number}"), "labels": labels(dice, &KEYS), "annotations": {
            "k8s.ovn.org/node-subnets": json!({ "default": subnets }).to_string(),
            "k8s.ovn.org/node-id": (number + 1).to_string(),
            "k8s.ovn.org/node-transit-switch-port-ifaddr": transit,
            "k8s.ovn.org/node-chassis-id": format!("chassis-{number}"),
            "k8s.ovn.org/host-cidrs": json!(hosts).to_string(),
            "k8s.ovn.org/l3-gateway-config": gateway,
        } },
        "status": { "addresses": addresses } })
}

/// One pod. Some are on the node's network, some have ended: of these, some still show an address that a later pod has.
fn pod(dice: &mut Dice, shape: Shape, at: usize, number: usize, used: &mut usize) -> Value {
    let host_network = dice.chance(12);
    let finished = dice.chance(12);
    let last = if finished && dice.chance(50) {
        *used + 1
    } else {
        *used += 1;
        *used
    };
    let (mut ips, mut cidrs) =
        (vec![format!("10.244.{}.{last}", number - 1)], vec![format!("10.244.{}.{last}/24", number - 1)]);
    let mut gateways = vec![format!("10.244.{}.1", number - 1)];
    if shape.dual {
        ips.push(format!("fd00:10:244:{number}::{last:x}"));
        cidrs.push(format!("fd00:10:244:{number}::{last:x}/64"));
        gateways.push(format!("fd00:10:244:{number}::1"));
    }
    let mut metadata = json!({ "name": format!("p{at}"), "namespace": dice.pick(&NAMESPACES[..3]),
        "uid": format!("uid-{at}"), "labels": labels(dice, &KEYS) });
    if host_network {
        ips = vec![format!("172.18.0.{number}")];
        if shape.dual {
            ips.push(format!("fc00:f853:ccd:e793::{number}"));
        }
    } else if !finished {
        let network = json!({ "default": { "ip_addresses": cidrs, "gateway_ips": gateways, "role": "primary",
            "mac_address": format!("0a:58:0a:f4:{:02x}:{last:02x}", number - 1) } });
        metadata["annotations"] = json!({ "k8s.ovn.org/pod-networks": network.to_string() });
    }
    let ips: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
    let phase = if !finished { "Running" } else { *dice.pick(&["Succeeded", "Failed"]) };
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": { "nodeName": format!("node{number}"), "hostNetwork": host_network,
            "containers": containers(dice), "initContainers": before(dice) },
        "status": { "phase": phase, "podIPs": ips } })
}

/// Containers that run first: one that stays, or one that does not and whose port means nothing.
fn before(dice: &mut Dice) -> Vec<Value> {
    if !dice.chance(30) {
        return Vec::new();
    }
    let mut container = json!({ "name": "first", "image": "app",
        "ports": [{ "name": "side", "containerPort": dice.pick(&[80, 81]) }] });
    if dice.chance(50) {
        container["restartPolicy"] = json!("Always");
    }
    vec![container]
}

/// Each port name at most once a pod, with a number and protocol of the pod's own.
fn containers(dice: &mut Dice) -> Vec<Value> {
    let mut containers = vec![Vec::new(), Vec::new()];
    for name in PORT_NAMES {
        if dice.chance(70) {
            let mut port = json!({ "name": name, "containerPort": dice.pick(&[53, 80, 81, 8080]) });
            // Absent means TCP.
            if dice.chance(60) {
                port["protocol"] = json!(dice.pick(&PROTOCOLS));
            }
            containers[dice.below(2)].push(port);
        }
    }
    containers.retain(|ports| !ports.is_empty());
    if containers.is_empty() {
        containers.push(Vec::new());
    }
    let named = containers.into_iter().enumerate();
    named.map(|(at, ports)| json!({ "name": format!("c{at}"), "image": "app", "ports": ports })).collect()
}
