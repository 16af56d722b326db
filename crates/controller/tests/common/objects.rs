//! Objects with sane defaults.

use std::collections::BTreeMap;
use std::sync::Arc;

use compile::Settings;
use kapi::{EndpointSlice, Node, Pod, PodKey, Service};
use net::{ClusterCidr, Dual, IpNet};
use ovsdb::Schema;
use serde::Deserialize;

pub(crate) fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

pub(crate) fn schema(db: compile::Db) -> Arc<Schema> {
    let text: &[u8] = match db {
        compile::Db::Nb => include_bytes!("../../../ovn/schema/ovn-nb.ovsschema"),
        compile::Db::Sb => include_bytes!("../../../ovn/schema/ovn-sb.ovsschema"),
    };
    Arc::new(Schema::parse(text).expect("a schema"))
}

/// The cluster of the recorded scenarios; `dual` adds IPv6.
pub(crate) fn settings(node: &str, dual: bool) -> Settings {
    let both = |v4: &str, v6: &str| {
        let mut list = vec![net(v4)];
        list.extend(dual.then(|| net(v6)));
        list
    };
    Settings {
        node: node.into(),
        cluster_cidrs: both("10.244.0.0/16", "fd00:10:244::/48"),
        service_cidrs: both("10.96.0.0/16", "fd00:10:96::/112"),
        join: Dual { v4: Some(net("100.64.0.0/16")), v6: Some(net("fd98::/64")) },
        transit: Dual { v4: Some(net("100.88.0.0/16")), v6: Some(net("fd97::/64")) },
        masquerade: Dual { v4: Some(net("169.254.169.0/29")), v6: Some(net("fd69::/125")) },
        nat_ports: Some((32768, 60999)),
        snat_per_pod: false,
        mtu: 1342,
        encap_port: 6081,
        encap_type: "geneve".into(),
        requested_chassis: true,
        acl_logging_rate: 20,
        multicast: false,
        namespace_groups: true,
        service_templates: false,
        empty_lb_events: false,
        hybrid_overlay: false,
        policies: compile::PolicySettings {
            admin: true,
            stateless: false,
            allow_icmp: false,
            host_namespace: "ovn-host-network".into(),
        },
    }
}

pub(crate) fn cluster(dual: bool) -> Vec<ClusterCidr> {
    let mut list = vec![ClusterCidr { cidr: net("10.244.0.0/16"), host_prefix: 24 }];
    list.extend(dual.then(|| ClusterCidr { cidr: net("fd00:10:244::/48"), host_prefix: 64 }));
    list
}

/// A node announced in full; `number` is the last digit of its addresses.
pub(crate) fn node(name: &str, number: u32, subnets: &[&str]) -> Node {
    let quoted: Vec<String> = subnets.iter().map(|subnet| format!("\"{subnet}\"")).collect();
    let dual = subnets.len() > 1;
    let id = number + 1;
    let mut transit = format!("\"ipv4\":\"100.88.0.{id}/16\"");
    if dual {
        transit.push_str(&format!(",\"ipv6\":\"fd97::{id:x}/64\""));
    }
    let annotations = BTreeMap::from([
        ("k8s.ovn.org/node-subnets", format!("{{\"default\":[{}]}}", quoted.join(","))),
        ("k8s.ovn.org/node-id", id.to_string()),
        ("k8s.ovn.org/node-transit-switch-port-ifaddr", format!("{{{transit}}}")),
        ("k8s.ovn.org/node-chassis-id", format!("00000000-0000-4000-8000-{number:012}")),
        ("k8s.ovn.org/node-encap-ips", format!("[\"172.18.0.{number}\"]")),
        ("k8s.ovn.org/host-cidrs", format!("[\"172.18.0.{number}/24\"]")),
    ]);
    let json = serde_json::json!({"metadata": {"name": name, "uid": format!("node-{name}"),
        "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations}});
    serde_json::from_value(json).expect("a node")
}

/// The node with a gateway; `node_port` tells whether it serves node ports, `hosts` are further addresses.
pub(crate) fn with_gateway(mut node: Node, number: u32, node_port: bool, hosts: &[&str]) -> Node {
    let dual = node.metadata.annotations["k8s.ovn.org/node-subnets"].contains("fd00");
    let mut own = vec![format!("172.18.0.{number}/24")];
    own.extend(dual.then(|| format!("fd00:172:18::{number}/64")));
    let mut cidrs = own.clone();
    cidrs.extend(hosts.iter().map(|host| (*host).to_owned()));
    let gateway = serde_json::json!({"default": {"mode": "shared", "bridge-id": "breth0",
        "interface-id": format!("breth0_{}", node.metadata.name), "mac-address": format!("02:42:ac:12:00:{number:02x}"),
        "ip-addresses": own, "ip-address": own[0], "next-hops": ["172.18.0.254"], "next-hop": "172.18.0.254",
        "node-port-enable": node_port.to_string(), "vlan-id": "0"}});
    let annotations = &mut node.metadata.annotations;
    annotations.insert("k8s.ovn.org/l3-gateway-config".into(), gateway.to_string());
    annotations.insert("k8s.ovn.org/host-cidrs".into(), serde_json::to_string(&cidrs).expect("a list"));
    node
}

pub(crate) fn pod(key: &PodKey, uid: &str, node: &str) -> Pod {
    let json = serde_json::json!({"metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
        "spec": {"nodeName": node}, "status": {"phase": "Pending"}});
    serde_json::from_value(json).expect("a pod")
}

pub(crate) fn annotated(mut pod: Pod, value: &str) -> Pod {
    pod.metadata.annotations.insert(kapi::annotations::POD_NETWORKS.into(), value.into());
    pod
}

/// The Services and EndpointSlices of a scenario as they were at the end. The API server's own comes with every
/// cluster.
pub(crate) fn services(scenario: &scenario::Scenario) -> (Vec<Service>, Vec<EndpointSlice>) {
    let mut services: Vec<serde_json::Value> = vec![serde_json::json!({
        "metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]}})];
    let mut slices: Vec<serde_json::Value> = vec![serde_json::json!({
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4", "ports": [{"name": "https", "port": 6443}],
        "endpoints": [{"addresses": ["172.18.0.254"], "conditions": {"ready": true}}]})];
    for document in serde_norway::Deserializer::from_str(scenario.manifest) {
        let document = serde_json::Value::deserialize(document).expect("a document");
        match (document["kind"].as_str(), document["lab"].as_str()) {
            (Some("EndpointSlice"), None) => slices.push(document),
            (Some("Service"), None) => services.push(document),
            (Some("Service"), Some("status")) => {
                let same = |service: &&mut serde_json::Value| service["metadata"] == document["metadata"];
                let service = services.iter_mut().find(same).expect("the service of a status");
                service["status"] = document["status"].clone();
            }
            _ => {}
        }
    }
    (services.into_iter().map(read).collect(), slices.into_iter().map(read).collect())
}

fn read<T: serde::de::DeserializeOwned>(json: serde_json::Value) -> T {
    serde_json::from_value(json).expect("a readable object")
}

pub(crate) fn namespace(name: &str, labels: &[(&str, &str)]) -> kapi::Namespace {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    serde_json::from_value(serde_json::json!({"metadata": {"name": name, "labels": labels}}))
        .expect("a namespace")
}
