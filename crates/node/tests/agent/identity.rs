//! Who the node is: its name, its addresses, its families, its way out.

use serde_json::json;

use node::{Awaited, Settings};

use crate::api::Api;
use crate::machine::{Machine, eventually};
use crate::{Agent, SUBNETS, on, ready_node, registered};

const GATEWAY: &str = "k8s.ovn.org/l3-gateway-config";

fn awaits_gateway(agent: &Agent, part: &'static str) -> impl Future<Output = ()> {
    agent.awaiting(move |awaited| matches!(awaited, Awaited::Gateway { problem } if problem.contains(part)))
}

#[test]
fn the_hosts_own_name_does_not_matter() {
    let machine = Machine::start().with_gateway_bridge();
    machine.vsctl("--no-wait set Open_vSwitch . external_ids:hostname=node1.example.org");
    on(async {
        let api = registered();
        let agent = ready_node(&machine, &api).await;
        let chassis = api.annotation("k8s.ovn.org/node-chassis-id").unwrap();
        let ours = || {
            machine.vsctl("get Open_vSwitch . external_ids:hostname") == "node1"
                && machine.vsctl("get Open_vSwitch . external_ids:system-id").replace('"', "") == chassis
        };
        assert!(ours());
        // As start scripts of Open vSwitch do it after each start of the machine.
        machine.vsctl("set Open_vSwitch . external_ids:hostname=node1.example.org");
        eventually("the Node's name is there again", ours).await;
        agent.ready().await;
        agent.stop().await;
    });
}

#[test]
fn of_several_addresses_the_one_kubernetes_knows_is_the_nodes() {
    let machine = Machine::start().with_gateway_bridge();
    for net in ["172.18.0.90/24", "172.18.0.91/32", "192.0.2.9/24"] {
        machine.ip(&format!("addr add {net} dev breth0"));
    }
    on(async {
        let api = Api::default();
        api.register("uid-1", "172.18.0.90", json!({ SUBNETS: r#"{"default":["10.244.0.0/24"]}"# }));
        let agent = ready_node(&machine, &api).await;
        let said = |key: &str| api.annotation(&format!("k8s.ovn.org/{key}")).unwrap();
        assert_eq!(said("node-primary-ifaddr"), r#"{"ipv4":"172.18.0.90/24"}"#);
        assert_eq!(said("node-encap-ips"), r#"["172.18.0.90"]"#);
        assert!(said("l3-gateway-config").contains(r#""ip-address":"172.18.0.90/24""#));
        assert_eq!(
            said("host-cidrs"),
            r#"["172.18.0.1/24","172.18.0.90/24","172.18.0.91/32","192.0.2.9/24"]"#
        );
        agent.stop().await;
    });
}

fn v6_settings(machine: &Machine) -> Settings {
    let mut settings = machine.settings();
    settings.cluster_subnets = vec!["fd00:10:244::/48".parse().unwrap()];
    settings.service_cidrs = vec!["fd00:10:96::/112".parse().unwrap()];
    settings
}

fn v6_node(address: &str) -> Api {
    let api = Api::default();
    api.register("uid-1", address, json!({ SUBNETS: r#"{"default":["fd00:10:244:1::/64"]}"# }));
    api
}

#[test]
fn a_node_without_ipv4() {
    let machine = Machine::start().with_gateway_bridge();
    machine.ip("addr del 172.18.0.1/24 dev breth0");
    machine.ip("addr add fd00:172:18::1/64 dev breth0 nodad");
    machine.ip("-6 route add default via fd00:172:18::254");
    on(async {
        let api = v6_node("fd00:172:18::1");
        let agent = Agent::start(v6_settings(&machine), &api);
        agent.awaiting(|awaited| matches!(awaited, Awaited::Installed { .. })).await;
        machine.install_port();
        agent.ready().await;
        assert_eq!(machine.vsctl("get Open_vSwitch . external_ids:ovn-encap-ip"), "\"fd00:172:18::1\"");
        let gateway = api.annotation(GATEWAY).unwrap();
        assert!(gateway.contains(r#""ip-addresses":["fd00:172:18::1/64"]"#), "{gateway}");
        assert!(gateway.contains(r#""next-hops":["fd00:172:18::254"]"#), "{gateway}");
        let (v4, v6) = (machine.ip("-4 addr show dev breth0"), machine.ip("-6 addr show dev breth0"));
        assert!(!v4.contains("169.254.169.2") && v6.contains("fd69::2/125"), "{v4}{v6}");
        let flows = machine.flows();
        assert!(flows.contains("ipv6_dst=fd69::2") && !flows.contains("nw_dst=169.254"), "{flows}");
        agent.stop().await;
    });
}

#[test]
fn a_node_without_an_address_of_the_clusters_family_says_so_and_goes_on_when_it_has_one() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = v6_node("172.18.0.1");
        let agent = Agent::start(v6_settings(&machine), &api);
        agent.awaiting(|awaited| matches!(awaited, Awaited::Installed { .. })).await;
        machine.install_port();
        awaits_gateway(&agent, "bridge breth0 has no IPv6 address").await;
        assert!(!machine.path("net.d/10-ovn-kubernetes.conf").exists());
        machine.ip("addr add fd00:172:18::1/64 dev breth0 nodad");
        awaits_gateway(&agent, "no default route through breth0").await;
        machine.ip("-6 route add default via fd00:172:18::254");
        agent.ready().await;
        agent.stop().await;
    });
}

#[test]
fn no_default_route_yet() {
    let machine = Machine::start().with_gateway_bridge();
    machine.ip("route del default");
    on(async {
        let api = registered();
        let mut settings = machine.settings();
        settings.gateway.interface = String::new();
        let agent = Agent::start(settings, &api);
        agent.awaiting(|awaited| matches!(awaited, Awaited::Installed { .. })).await;
        machine.install_port();
        awaits_gateway(&agent, "there is no default route; name the interface with --gateway-interface")
            .await;
        machine.ip("route add default via 172.18.0.254");
        agent.ready().await;
        assert!(api.annotation(GATEWAY).unwrap().contains("172.18.0.254"));
        // A node that serves pods goes on with them.
        machine.ip("route del default");
        machine.ip("route add 192.0.2.0/24 via 172.18.0.253");
        machine.vsctl("set Open_vSwitch . external_ids:ovn-monitor-all=false");
        eventually("the agent has looked", || {
            machine.vsctl("get Open_vSwitch . external_ids:ovn-monitor-all") == "\"true\""
        })
        .await;
        assert_eq!(agent.status.ready(), Ok(()));
        assert!(machine.flows().contains("0xdeff105"));
        agent.stop().await;
    });
}
