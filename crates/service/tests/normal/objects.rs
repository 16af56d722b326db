//! What is read from Service objects.

use kapi::ServiceType;
use serde_json::{Value, json};
use service::{FrontendKind, Service};

use crate::service;

fn port() -> Value {
    json!([{"port": 80}])
}

#[test]
fn services_for_nobody_and_for_others_are_left_alone() {
    let cases = [
        json!({"clusterIP": "None", "ports": port()}),
        json!({"clusterIPs": ["None"], "ports": port()}),
        json!({"type": "ExternalName", "externalName": "example.com"}),
        json!({"ports": port()}),
        json!({"clusterIP": "", "ports": port()}),
    ];
    for spec in cases {
        assert_eq!(Service::read(&service(spec.clone())), None, "{spec}");
    }
    for label in ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"] {
        let mut object = service(json!({"clusterIP": "10.96.0.1", "ports": port()}));
        assert!(Service::read(&object).is_some());
        object.metadata.labels.insert(label.into(), String::new());
        assert_eq!(Service::read(&object), None, "{label}");
    }
}

#[test]
fn frontends_of_every_kind() {
    let mut object = service(json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.1", "fd00::1"],
        "externalIPs": ["198.51.100.9", "203.0.113.6"], "ports": [{"port": 80, "nodePort": 30080}]}));
    object.status = serde_json::from_value(json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.6"},
        {"ip": "203.0.113.7", "ipMode": "Proxy"}, {"ip": "203.0.113.8", "ipMode": "VIP"}, {"hostname": "lb.example"}]}})).unwrap();
    let read = Service::read(&object).unwrap();
    let list: Vec<(FrontendKind, String, u16)> = read
        .frontends(&read.ports[0])
        .map(|one| (one.kind, one.ip.map(|ip| ip.to_string()).unwrap_or_default(), one.port))
        .collect();
    let expected = [
        (FrontendKind::ClusterIp, "10.96.0.1", 80),
        (FrontendKind::ClusterIp, "fd00::1", 80),
        (FrontendKind::ExternalIp, "198.51.100.9", 80),
        (FrontendKind::Ingress, "203.0.113.6", 80),
        (FrontendKind::Ingress, "203.0.113.8", 80),
        (FrontendKind::NodePort, "", 30080),
    ];
    assert_eq!(list, expected.map(|(kind, ip, port)| (kind, ip.to_owned(), port)));
    // What only a load balancer has ends with its kind.
    object.spec.kind = ServiceType::ClusterIP;
    let read = Service::read(&object).unwrap();
    assert!(read.ingress_ips.is_empty() && read.ports[0].node_port.is_none());
}

#[test]
fn affinity_policies_and_ranges() {
    let read = |spec: Value| Service::read(&service(spec)).unwrap();
    let base = json!({"clusterIP": "10.96.0.1", "ports": port()});
    let with = |extra: Value| {
        let mut spec = base.clone();
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        read(spec)
    };
    assert_eq!(with(json!({})).affinity, None);
    assert_eq!(with(json!({"sessionAffinity": "ClientIP"})).affinity, Some(10_800));
    let timeout = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}});
    assert_eq!(with(timeout).affinity, Some(600));
    assert!(with(json!({"internalTrafficPolicy": "Local"})).internal_local);
    assert!(!with(json!({"externalTrafficPolicy": "Local"})).external_local, "nothing leads in from outside");
    assert!(with(json!({"type": "NodePort", "externalTrafficPolicy": "Local"})).external_local);
    assert!(with(json!({"externalIPs": ["198.51.100.1"], "externalTrafficPolicy": "Local"})).external_local);
    let ranges = |list: Value| with(json!({"type": "LoadBalancer", "loadBalancerSourceRanges": list}));
    assert_eq!(ranges(json!(["192.0.2.77/24 "])).source_ranges[..], ["192.0.2.0/24".parse().unwrap()]);
    let unreadable = ranges(json!(["everyone"]));
    assert!(!unreadable.source_ranges.is_empty(), "an unreadable list must not let everybody in");
    assert!(unreadable.problems[0].contains("everyone"));
}

#[test]
fn unreadable_parts_do_not_hide_the_rest() {
    let spec = json!({"clusterIPs": ["10.96.0.1", "10.96.0.999"], "externalIPs": ["gateway"],
        "ports": [{"port": 80}, {"port": 0}, {"port": 81, "protocol": "QUIC"}]});
    let read = Service::read(&service(spec)).unwrap();
    assert_eq!((read.cluster_ips.len(), read.external_ips.len(), read.ports.len()), (1, 0, 1));
    assert_eq!(read.problems.len(), 4, "{:?}", read.problems);
}
