//! The gateway's side of the host: flows, firewall and routes, against real Open vSwitch, nft and a real kernel.

use crate::machine::{Machine, eventually};
use crate::{on, ready_node, registered};

/// Sections of the record that concern the bridge, and what ours says in the same words.
fn about_bridge(machine: &Machine) -> Vec<String> {
    let text =
        machine.ip("route show dev breth0") + "\n" + &machine.ip("neigh show dev breth0 nud permanent");
    let mut lines: Vec<String> = text
        .lines()
        // The record's route to OVN's side has the widest scope; ours, as every route without a next hop, link scope.
        .map(|line| line.replace(" scope link", "").trim().to_owned())
        .collect();
    lines.sort();
    lines
}

#[test]
fn host_flows_and_firewall_as_recorded_and_a_second_start_writes_nothing() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        api.register_other("node2", "172.18.0.2");
        let agent = ready_node(&machine, &api).await;
        assert_eq!(
            about_bridge(&machine),
            [
                "10.96.0.0/16 via 169.254.169.4 src 169.254.169.2 mtu 1342",
                "169.254.169.0/29 proto kernel src 169.254.169.2",
                "169.254.169.1 lladdr 0a:58:a9:fe:a9:01 PERMANENT",
                "169.254.169.1 src 172.18.0.1",
                "169.254.169.4 lladdr 0a:58:a9:fe:a9:04 PERMANENT",
                "172.18.0.0/24 proto kernel src 172.18.0.1",
                "default via 172.18.0.254",
            ]
        );
        assert!(machine.offloads("breth0").contains("tx-checksumming: off"));
        let (flows, firewall) = (machine.flows(), machine.firewall());
        assert!(firewall.contains("elements = { 172.18.0.2 }"), "{firewall}");
        // Egress IPs are not switched on here; everything else is as recorded.
        let recorded = include_str!("../data/shared.flows.txt");
        let expected = recorded
            .lines()
            .filter(|line| !line.contains("priority=105,") && !line.contains("priority=103,"));
        // In userspace pieces of packets pass the reassembly once.
        let once = |line: &str| line.replace("priority=110,ip", "priority=110,ct_state=-trk,ip");
        let mut expected: Vec<String> = expected.map(|line| once(line.trim())).collect();
        let ports = machine.vsctl("get Interface eth0 ofport");
        assert_eq!(ports, "1");
        let mut actual: Vec<&str> =
            flows.lines().map(str::trim).filter(|line| line.contains("actions=")).collect();
        expected.sort_unstable();
        actual.sort_unstable();
        assert_eq!(actual, expected);
        agent.stop().await;

        let (host, transactions) = (machine.monitor_host(), machine.transactions());
        let handles = machine.firewall_handles();
        let agent = crate::Agent::start(machine.settings(), &api);
        agent.ready().await;
        assert_eq!(host.stop(), "");
        assert_eq!(machine.transactions(), transactions);
        assert_eq!(machine.firewall_handles(), handles);
        assert_eq!(machine.flows(), flows);
        agent.stop().await;
    });
}

#[test]
fn foreign_flows_stay_and_a_restarted_switch_gets_ours_back() {
    let mut machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        let agent = ready_node(&machine, &api).await;
        let target = format!("unix:{}", machine.path("breth0.mgmt").display());
        machine.run(
            "ovs-ofctl",
            &["-O", "OpenFlow13", "add-flow", &target, "cookie=0x77,priority=7,tcp,actions=NORMAL"],
        );
        api.register_other("node9", "172.18.0.9");
        eventually("the new node's flow", || machine.flows().contains("nw_dst=172.18.0.9")).await;
        eventually("the new node's element", || machine.firewall().contains("172.18.0.9")).await;
        assert!(machine.flows().contains("cookie=0x77"));
        machine.stop_vswitchd();
        machine.start_vswitchd();
        eventually("our flows", || {
            machine.path("breth0.mgmt").exists()
                && machine.try_flows().is_some_and(|f| f.contains("0xdeff105"))
        })
        .await;
        agent.stop().await;
    });
}

#[test]
fn what_somebody_takes_off_the_bridge_comes_back() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        let agent = ready_node(&machine, &api).await;
        let before = about_bridge(&machine);
        machine.ip("route del 10.96.0.0/16");
        eventually("the route", || about_bridge(&machine) == before).await;
        machine.ip("addr del 169.254.169.2/29 dev breth0");
        eventually("the address", || about_bridge(&machine) == before).await;
        let firewall = machine.firewall();
        machine.nft("flush ruleset");
        eventually("the table", || machine.firewall() == firewall).await;
        machine.nft("flush chain inet ovn-kubernetes mgmtport-snat");
        eventually("the rules", || machine.firewall() == firewall).await;
        let handles = machine.firewall_handles();
        machine.nft("add table ip other");
        machine.nft("add element inet ovn-kubernetes remote-node-ips-v4 { 192.0.2.1 }");
        eventually("the elements", || machine.firewall() == firewall).await;
        assert_ne!(machine.firewall_handles(), handles);
        agent.stop().await;
    });
}

#[test]
fn a_node_in_a_vlan() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        let mut settings = machine.settings();
        settings.gateway.vlan_id = 100;
        let agent = crate::Agent::start(settings, &api);
        agent.awaiting(|awaited| matches!(awaited, node::Awaited::Installed { .. })).await;
        machine.install_port();
        agent.ready().await;
        assert_eq!(machine.vsctl("get Port breth0 tag"), "100");
        // The switch takes the flows only where a packet that is to lose its VLAN must have one.
        let flows = machine.flows();
        assert!(flows.contains("dl_vlan=100 actions=pop_vlan,LOCAL"), "{flows}");
        agent.stop().await;
        let transactions = machine.transactions();
        let mut settings = machine.settings();
        settings.gateway.vlan_id = 100;
        let agent = crate::Agent::start(settings, &api);
        agent.ready().await;
        assert_eq!((machine.transactions(), machine.flows()), (transactions, flows));
        agent.stop().await;
    });
}
