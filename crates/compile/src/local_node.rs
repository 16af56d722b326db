//! This zone's own node: its switch, its ports on the cluster router, its management port.

use std::net::IpAddr;

use net::{Dual, Family, IpNet, Mac, nth_address};
use ovn::names::{self, ObjectIds};
use policy::Direction;
use world::NodeState;

use crate::acl;
use crate::cluster::{router_port, switch_port_to_router};
use crate::desired::{Desired, RowId};
use crate::identity;
use crate::settings::Settings;
use crate::table;

/// Priority of the policies that send traffic for the node itself through the management port.
const NODE_POLICY_PRIORITY: i64 = 1004;

pub(crate) fn rows(node: &NodeState, settings: &Settings) -> Desired {
    let mut desired = Desired::default();
    switch(&mut desired, settings, node);
    management_port(&mut desired, node);
    transit(&mut desired, settings, node);
    node_policies(&mut desired, node);
    desired
}

/// The address `offset` places into each of the node's subnets.
fn numbered(node: &NodeState, offset: u128) -> Dual<IpAddr> {
    let mut dual = Dual::default();
    for (family, subnet) in node.subnets.families() {
        if let Some(ip) = nth_address(subnet, offset) {
            dual.set(family, ip);
        }
    }
    dual
}

fn with_prefixes(ips: &Dual<IpAddr>, nets: &Dual<IpNet>) -> Dual<IpNet> {
    let mut dual = Dual::default();
    for (family, ip) in ips.families() {
        let net = nets.get(family).and_then(|net| IpNet::new(*ip, net.prefix_len()).ok());
        if let Some(net) = net {
            dual.set(family, net);
        }
    }
    dual
}

fn switch(desired: &mut Desired, settings: &Settings, node: &NodeState) {
    let mut config: Vec<(&str, String)> = Vec::new();
    if let Some(v4) = &node.subnets.v4 {
        config.push(("subnet", v4.to_string()));
    }
    if let Some(v6) = &node.subnets.v6 {
        config.push(("ipv6_prefix", v6.network().to_string()));
    }
    let gateway = with_prefixes(&numbered(node, 1), &node.subnets);
    if settings.multicast {
        config.push(("mcast_snoop", "true".into()));
        config.push(("mcast_querier", "true".into()));
        if let Some(first) = gateway.first() {
            config.push(("mcast_eth_src", Mac::from_ip(first.addr()).to_string()));
        }
        if let Some(v4) = &gateway.v4 {
            config.push(("mcast_ip4_src", v4.addr().to_string()));
        }
        if let Some(v6) = &gateway.v6 {
            config.push(("mcast_ip6_src", v6.addr().to_string()));
        }
    }
    let groups = [names::CLUSTER_LB_GROUP, names::SWITCH_LB_GROUP];
    desired
        .row(table::SWITCH, &*node.name)
        .set("name", &*node.name)
        .map("other_config", config)
        .refs("load_balancer_group", groups.map(|group| RowId::new(table::LOAD_BALANCER_GROUP, group)));

    let port = names::router_to_switch(&node.name);
    let row = router_port(desired, names::CLUSTER_ROUTER, &port, &gateway);
    let mtu = node.gateway_mtu.then(|| ("gateway_mtu", settings.mtu.to_string()));
    row.map("options", mtu);
    if let Some(chassis) = &node.chassis {
        let pin = names::gateway_chassis(&port, chassis);
        row.refs("gateway_chassis", [RowId::new(table::GATEWAY_CHASSIS, &*pin)]);
        desired
            .row(table::GATEWAY_CHASSIS, &*pin)
            .set("name", pin)
            .set("chassis_name", &**chassis)
            .set("priority", 1i64);
    }

    let cidrs: Vec<String> = settings.cluster_cidrs.iter().map(IpNet::to_string).collect();
    let arp_proxy = format!("0a:58:a9:fe:01:01 169.254.1.1 fe80::1 {}", cidrs.join(" "));
    let options = [("arp_proxy", arp_proxy.as_str()), ("router-port", port.as_str())];
    let uplink = names::switch_to_router(&node.name);
    switch_port_to_router(desired, &node.name, &uplink, &options);
    if settings.multicast {
        let group =
            RowId::new(table::PORT_GROUP, ObjectIds::named("Cluster", "clusterRtrPortGroup").primary());
        desired.member(group, "ports", RowId::new(table::SWITCH_PORT, uplink));
    }
}

fn management_port(desired: &mut Desired, node: &NodeState) {
    let addresses = numbered(node, 2);
    let Some(first) = addresses.first() else { return };
    let name = names::management_port(&node.name);
    let id = RowId::new(table::SWITCH_PORT, &*name);
    desired
        .row(table::SWITCH_PORT, &*name)
        .set("name", name)
        .set("addresses", names::port_addresses(Mac::from_ip(*first), addresses.iter().copied()));
    desired.member(RowId::new(table::SWITCH, &*node.name), "ports", id.clone());
    let group = RowId::new(table::PORT_GROUP, ObjectIds::named("Cluster", "clusterPortGroup").primary());
    desired.member(group, "ports", id);
    // The kubelet's probes come from here; they pass whatever policies say.
    for (family, ip) in addresses.families() {
        let keys = [(names::OBJECT_NAME, node.name.as_str()), ("ip", &ip.to_string())];
        let ids = ObjectIds::new("NetpolNode", &keys);
        let matching = format!("{}.src=={ip}", family.ovn());
        acl::allow(desired, RowId::new(table::SWITCH, &*node.name), &ids, Direction::Ingress, &matching);
    }
}

fn transit(desired: &mut Desired, settings: &Settings, node: &NodeState) {
    let Some(id) = node.id else { return };
    let name = names::router_to_transit(&node.name);
    let addresses = node.transit.families().filter(|(family, _)| settings.has_family(*family));
    let addresses = Dual::from_nets(addresses.map(|(_, net)| *net)).unwrap_or_default();
    router_port(desired, names::CLUSTER_ROUTER, &name, &addresses).map("options", [("mcast_flood", "true")]);
    let port = names::transit_to_router(&node.name);
    let key = id.to_string();
    let options = [("requested-tnl-key", key.as_str()), ("router-port", name.as_str())];
    switch_port_to_router(desired, names::TRANSIT_SWITCH, &port, &options)
        .entries("external_ids", [("node", node.name.as_str())]);
}

fn node_policies(desired: &mut Desired, node: &NodeState) {
    let management = numbered(node, 2);
    for cidr in &node.host_cidrs {
        let family = Family::of_net(cidr);
        let Some(next_hop) = management.get(family) else { continue };
        let inport = names::router_to_switch(&node.name);
        let matching =
            format!("inport == \"{inport}\" && {}.dst == {} /* {} */", family.ovn(), cidr.addr(), node.name);
        let row = desired.row(table::ROUTER_POLICY, identity::policy_name(NODE_POLICY_PRIORITY, &matching));
        row.set("priority", NODE_POLICY_PRIORITY)
            .set("match", matching)
            .set("action", "reroute")
            .strings("nexthops", [next_hop.to_string()]);
        let child = row.id.clone();
        desired.member(RowId::new(table::ROUTER, names::CLUSTER_ROUTER), "policies", child);
    }
}
