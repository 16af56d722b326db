//! The way out of the cluster on this zone's node: gateway router, external switch, routes and translation.

use std::net::IpAddr;

use kapi::annotations::{GatewayConfig, GatewayMode};
use net::{Dual, Family, IpNet, Mac, nth_address};
use ovn::names;
use world::NodeState;

use crate::cluster::{router_port, switch_port_to_router};
use crate::desired::{Desired, RowId};
use crate::identity;
use crate::routes::{self, Route};
use crate::settings::Settings;
use crate::table;

/// Place of the next hop in the masquerade range that stands for the host.
const DUMMY_NEXT_HOP: u128 = 4;

/// The rows; `None` while the node has not said what its gateway is.
pub(crate) fn rows(node: &NodeState, settings: &Settings) -> Option<Desired> {
    let mut desired = Desired::default();
    let config = node.gateway.as_ref()?;
    if config.mode == GatewayMode::Disabled {
        return Some(desired);
    }
    let (id, chassis) = (node.id?, node.chassis.as_deref()?);
    let gateway = Gateway {
        settings,
        node,
        config,
        router: names::gateway_router(&node.name),
        join: settings.numbered(&settings.join, id),
        outside: Dual::from_ips(config.addresses.iter().map(IpNet::addr)),
    };
    gateway.router(&mut desired, chassis);
    let first = Way {
        prefix: "",
        network: names::PHYSICAL_NETWORK,
        interface_id: &config.interface_id,
        mac: config.mac,
        addresses: &config.addresses,
        vlan: config.vlan_id,
    };
    let second = config.external.as_ref().map(|external| Way {
        prefix: names::EXTERNAL_PREFIX,
        network: names::EXTERNAL_NETWORK,
        interface_id: &external.interface_id,
        mac: external.mac,
        addresses: &external.addresses,
        vlan: 0,
    });
    for way in [first].iter().chain(&second) {
        gateway.way(&mut desired, way);
    }
    gateway.router_routes(&mut desired);
    gateway.cluster_routes(&mut desired);
    gateway.translation(&mut desired);
    Some(desired)
}

struct Gateway<'a> {
    settings: &'a Settings,
    node: &'a NodeState,
    config: &'a GatewayConfig,
    router: String,
    join: Dual<IpNet>,
    outside: Dual<IpAddr>,
}

/// A bridge to the outside, seen from OVN.
struct Way<'a> {
    prefix: &'static str,
    network: &'static str,
    interface_id: &'a str,
    mac: Option<Mac>,
    addresses: &'a [IpNet],
    vlan: u16,
}

impl Gateway<'_> {
    fn router(&self, desired: &mut Desired, chassis: &str) {
        let addresses: Vec<String> = self.config.addresses.iter().map(|net| net.addr().to_string()).collect();
        let mut groups = vec![names::CLUSTER_LB_GROUP];
        if self.config.node_port {
            groups.push(names::ROUTER_LB_GROUP);
        }
        desired
            .row(table::ROUTER, &*self.router)
            .set("name", &*self.router)
            .map(
                "options",
                [
                    ("always_learn_from_arp_request", "false"),
                    ("chassis", chassis),
                    ("dynamic_neigh_routers", "false"),
                    ("lb_force_snat_ip", "router_ip"),
                    ("mac_binding_age_threshold", "300"),
                    ("snat-ct-zone", "0"),
                ],
            )
            .entries(
                "external_ids",
                [
                    ("physical_ip", addresses.first().cloned().unwrap_or_default()),
                    ("physical_ips", addresses.join(",")),
                ],
            )
            .refs("copp", [RowId::new(table::COPP, names::COPP)])
            .refs(
                "load_balancer_group",
                groups.into_iter().map(|name| RowId::new(table::LOAD_BALANCER_GROUP, name)),
            );

        let port = names::router_to_join(&self.router);
        let mtu = self.node.gateway_mtu.then(|| ("gateway_mtu", self.settings.mtu.to_string()));
        router_port(desired, &self.router, &port, &self.join).map("options", mtu);
        let peer = names::join_to_router(&self.router);
        switch_port_to_router(desired, names::JOIN_SWITCH, &peer, &[("router-port", &port)]);
    }

    /// The gateway router's port, the switch behind it and that switch's port to the bridge.
    fn way(&self, desired: &mut Desired, way: &Way<'_>) {
        let node = &self.node.name;
        let mac = way.mac.map(|mac| mac.to_string()).unwrap_or_default();
        let out = format!("{}{}", way.prefix, names::gateway_to_external(node));
        desired.member(
            RowId::new(table::ROUTER, &*self.router),
            "ports",
            RowId::new(table::ROUTER_PORT, &*out),
        );
        desired
            .row(table::ROUTER_PORT, &*out)
            .set("name", &*out)
            .set("mac", &*mac)
            .strings("networks", way.addresses.iter().map(IpNet::to_string))
            .entries("external_ids", [("gateway-physical-ip", "yes")]);

        let switch = format!("{}{}", way.prefix, names::external_switch(node));
        desired.row(table::SWITCH, &*switch).set("name", &*switch);
        let localnet = RowId::new(table::SWITCH_PORT, way.interface_id);
        desired.member(RowId::new(table::SWITCH, &*switch), "ports", localnet);
        let row = desired.row(table::SWITCH_PORT, way.interface_id);
        row.set("name", way.interface_id)
            .set("type", "localnet")
            .set("addresses", "unknown")
            .map("options", [("network_name", way.network)]);
        row.set("tag_request", (way.vlan != 0).then(|| i64::from(way.vlan)));
        let port = format!("{}{}", way.prefix, names::external_to_gateway(node));
        let options = [
            ("router-port", out.as_str()),
            ("nat-addresses", "router"),
            ("exclude-lb-vips-from-garp", "true"),
        ];
        let row = switch_port_to_router(desired, &switch, &port, &options);
        row.columns.retain(|(column, _)| *column != "addresses");
        row.set("addresses", mac);
    }

    fn router_routes(&self, desired: &mut Desired) {
        let outside = names::gateway_to_external(&self.node.name);
        for (family, cluster_hop) in self.settings.numbered(&self.settings.join, 1).families() {
            let next_hop = cluster_hop.addr().to_string();
            for cidr in self.settings.cluster_cidrs.iter().filter(|net| Family::of_net(net) == family) {
                let route = Route { prefix: &cidr.to_string(), next_hop: &next_hop, ..Route::default() };
                routes::add(desired, &self.router, route);
            }
            let Some(masquerade) = self.settings.masquerade.get(family) else { continue };
            let Some(dummy) = nth_address(masquerade, DUMMY_NEXT_HOP) else { continue };
            let prefix = masquerade.trunc().to_string();
            let next_hop = dummy.to_string();
            let route =
                Route { prefix: &prefix, next_hop: &next_hop, by_source: false, output_port: &outside };
            routes::add(desired, &self.router, route)
                .entries("external_ids", [(names::MASQUERADE_ROUTE, "")]);
            let port = &*outside;
            desired
                .row(table::STATIC_MAC_BINDING, identity::binding_name(port, &next_hop))
                .set("logical_port", port)
                .set("ip", &*next_hop)
                .set("mac", Mac::from_ip(dummy).to_string())
                .set("override_dynamic_mac", true);
        }
        for next_hop in self.config.next_hops.iter().filter(|ip| self.settings.has_family(Family::of(**ip))) {
            let prefix = if next_hop.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            let next_hop = next_hop.to_string();
            let route = Route { prefix, next_hop: &next_hop, by_source: false, output_port: &outside };
            routes::add(desired, &self.router, route);
        }
    }

    /// What leaves the node's pods for the outside goes to the gateway router, or in local mode to the host.
    fn cluster_routes(&self, desired: &mut Desired) {
        for (family, join) in self.join.families() {
            let gateway = join.addr().to_string();
            let route = Route { prefix: &gateway, next_hop: &gateway, ..Route::default() };
            routes::add(desired, names::CLUSTER_ROUTER, route);
            for cidr in self.settings.cluster_cidrs.iter().filter(|net| Family::of_net(net) == family) {
                let prefix = cidr.to_string();
                let route = Route { prefix: &prefix, next_hop: &gateway, by_source: true, output_port: "" };
                routes::add(desired, names::CLUSTER_ROUTER, route);
            }
            let Some(subnet) = self.node.subnets.get(family) else { continue };
            let host = nth_address(subnet, 2).map(|ip| ip.to_string());
            let next_hop = match self.config.mode {
                GatewayMode::Local => host.as_deref().unwrap_or(&gateway),
                _ => &gateway,
            };
            let prefix = subnet.to_string();
            let route = Route { prefix: &prefix, next_hop, by_source: true, output_port: "" };
            routes::add(desired, names::CLUSTER_ROUTER, route);
        }
    }

    fn translation(&self, desired: &mut Desired) {
        for (family, join) in self.join.families() {
            let Some(outside) = self.outside.get(family) else { continue };
            let mut inside = vec![join.addr().to_string()];
            if !self.settings.snat_per_pod {
                let cidrs = self.settings.cluster_cidrs.iter().filter(|net| Family::of_net(net) == family);
                inside.extend(cidrs.map(IpNet::to_string));
            }
            for logical in inside {
                source(desired, self.settings, &self.router, &outside.to_string(), &logical);
            }
        }
    }
}

/// Adds the translation of a pod's own addresses, where each pod has one.
pub(crate) fn pod_translation(
    desired: &mut Desired,
    settings: &Settings,
    node: &NodeState,
    ips: &Dual<IpAddr>,
) {
    let Some(config) = node.gateway.as_ref().filter(|config| config.mode != GatewayMode::Disabled) else {
        return;
    };
    if !settings.snat_per_pod {
        return;
    }
    let outside = Dual::from_ips(config.addresses.iter().map(IpNet::addr));
    for (family, ip) in ips.families() {
        if let Some(outside) = outside.get(family) {
            source(
                desired,
                settings,
                &names::gateway_router(&node.name),
                &outside.to_string(),
                &ip.to_string(),
            );
        }
    }
}

/// Adds a source translation of `router`.
fn source(desired: &mut Desired, settings: &Settings, router: &str, external: &str, logical: &str) {
    let name = identity::nat_name("snat", logical, external, "");
    desired.member(RowId::new(table::ROUTER, router), "nat", RowId::new(table::NAT, &*name));
    let row = desired.row(table::NAT, name);
    row.set("type", "snat")
        .set("external_ip", external)
        .set("logical_ip", logical)
        .map("options", [("stateless", "false")]);
    if let Some((first, last)) = settings.nat_ports {
        row.set("external_port_range", format!("{first}-{last}"));
    }
}
