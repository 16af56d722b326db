//! What users of services reported, each as a test of its whole kind. Numbers are those of the field reports; the parts
//! that need packets are in the tests of whole clusters.

mod common;

use common::balance;
use common::clients::{cluster_ip, key, leads, on_switch, options, service, slice, zone};
use common::objects;
use common::world::{Fate, Zone, text};
use kapi::PodKey;
use serde_json::{Value, json};

fn some(list: &[&str]) -> Option<Vec<String>> {
    Some(list.iter().map(|text| (*text).to_owned()).collect())
}

/// Steps everything that is under way and looks at each state the database shows on the way.
fn settle_watching(zone: &mut Zone, mut look: impl FnMut(&Zone)) {
    for _ in 0..1000 {
        let source = zone.queues.iter().find(|(_, queue)| !queue.is_empty()).map(|(name, _)| *name);
        match source {
            Some(source) => zone.deliver(source),
            None if !zone.transactions.is_empty() => zone.transact(Fate::Made),
            None => return,
        }
        look(zone);
    }
    panic!("the controller does not come to rest");
}

/// 38: while a rollout changes the target port, old and new endpoints each keep their own.
#[test]
fn endpoints_with_different_ports_at_one_time() {
    let mut zone = zone();
    zone.batch = 1;
    zone.start();
    zone.put_service(service("web", cluster_ip()));
    zone.put_slice(slice("old", "web", 8083, &[("10.244.0.3", "node1"), ("10.244.1.3", "node2")]));
    zone.settle();
    zone.put_slice(slice("new", "web", 8087, &[("10.244.0.4", "node1")]));
    zone.put_slice(slice("old", "web", 8083, &[("10.244.1.3", "node2")]));
    let before = ["10.244.0.3:8083", "10.244.1.3:8083"];
    let middle = ["10.244.0.4:8087", "10.244.0.3:8083", "10.244.1.3:8083"];
    settle_watching(&mut zone, |zone| {
        for backend in on_switch(zone).expect("the address is served all the time") {
            assert!(before.contains(&&*backend) || middle.contains(&&*backend), "{backend}");
        }
    });
    assert_eq!(on_switch(&zone), some(&["10.244.0.4:8087", "10.244.1.3:8083"]));
    zone.remove_slice(&PodKey::new("shop", "old"));
    zone.settle();
    assert_eq!(on_switch(&zone), some(&["10.244.0.4:8087"]));
}

/// 39: one slice more or less never takes the address away, whatever the others hold; each family has its own.
#[test]
fn several_slices_of_one_service() {
    let mut zone = Zone::new("node1", true);
    let node = objects::node("node1", 1, &["10.244.0.0/24", "fd00:10:244:1::/64"]);
    zone.nodes.insert("node1".into(), objects::with_gateway(node, 1, true, &[]));
    zone.start();
    zone.put_service(service(
        "web",
        json!({"clusterIPs": ["10.96.0.9", "fd00:10:96::9"], "ports": [{"name": "http", "port": 80}]}),
    ));
    zone.put_slice(slice("a", "web", 80, &[("10.244.0.3", "node1"), ("10.244.1.3", "node2")]));
    zone.put_slice(slice("b", "web", 80, &[("10.244.0.3", "node1"), ("10.244.2.3", "node3")]));
    let mut six = slice("c", "web", 80, &[("fd00:10:244:1::3", "node1")]);
    six.address_type = "IPv6".into();
    zone.put_slice(six);
    zone.settle();
    assert_eq!(on_switch(&zone), some(&["10.244.0.3:80", "10.244.1.3:80", "10.244.2.3:80"]));
    assert_eq!(leads(&zone, "[fd00:10:96::9]:80")[0], some(&["[fd00:10:244:1::3]:80"]));
    let ops = zone.nb.ops;
    // An endpoint that moves between slices changes nothing.
    zone.put_slice(slice("b", "web", 80, &[("10.244.1.3", "node2"), ("10.244.2.3", "node3")]));
    zone.settle();
    zone.put_slice(slice("a", "web", 80, &[("10.244.0.3", "node1")]));
    zone.settle();
    assert_eq!(zone.nb.ops, ops);
    for gone in ["a", "b", "c"] {
        zone.remove_slice(&PodKey::new("shop", gone));
        settle_watching(&mut zone, |zone| assert!(on_switch(zone).is_some(), "slice {gone}"));
    }
    assert_eq!(on_switch(&zone), some(&[]));
    assert_eq!(options(&zone, "reject"), ["true"]);
}

/// 40: policy first, then readiness: every combination of conditions of a local and a remote endpoint, for each kind of
/// address and both policies, against the oracle that reads the objects.
#[test]
fn terminating_endpoints_under_every_policy() {
    let conditions = [
        json!({"ready": true}),
        json!({"ready": false}),
        json!({"ready": false, "serving": true, "terminating": true}),
        json!({"ready": false, "serving": false, "terminating": true}),
        json!({}),
    ];
    let mut drained = 0;
    for (internal, external) in
        [("Cluster", "Cluster"), ("Local", "Cluster"), ("Cluster", "Local"), ("Local", "Local")]
    {
        let mut zone = zone();
        zone.start();
        let mut object = service(
            "web",
            json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.9"],
            "externalIPs": ["198.51.100.1"], "internalTrafficPolicy": internal, "externalTrafficPolicy": external,
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}),
        );
        object.status =
            serde_json::from_value(json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}})).unwrap();
        zone.put_service(object);
        for here in &conditions {
            for there in &conditions {
                let mut endpoints = slice("a", "web", 8080, &[]);
                endpoints.endpoints = serde_json::from_value(json!([
                    {"addresses": ["10.244.0.3"], "nodeName": "node1", "conditions": here},
                    {"addresses": ["10.244.1.3"], "nodeName": "node2", "conditions": there}]))
                .unwrap();
                zone.put_slice(endpoints);
                zone.settle();
                balance::check(&zone);
                // The case that was reported: only draining ones here, ready ones elsewhere.
                if *here == conditions[2] && *there == conditions[0] && external == "Local" {
                    assert_eq!(leads(&zone, "172.18.0.1:30080")[1], some(&["10.244.0.3:8080"]));
                    drained += 1;
                }
            }
        }
    }
    assert_eq!(drained, 2);
}

/// 41: the client's address stays, only local endpoints get traffic from outside, and a node without one refuses.
#[test]
fn external_policy_local() {
    let vips = ["172.18.0.1:30080", "203.0.113.1:80", "198.51.100.1:80"];
    let mut object = service(
        "web",
        json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.9"],
        "externalIPs": ["198.51.100.1"], "externalTrafficPolicy": "Local",
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}),
    );
    object.status =
        serde_json::from_value(json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}})).unwrap();
    let mut zone = zone();
    zone.start();
    zone.put_service(object);
    zone.put_slice(slice("a", "web", 8080, &[("10.244.0.3", "node1"), ("10.244.1.3", "node2")]));
    zone.settle();
    let keeps = |zone: &Zone, vip: &str| {
        balance::found(zone)[&(balance::Place::Router, "tcp", vip.to_owned())].keeps_source
    };
    for vip in vips {
        let [switch, router] = leads(&zone, vip);
        assert_eq!(router, some(&["10.244.0.3:8080"]), "{vip}");
        assert_eq!(switch, some(&["10.244.0.3:8080", "10.244.1.3:8080"]), "{vip}: clients inside have all");
        assert!(keeps(&zone, vip), "{vip}");
    }
    assert_eq!(leads(&zone, "169.254.169.3:30080"), [some(&["10.244.0.3:8080"]), None]);
    // No endpoint here any more: refused, also for what the host itself sends.
    zone.put_slice(slice("a", "web", 8080, &[("10.244.1.3", "node2")]));
    settle_watching(&mut zone, |zone| {
        for vip in vips {
            assert!(leads(zone, vip)[1].is_some(), "{vip} is not served for a moment");
        }
    });
    for vip in vips {
        assert_eq!(leads(&zone, vip)[1], some(&[]), "{vip}");
        assert!(!keeps(&zone, vip));
    }
    assert_eq!(leads(&zone, "169.254.169.3:30080")[0], some(&[]));
    assert_eq!(options(&zone, "reject"), ["true"]);
    assert_eq!(on_switch(&zone), some(&["10.244.1.3:8080"]), "the cluster address is another matter");
}

/// 42: local endpoints only, for pods of this node, with a named target port and with node ports switched off.
#[test]
fn internal_policy_local() {
    for node_ports in [true, false] {
        let mut zone = zone();
        let node = objects::with_gateway(objects::node("node1", 1, &["10.244.0.0/24"]), 1, node_ports, &[]);
        zone.nodes.insert("node1".into(), node);
        zone.start();
        zone.put_service(service(
            "web",
            json!({"clusterIP": "10.96.0.9", "internalTrafficPolicy": "Local",
            "ports": [{"name": "http", "port": 80, "targetPort": "web"}]}),
        ));
        zone.put_slice(slice("a", "web", 8080, &[("10.244.0.3", "node1")]));
        zone.put_slice(slice("b", "web", 9090, &[("10.244.1.3", "node2")]));
        zone.settle();
        assert_eq!(on_switch(&zone), some(&["10.244.0.3:8080"]));
        zone.remove_slice(&PodKey::new("shop", "a"));
        zone.settle();
        assert_eq!(on_switch(&zone), some(&[]), "no answer from others");
        assert_eq!(options(&zone, "reject"), ["true"]);
    }
}

/// 43: timeouts as OVN can keep them, said where they are shortened; switching affinity never leaves a gap.
#[test]
fn session_affinity() {
    let with = |seconds: Option<u32>| {
        let config = seconds.map(|seconds| json!({"clientIP": {"timeoutSeconds": seconds}}));
        let mut spec = cluster_ip();
        spec["sessionAffinity"] = json!("ClientIP");
        spec["sessionAffinityConfig"] = json!(config);
        service("web", spec)
    };
    let cases: [(Option<u32>, &str, Value); 7] = [
        (None, "10800", json!([])),
        (Some(1), "1", json!([])),
        (Some(600), "600", json!([])),
        (Some(65_535), "65535", json!([])),
        (Some(65_536), "65535", json!([])),
        (Some(86_399), "65535", json!([])),
        (Some(86_400), "-", json!(["ip_dst", "ip_src"])),
    ];
    let mut zone = zone();
    zone.start();
    zone.put_service(service("web", cluster_ip()));
    zone.put_slice(slice("a", "web", 8080, &[("10.244.0.3", "node1")]));
    zone.settle();
    for (seconds, timeout, fields) in cases {
        for object in [with(seconds), service("web", cluster_ip())] {
            let is_sticky = object.spec.session_affinity == "ClientIP";
            zone.put_service(object);
            settle_watching(&mut zone, |zone| assert_eq!(on_switch(zone), some(&["10.244.0.3:8080"])));
            let expected = if is_sticky { timeout } else { "-" };
            assert_eq!(options(&zone, "affinity_timeout"), [expected], "{seconds:?}");
            let row = &zone.nb.rows("Load_Balancer")[0];
            let found: Vec<&str> = row.get("selection_fields").expect("a column").strs().collect();
            assert_eq!(json!(found), if is_sticky { fields.clone() } else { json!([]) }, "{seconds:?}");
        }
        let warned = zone.service_warnings.drain(..).filter(|(_, text)| text.contains("shortened")).count();
        assert_eq!(warned, usize::from(matches!(seconds, Some(65_536 | 86_399))), "{seconds:?}");
    }
}

/// 45: nodes that go and come back, this one and others, with every kind of per-node load balancer.
#[test]
fn nodes_deleted_and_added_again() {
    let (services, slices) = objects::services(&scenario::Scenario::SERVICES);
    let mut zone = zone();
    let other = objects::with_gateway(objects::node("node2", 2, &["10.244.1.0/24"]), 2, true, &[]);
    let here = zone.nodes["node1"].clone();
    zone.nodes.insert("node2".into(), other.clone());
    zone.services = services.iter().map(|service| (key(service), service.clone())).collect();
    zone.slices = slices.iter().map(|slice| (key(slice), slice.clone())).collect();
    zone.start();
    zone.settle();
    let before = text(&zone.nb);
    for (node, object) in [("node2", &other), ("node1", &here)] {
        zone.remove_node(node);
        zone.settle();
        let rows = zone.nb.rows("Load_Balancer");
        let foreign = rows.iter().filter(|row| row.str("name").is_some_and(|name| name.ends_with("_node2")));
        assert_eq!(foreign.count(), 0);
        zone.put_node(object.clone());
        zone.settle();
        assert_eq!(text(&zone.nb), before, "{node}");
        zone.check_rest();
        zone.check_against_fresh();
    }
    // The gateway goes and comes back: its router with it, and everything that was on it.
    let plain = objects::node("node1", 1, &["10.244.0.0/24"]);
    let mut without = plain.clone();
    without
        .metadata
        .annotations
        .insert("k8s.ovn.org/l3-gateway-config".into(), json!({"default": {"mode": ""}}).to_string());
    zone.put_node(without);
    zone.settle();
    zone.check_rest();
    zone.put_node(here);
    zone.settle();
    assert_eq!(text(&zone.nb), before);
}

/// Leftovers of a node that was renamed or merged away while the controller was down.
#[test]
fn load_balancers_of_other_nodes_go() {
    let mut zone = zone();
    zone.services.insert(
        PodKey::new("shop", "web"),
        service(
            "web",
            json!({"type": "NodePort", "clusterIP": "10.96.0.9",
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}),
        ),
    );
    let before = {
        let mut clean = Zone::new("node1", false);
        clean.nodes = zone.nodes.clone();
        clean.services = zone.services.clone();
        clean.start();
        clean.settle();
        text(&clean.nb)
    };
    let mut old = Zone::new("node9", false);
    let node = objects::with_gateway(objects::node("node9", 1, &["10.244.0.0/24"]), 1, true, &[]);
    old.nodes.insert("node9".into(), node);
    old.services = zone.services.clone();
    old.start();
    old.settle();
    zone.nb = old.nb.clone();
    zone.start();
    zone.settle();
    assert_eq!(text(&zone.nb), before);
}

/// 46: an endpoint that is the node itself is reached at another address from the gateway router, which has the same
/// one; a node port is served at the node's addresses only.
#[test]
fn endpoints_on_the_host_of_the_same_node() {
    let mut zone = zone();
    zone.start();
    zone.put_service(service(
        "web",
        json!({"type": "NodePort", "clusterIP": "10.96.0.9",
        "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}),
    ));
    zone.put_slice(slice("a", "web", 8080, &[("172.18.0.1", "node1"), ("172.18.0.2", "node2")]));
    zone.settle();
    for vip in ["10.96.0.9:80", "172.18.0.1:30080"] {
        let [switch, router] = leads(&zone, vip);
        assert_eq!(switch, some(&["172.18.0.1:8080", "172.18.0.2:8080"]), "{vip}");
        assert_eq!(router, some(&["169.254.169.2:8080", "172.18.0.2:8080"]), "{vip}");
    }
    let served: Vec<String> = balance::found(&zone)
        .into_keys()
        .map(|(_, _, vip)| vip)
        .filter(|vip| vip.ends_with(":30080"))
        .collect();
    assert!(served.iter().all(|vip| vip == "172.18.0.1:30080") && served.len() == 2, "{served:?}");
    zone.put_slice(slice("a", "web", 8080, &[("10.244.0.3", "node1")]));
    zone.settle();
    balance::check(&zone);
}
