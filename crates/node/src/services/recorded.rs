//! Comparison with what the reference wrote for services of every kind.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use kapi::annotations::GatewayMode;
use net::Dual;
use serde_json::Value;
use service::{Place, Services};

use super::host_service::HostService;
use super::ledger::Ledger;
use super::state::element;
use super::wants::{self, Context};
use crate::gateway::flows::{self, Vlan};
use crate::gateway::nft_text::canonical;
use crate::gateway::service_flows::{self, BridgeContext};
use crate::gateway::{Bridge, Flow, Ports, nft, ofctl};
use crate::mgmt_port::Facts;
use crate::settings::Settings;

/// One of the two nodes of the recording.
struct Node {
    number: u8,
    settings: Settings,
    services: Vec<HostService>,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn table() -> Services {
    let objects: Vec<Value> =
        serde_json::from_str(include_str!("../../tests/data/services.objects.json")).unwrap();
    let mut table = Services::new();
    for object in objects {
        match object["kind"].as_str().unwrap() {
            "Service" => drop(table.apply_service(&serde_json::from_value(object).unwrap())),
            _ => drop(table.apply_slice(&serde_json::from_value(object).unwrap())),
        }
    }
    table
}

impl Node {
    fn new(number: u8, table: &Services) -> Node {
        let name = format!("node{number}");
        let nets = |text: &str| vec![text.parse().unwrap()];
        let mut settings = Settings::new(&name, nets("10.244.0.0/16"), nets("10.96.0.0/16"));
        settings.mtu = 1342;
        settings.gateway.egress_ip = true;
        settings.gateway.node_port = true;
        let place = Place { node: &name, zone: None };
        let keys: Vec<_> = table.services().map(|service| service.key.clone()).collect();
        let services = keys.iter().filter_map(|key| HostService::of(table, key, place)).collect();
        Node { number, settings, services }
    }

    fn own(&self) -> IpAddr {
        ip(&format!("172.18.0.{}", self.number))
    }

    fn other(&self) -> IpAddr {
        ip(&format!("172.18.0.{}", 3 - self.number))
    }

    fn context(&self) -> Context {
        Context {
            mode: self.settings.gateway.mode,
            node_ports: self.settings.gateway.node_port,
            host_ips: vec![self.own()],
            local_only: Dual { v4: Some(ip("169.254.169.3")), v6: None },
        }
    }

    fn bridge(&self) -> BridgeContext {
        BridgeContext {
            mac: format!("02:42:ac:12:00:0{}", self.number).parse().unwrap(),
            ports: Ports { uplink: Some(1), patch: 2 },
            node: Dual { v4: Some(self.own()), v6: None },
            vlan: Vlan(0),
            zone: 64_000,
        }
    }

    fn service_flows(&self) -> Vec<Flow> {
        let mut flows: BTreeMap<(u8, u16, String), Flow> = BTreeMap::new();
        for service in &self.services {
            for flow in service_flows::desired(&self.context(), &self.bridge(), service) {
                flows.insert((flow.table, flow.priority, flow.matches.clone()), flow);
            }
        }
        flows.into_values().collect()
    }

    fn flows(&self) -> Vec<Flow> {
        let BridgeContext { mac, ports, node, .. } = self.bridge();
        let node = node.map(|ip| IpNet::new(*ip, 24).unwrap());
        let inputs = flows::Inputs {
            bridge: Bridge { name: "breth0".into(), mac, node, userspace: false },
            ports,
            host_cidrs: node.iter().copied().collect(),
            node_subnets: Vec::new(),
            remote_nodes: vec![self.other()],
        };
        let mut all = flows::desired(&self.settings, &inputs);
        all.extend(self.service_flows());
        all
    }

    fn firewall(&self) -> nft::Table {
        let subnet: IpNet = format!("10.244.{}.0/24", self.number - 1).parse().unwrap();
        let inputs = nft::Inputs {
            port: Facts::from_subnets(&self.settings.node, &[subnet]).unwrap(),
            remote_nodes: [self.other()].into(),
            userspace_uplinks: vec![],
            forwards_all_v6: false,
        };
        let mut table = nft::desired(&self.settings, &inputs);
        let mut ledger = Ledger::default();
        for service in &self.services {
            let firewall = wants::firewall(&self.context(), service);
            ledger.replace(&service.service.key, [], firewall.elements);
        }
        for ((set, key), value) in ledger.iter() {
            let key: &String = key;
            let value: &Option<String> = value;
            let set: &wants::SetName = set;
            table.insert(set.0, element(key, value.as_deref()));
        }
        table
    }
}

#[test]
fn flows_of_both_nodes_as_recorded() {
    let table = table();
    for (number, recorded) in [
        (1, include_str!("../../tests/data/services1.flows.txt")),
        (2, include_str!("../../tests/data/services2.flows.txt")),
    ] {
        let recorded = ofctl::parse_dump(recorded).unwrap();
        let wanted = Node::new(number, &table).flows();
        let bundle = ofctl::bundle(&recorded, &wanted);
        assert!(bundle.is_empty(), "node{number} differs from the record: {bundle:#?}");
        // The record has one more flow: the one that lets everything else pass.
        assert_eq!(recorded.len(), wanted.len() + 1);
        // Ports of a service share flows, which carry the cookie of either.
        let cookies = |flows: &[Flow]| -> BTreeSet<u64> { flows.iter().map(|flow| flow.cookie).collect() };
        assert_eq!(cookies(&recorded).difference(&cookies(&wanted)).collect::<Vec<_>>(), [&0]);
    }
}

#[test]
fn flows_of_services_that_are_gone_are_deleted_and_nobody_elses() {
    let table = table();
    let recorded = ofctl::parse_dump(include_str!("../../tests/data/services1.flows.txt")).unwrap();
    let node = Node::new(1, &table);
    let bundle = ofctl::bundle(&recorded, &[]);
    assert_eq!(bundle.len(), recorded.len() - 1, "all but the last are ours");
    let foreign = Flow { cookie: 7, ..node.service_flows()[0].clone() };
    assert!(ofctl::bundle(&[foreign], &[]).is_empty());
}

#[test]
fn firewall_of_both_nodes_as_recorded() {
    let table = table();
    for (number, recorded) in [
        (1, include_str!("../../tests/data/services1.nft.txt")),
        (2, include_str!("../../tests/data/services2.nft.txt")),
    ] {
        let recorded = canonical(recorded).unwrap();
        let ours = canonical(&Node::new(number, &table).firewall().text()).unwrap();
        for (name, block) in &recorded {
            assert_eq!(ours.get(name), Some(block), "node{number} {name}");
        }
        assert_eq!(ours.keys().filter(|name| !nft::is_addition(name)).count(), recorded.len());
        // The difference: services without endpoints are refused by the host.
        assert!(ours["set refused-services-v4"].contains("10.96.10.3 . tcp . 80"));
    }
}

fn local_mode(number: u8, change: impl Fn(&mut Value)) -> Node {
    let mut table = Services::new();
    let objects: Vec<Value> =
        serde_json::from_str(include_str!("../../tests/data/services.objects.json")).unwrap();
    for mut object in objects {
        change(&mut object);
        match object["kind"].as_str().unwrap() {
            "Service" => drop(table.apply_service(&serde_json::from_value(object).unwrap())),
            _ => drop(table.apply_slice(&serde_json::from_value(object).unwrap())),
        }
    }
    let mut node = Node::new(number, &table);
    node.settings.gateway.mode = GatewayMode::Local;
    node
}

fn entries(node: &Node, set: &str) -> Vec<String> {
    let table = node.firewall();
    table.sets.iter().find(|known| known.name == set).unwrap().elements.iter().cloned().collect()
}

#[test]
fn in_local_mode_the_host_translates_and_only_neighbours_are_answered_on_the_bridge() {
    let node = local_mode(1, |_| {});
    assert_eq!(entries(&node, "nodeports-etp-local-v4"), ["tcp . 30086 : 169.254.169.3 . 30086"]);
    assert_eq!(entries(&node, "mgmtport-no-snat-nodeports"), ["tcp . 30086"]);
    let flows = node.service_flows();
    assert!(flows.iter().all(|flow| flow.matches.starts_with("arp,")), "{flows:?}");
    assert_eq!(flows.len(), 3);
}

fn on(object: &Value, kind: &str, name: &str) -> bool {
    object["kind"] == kind && object["metadata"]["name"] == name
}

#[test]
fn what_must_stay_on_the_node_reaches_the_host_itself_with_the_clients_address() {
    let local = |object: &mut Value| {
        if on(object, "Service", "hostnet") {
            object["spec"]["externalTrafficPolicy"] = "Local".into();
            object["spec"]["internalTrafficPolicy"] = "Local".into();
        }
    };
    for mode in [GatewayMode::Local, GatewayMode::Shared] {
        let mut node = local_mode(2, local);
        node.settings.gateway.mode = mode;
        let flows: Vec<String> = node
            .service_flows()
            .iter()
            .filter(|flow| flow.table != 0 || flow.matches.contains("30088") || flow.matches.contains("8080"))
            .map(|flow| format!("{} {} -> {}", flow.table, flow.matches, flow.actions))
            .collect();
        assert_eq!(
            flows,
            [
                "0 tcp,in_port=1,tp_dst=30088 -> ct(commit,table=6,zone=64003,nat(dst=172.18.0.2:8080))",
                "0 tcp,in_port=LOCAL,tp_src=8080 -> ct(table=7,zone=64003,nat)",
                "6  -> LOCAL",
                "7  -> output:1",
            ]
        );
        let redirected = entries(&node, "itp-services-to-redirect-v4");
        assert_eq!(redirected, ["10.96.10.8 . tcp . 80 : 8080"]);
        assert!(!entries(&node, "mgmtport-no-snat-nodeports").contains(&"tcp . 30088".to_owned()));
        // Elsewhere there is no endpoint, and OVN refuses.
        let other = local_mode(1, local);
        assert!(other.service_flows().iter().all(|flow| flow.table == 0));
        assert!(entries(&other, "itp-services-to-mark-v4").contains(&"10.96.10.8 . tcp . 80".to_owned()));
    }
}

#[test]
fn without_a_node_port_local_endpoints_are_chosen_here_and_nowhere_else() {
    let local = |object: &mut Value| {
        if on(object, "Service", "lb-no-nodeport") {
            object["spec"]["externalTrafficPolicy"] = "Local".into();
        }
    };
    let rules = |number| {
        let node = local_mode(number, local);
        let service = node.services.iter().find(|one| one.service.key.name() == "lb-no-nodeport").unwrap();
        (wants::firewall(&node.context(), service).rules, entries(&node, "mgmtport-no-snat-services-v4"))
    };
    let (here, kept) = rules(2);
    assert_eq!(
        here,
        [
            "ip daddr 203.0.113.11 tcp dport 80 dnat ip to numgen random mod 1 map { 0 : 10.244.1.3 . 8080 } comment \
          \"shop/lb-no-nodeport:http\""
        ]
    );
    assert_eq!(kept, ["10.244.1.3 . tcp . 8080"]);
    let (elsewhere, kept) = rules(1);
    assert_eq!(elsewhere, ["ip daddr 203.0.113.11 tcp dport 80 drop comment \"shop/lb-no-nodeport:http\""]);
    assert!(kept.is_empty());
}

#[test]
fn a_load_balancer_for_some_clients_refuses_the_others() {
    let reserved = |object: &mut Value| {
        if on(object, "Service", "lb-local") {
            object["spec"]["loadBalancerSourceRanges"] =
                serde_json::json!(["192.0.2.0/24", "198.51.100.7/32"]);
        }
    };
    for (mode, goes_on) in
        [(GatewayMode::Shared, "output:2"), (GatewayMode::Local, "ct(table=1,zone=64000,nat)")]
    {
        let mut node = local_mode(1, reserved);
        node.settings.gateway.mode = mode;
        let flows: Vec<String> = node
            .service_flows()
            .iter()
            .filter(|flow| flow.matches.contains("nw_dst=203.0.113.6,tp_dst=80"))
            .map(|flow| format!("{} {} -> {}", flow.priority, flow.matches, flow.actions))
            .collect();
        let entry = "tcp,in_port=1,nw_dst=203.0.113.6,tp_dst=80";
        assert_eq!(
            flows,
            [
                format!("109 {entry} -> drop"),
                format!("110 {entry},nw_src=192.0.2.0/24 -> {goes_on}"),
                format!("110 {entry},nw_src=198.51.100.7 -> {goes_on}"),
            ]
        );
    }
}

#[test]
fn without_node_ports_only_what_starts_on_the_node_is_served() {
    let mut node = local_mode(1, |_| {});
    node.settings.gateway.node_port = false;
    assert!(node.service_flows().is_empty());
    assert!(entries(&node, "nodeports-v4").is_empty() && entries(&node, "external-ips-v4").is_empty());
    assert_eq!(entries(&node, "itp-services-to-mark-v4"), ["10.96.10.7 . tcp . 80"]);
}
