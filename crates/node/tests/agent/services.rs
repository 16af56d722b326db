//! Services on the host: what they write, and that a change writes no more than it changes.

use std::collections::BTreeSet;
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::machine::{Machine, eventually};
use crate::{Agent, on, ready_node, registered};

/// The objects of the recorded scenario.
fn recorded_objects() -> Vec<Value> {
    serde_json::from_str(include_str!("../data/services.objects.json")).unwrap()
}

/// Flows as text, without cookies where several ports of a service share a flow.
fn comparable(flows: &str) -> BTreeSet<String> {
    let lines = flows.lines().map(str::trim).filter(|line| line.contains("actions="));
    lines
        .map(|line| match line.split_once(", ") {
            Some((_, rest)) if line.contains(",arp,") || line.contains(",icmp,") => rest.to_owned(),
            _ => line.to_owned(),
        })
        .collect()
}

/// The cookies of all flows, as often as they occur.
fn cookies(flows: &str) -> Vec<String> {
    let mut all: Vec<String> = flows
        .lines()
        .filter(|line| line.contains("actions="))
        .filter_map(|line| Some(line.trim().split_once(", ")?.0.to_owned()))
        .collect();
    all.sort();
    all
}

fn recorded_flows() -> BTreeSet<String> {
    let recorded = include_str!("../data/services1.flows.txt");
    // Egress IPs are not switched on here, and in userspace pieces of packets pass the reassembly once.
    let lines =
        recorded.lines().filter(|line| !line.contains("priority=105,") && !line.contains("priority=103,"));
    let once = |line: &str| line.replace("priority=110,ip,", "priority=110,ct_state=-trk,ip,");
    comparable(&lines.map(once).collect::<Vec<_>>().join("\n"))
}

/// The elements of every set and map of a listing.
fn elements(firewall: &str) -> Vec<(String, BTreeSet<String>)> {
    let mut found = Vec::new();
    let mut name = String::new();
    let text = firewall.replace('\n', " ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut at = 0;
    while at < words.len() {
        match words[at] {
            "set" | "map" if words.get(at + 2) == Some(&"{") => words[at + 1].clone_into(&mut name),
            "elements" => {
                let rest = words[at + 3..].join(" ");
                let list = rest.split(" }").next().unwrap_or_default();
                found.push((name.clone(), list.split(", ").map(str::to_owned).collect()));
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Handles of everything but elements: they stay where only those change.
fn handles(machine: &Machine) -> BTreeSet<String> {
    machine.firewall_handles().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn services_of_every_kind_are_written_as_recorded_and_leave_nothing_behind() {
    let mut machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        api.register_other("node2", "172.18.0.2");
        let agent = ready_node(&machine, &api).await;
        let (empty, bare, before) = (machine.flows(), elements(&machine.firewall()), handles(&machine));
        let objects = recorded_objects();
        for object in &objects {
            api.serve(object.clone());
        }
        eventually("the recorded flows", || comparable(&machine.flows()) == recorded_flows()).await;
        let recorded = elements(include_str!("../data/services1.nft.txt"));
        assert!(recorded.len() > 5, "{recorded:?}");
        let sorted = |mut list: Vec<(String, BTreeSet<String>)>| {
            // The difference: services without endpoints are refused by the host.
            list.retain(|(name, _)| !name.starts_with("refused-"));
            list.sort();
            list
        };
        let recorded = sorted(recorded);
        eventually("the recorded elements", || sorted(elements(&machine.firewall())) == recorded).await;
        assert_eq!(handles(&machine), before, "only elements were written");
        agent.stop().await;

        let (flows, firewall) = (machine.flows(), machine.firewall_handles());
        let target = format!("unix:{}", machine.path("breth0.mgmt").display());
        let stale = "cookie=0x1234567812345678,priority=110,tcp,in_port=1,tp_dst=30999,actions=output:2";
        machine.run("ovs-ofctl", &["-O", "OpenFlow13", "add-flow", &target, stale]);
        let agent = Agent::start(machine.settings(), &api);
        agent.ready().await;
        assert_eq!(comparable(&machine.flows()), comparable(&flows), "a flow of a service that is gone goes");
        assert_eq!(machine.firewall_handles(), firewall, "nothing was written");
        machine.stop_vswitchd();
        machine.start_vswitchd();
        eventually("the flows after a restart of the switch", || {
            machine.path("breth0.mgmt").exists()
                && machine.try_flows().is_some_and(|shown| shown.contains("tp_dst=30080"))
        })
        .await;
        // Its ports may have other numbers now; the flows are the same ones.
        assert_eq!(cookies(&machine.flows()), cookies(&flows));

        for object in objects {
            let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap();
            api.withdraw(text("/kind"), text("/metadata/name"));
        }
        eventually("no flows of services", || comparable(&machine.flows()) == comparable(&empty)).await;
        eventually("no elements", || elements(&machine.firewall()) == bare).await;
        agent.stop().await;
    });
}

#[test]
fn a_port_that_somebody_has_is_reported_on_the_service() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        let agent = ready_node(&machine, &api).await;
        let taken = TcpListener::bind("0.0.0.0:30080").unwrap();
        let node_port =
            recorded_objects().into_iter().find(|object| object["metadata"]["name"] == "nodeport");
        api.serve(node_port.unwrap());
        eventually("the event", || api.events().iter().any(|reason| reason == "PortClaim")).await;
        eventually("the service all the same", || machine.firewall().contains("30080")).await;
        drop(taken);
        api.withdraw("Service", "nodeport");
        eventually("the port is free", || TcpListener::bind("0.0.0.0:30080").is_ok()).await;
        agent.stop().await;
    });
}

#[test]
fn external_addresses_without_a_node_port_choose_a_local_endpoint_in_the_firewall() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        let agent = ready_node(&machine, &api).await;
        let before = handles(&machine);
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "lb", "namespace": "n" },
            "spec": { "type": "LoadBalancer", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
                "externalTrafficPolicy": "Local", "allocateLoadBalancerNodePorts": false,
                "ports": [{ "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" }] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "203.0.113.7" }] } },
        });
        api.serve(service);
        // What has no endpoint here goes nowhere.
        eventually("refused", || machine.firewall().contains("ip daddr 203.0.113.7 tcp dport 80 drop")).await;
        let endpoint =
            |ip: &str| json!({ "addresses": [ip], "nodeName": "node1", "conditions": { "ready": true } });
        let slice = |endpoints: Value| {
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": { "name": "lb-1", "namespace": "n", "labels": { "kubernetes.io/service-name": "lb" } },
                "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }], "endpoints": endpoints,
            })
        };
        api.serve(slice(json!([endpoint("10.244.0.7"), endpoint("10.244.0.8")])));
        eventually("both", || {
            let firewall = machine.firewall();
            firewall.contains("numgen random mod 2")
                && firewall.contains("10.244.0.7 . tcp . 8080")
                && firewall.contains("10.244.0.8 . tcp . 8080")
        })
        .await;
        api.serve(slice(json!([endpoint("10.244.0.8")])));
        eventually("one", || {
            let firewall = machine.firewall();
            firewall.contains("numgen random mod 1") && !firewall.contains("10.244.0.7")
        })
        .await;
        assert!(handles(&machine).is_superset(&before), "only the rules of one chain were written");
        // What nft prints is what was meant: a second start has nothing to write.
        agent.stop().await;
        let before = handles(&machine);
        let agent = Agent::start(machine.settings(), &api);
        agent.ready().await;
        assert_eq!(handles(&machine), before);
        agent.stop().await;
    });
}

#[test]
fn clean_up_takes_what_services_left() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        let bare = comparable(&machine.flows());
        let agent = ready_node(&machine, &api).await;
        for object in recorded_objects() {
            api.serve(object);
        }
        eventually("flows of services", || machine.flows().contains("tp_dst=30080")).await;
        eventually("elements of services", || machine.firewall().contains("30080")).await;
        agent.stop().await;
        node::cleanup(&machine.settings()).await.unwrap();
        assert_eq!(comparable(&machine.flows()), bare);
        assert_eq!(machine.firewall(), "");
    });
}
