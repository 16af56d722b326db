//! The node's way to the outside, found without touching it: the gateway bridge or interface, its addresses, its
//! MAC and its next hops. Other nodes read the result from `l3-gateway-config` and `node-primary-ifaddr`.

use std::net::IpAddr;

use ipnet::IpNet;
use kapi::annotations::{ExternalBridge, GatewayConfig, GatewayMode};
use net::{Dual, Family, Mac, nth_address};

use crate::addresses::{Excluded, HostAddress, usable_on};
use crate::settings::Settings;

/// An OVS bridge as far as finding the uplink needs it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// Names of its ports' interfaces.
    pub interfaces: Vec<String>,
}

/// A default route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DefaultRoute {
    /// Interface it leaves by.
    pub interface: String,
    /// Next hop.
    pub gateway: IpAddr,
    /// Metric; the least wins.
    pub metric: u32,
}

/// What is known about the host.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// OVS bridges except the integration bridge.
    pub bridges: Vec<Bridge>,
    /// Addresses of all interfaces.
    pub addresses: Vec<HostAddress>,
    /// MACs of all interfaces.
    pub macs: Vec<(String, Mac)>,
    /// Default routes of the main table.
    pub default_routes: Vec<DefaultRoute>,
    /// The node's addresses as Kubernetes knows them; they are preferred where a device has several.
    pub node_ips: Vec<IpAddr>,
    /// The bridge that is the gateway so far.
    pub before: Option<String>,
}

/// The device traffic leaves by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// The bridge, or the interface where there is no bridge yet.
    pub device: String,
    /// Whether it is an OVS bridge.
    pub is_bridge: bool,
    /// Its MAC.
    pub mac: Option<Mac>,
    /// Its address of each family the cluster uses.
    pub addresses: Dual<IpNet>,
    /// Next hops out of the cluster, IPv4 first.
    pub next_hops: Vec<IpAddr>,
}

/// Finds the uplink; the error says what is missing.
pub fn find(settings: &Settings, around: &Surroundings, excluded: &Excluded) -> Result<Uplink, String> {
    let named = settings.gateway.interface.as_str();
    let mut by_metric: Vec<&DefaultRoute> = around.default_routes.iter().collect();
    by_metric.sort_by_key(|route| (route.metric, route.gateway.is_ipv6()));
    let interface = match (named, by_metric.first()) {
        ("", Some(route)) => route.interface.as_str(),
        // A default route that goes away for a while does not make the bridge another one.
        ("", None) => around.before.as_deref().ok_or_else(|| {
            "there is no default route; name the interface with --gateway-interface".to_owned()
        })?,
        (name, _) => name,
    };
    of_interface(settings, around, excluded, interface, &by_metric)
}

/// The second way out, if there is to be one; the error says what is missing.
pub fn find_external(
    settings: &Settings,
    around: &Surroundings,
    excluded: &Excluded,
) -> Option<Result<Uplink, String>> {
    let named = settings.gateway.external_interface.as_str();
    (!named.is_empty()).then(|| of_interface(settings, around, excluded, named, &[]))
}

fn of_interface(
    settings: &Settings,
    around: &Surroundings,
    excluded: &Excluded,
    interface: &str,
    by_metric: &[&DefaultRoute],
) -> Result<Uplink, String> {
    let bridge = around
        .bridges
        .iter()
        .find(|bridge| bridge.name == interface || bridge.interfaces.iter().any(|port| port == interface));
    let device = bridge.map_or(interface, |bridge| bridge.name.as_str());
    let known = around.macs.iter().find(|(name, _)| name == device);
    if bridge.is_none() && known.is_none() {
        return Err(format!("interface {device} does not exist"));
    }
    Ok(Uplink {
        device: device.to_owned(),
        is_bridge: bridge.is_some(),
        mac: known.map(|(_, mac)| *mac),
        addresses: primary_addresses(settings, around, excluded, device),
        next_hops: next_hops(settings, by_metric, device),
    })
}

fn primary_addresses(
    settings: &Settings,
    around: &Surroundings,
    excluded: &Excluded,
    device: &str,
) -> Dual<IpNet> {
    let mut found: Dual<IpNet> = Dual::default();
    let all: Vec<IpNet> = usable_on(&around.addresses, device, excluded).collect();
    let preferred = all.iter().filter(|net| around.node_ips.contains(&net.addr()));
    for net in preferred.chain(&all) {
        let family = Family::of_net(net);
        if settings.has_family_of(net.addr()) && found.get(family).is_none() {
            found.set(family, *net);
        }
    }
    found
}

fn next_hops(settings: &Settings, by_metric: &[&DefaultRoute], device: &str) -> Vec<IpAddr> {
    let gateway = &settings.gateway;
    let given = gateway.next_hops.iter().copied();
    let routed = by_metric.iter().filter(|route| route.interface == device).map(|route| route.gateway);
    // Through the host's stack a node without a default route still needs some next hop inside OVN.
    let dummy = [IpNet::V4(gateway.masquerade_v4), IpNet::V6(gateway.masquerade_v6)]
        .into_iter()
        .filter(|_| gateway.mode == GatewayMode::Local)
        .filter_map(|net| nth_address(&net, 4));
    let hops = given.chain(routed).chain(dummy).filter(|ip| settings.has_family_of(*ip));
    Dual::from_ips(hops).iter().copied().collect()
}

/// The gateway as the annotation describes it; the error says what is missing.
pub fn gateway_config(
    settings: &Settings,
    uplink: &Result<Uplink, String>,
    external: Option<&Result<Uplink, String>>,
) -> Result<GatewayConfig, String> {
    let gateway = &settings.gateway;
    if gateway.mode == GatewayMode::Disabled {
        return Ok(GatewayConfig::default());
    }
    let uplink = uplink.as_ref().map_err(Clone::clone)?;
    let device = &uplink.device;
    if !uplink.is_bridge {
        return Err(format!("interface {device} is not a port of an OVS bridge"));
    }
    let Some(mac) = uplink.mac else { return Err(format!("bridge {device} has no interface on the host")) };
    for net in &settings.cluster_subnets {
        let family = Family::of_net(net);
        if uplink.addresses.get(family).is_none() {
            return Err(format!("bridge {device} has no {} address", family.name()));
        }
    }
    if uplink.next_hops.is_empty() {
        return Err(format!(
            "there is no default route through {device}; give the next hop with --gateway-nexthop"
        ));
    }
    Ok(GatewayConfig {
        mode: gateway.mode,
        bridge: device.clone(),
        interface_id: format!("{device}_{}", settings.node),
        mac: Some(mac),
        addresses: uplink.addresses.iter().copied().collect(),
        next_hops: uplink.next_hops.clone(),
        node_port: gateway.node_port,
        vlan_id: gateway.vlan_id,
        external: external.map(|external| external_bridge(settings, external)).transpose()?,
    })
}

fn external_bridge(settings: &Settings, external: &Result<Uplink, String>) -> Result<ExternalBridge, String> {
    let external = external.as_ref().map_err(|problem| format!("second bridge: {problem}"))?;
    let device = &external.device;
    if !external.is_bridge {
        return Err(format!("interface {device} (--exgw-interface) is not a port of an OVS bridge"));
    }
    let addresses: Vec<IpNet> = external.addresses.iter().copied().collect();
    if addresses.is_empty() {
        return Err(format!("bridge {device} (--exgw-interface) has no address"));
    }
    Ok(ExternalBridge { interface_id: format!("{device}_{}", settings.node), mac: external.mac, addresses })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(v6: bool) -> (Settings, Surroundings, Excluded) {
        let mut cidrs = vec!["10.244.0.0/16".parse().unwrap()];
        if v6 {
            cidrs.push("fd00:10:244::/48".parse().unwrap());
        }
        let mut settings = Settings::new("node1", cidrs, vec![]);
        settings.gateway.interface = "breth0".into();
        settings.gateway.node_port = true;
        let at = |net: &str| HostAddress { interface: "breth0".into(), net: net.parse().unwrap() };
        let route = |gateway: &str| DefaultRoute {
            interface: "breth0".into(),
            gateway: gateway.parse().unwrap(),
            metric: 0,
        };
        let around = Surroundings {
            bridges: vec![Bridge { name: "breth0".into(), interfaces: vec!["eth0".into(), "breth0".into()] }],
            addresses: vec![
                at("172.18.0.1/24"),
                at("169.254.169.2/29"),
                at("fd69::2/125"),
                at("fd00:172:18::1/64"),
                at("fe80::42:acff:fe12:1/64"),
            ],
            macs: vec![
                ("eth0".into(), "02:42:ac:12:00:01".parse().unwrap()),
                ("breth0".into(), "02:42:ac:12:00:01".parse().unwrap()),
            ],
            default_routes: vec![route("fd00:172:18::254"), route("172.18.0.254")],
            node_ips: vec!["172.18.0.1".parse().unwrap()],
            before: None,
        };
        let excluded = Excluded {
            masquerade: vec!["169.254.169.0/29".parse().unwrap(), "fd69::/125".parse().unwrap()],
            egress_ips: vec![],
        };
        (settings, around, excluded)
    }

    fn annotation(settings: &Settings, around: &Surroundings, excluded: &Excluded) -> Result<String, String> {
        let external = find_external(settings, around, excluded);
        gateway_config(settings, &find(settings, around, excluded), external.as_ref())
            .map(|config| config.to_annotation())
    }

    #[test]
    fn the_recorded_annotation_to_the_letter() {
        let (settings, around, excluded) = recorded(false);
        assert_eq!(
            annotation(&settings, &around, &excluded).unwrap(),
            r#"{"default":{"mode":"shared","bridge-id":"breth0","interface-id":"breth0_node1","mac-address":"02:42:ac:12:00:01","ip-addresses":["172.18.0.1/24"],"ip-address":"172.18.0.1/24","next-hops":["172.18.0.254"],"next-hop":"172.18.0.254","node-port-enable":"true","vlan-id":"0"}}"#
        );
        let (settings, around, excluded) = recorded(true);
        assert_eq!(
            annotation(&settings, &around, &excluded).unwrap(),
            r#"{"default":{"mode":"shared","bridge-id":"breth0","interface-id":"breth0_node1","mac-address":"02:42:ac:12:00:01","ip-addresses":["172.18.0.1/24","fd00:172:18::1/64"],"next-hops":["172.18.0.254","fd00:172:18::254"],"node-port-enable":"true","vlan-id":"0"}}"#
        );
    }

    #[test]
    fn found_by_port_by_default_route_or_refused_with_a_cause() {
        let (mut settings, mut around, excluded) = recorded(false);
        let expected = annotation(&settings, &around, &excluded);
        settings.gateway.interface = "eth0".into();
        assert_eq!(annotation(&settings, &around, &excluded), expected, "a port names its bridge");
        settings.gateway.interface = String::new();
        assert_eq!(annotation(&settings, &around, &excluded), expected, "the default route names the bridge");
        around.default_routes.clear();
        let text = annotation(&settings, &around, &excluded).unwrap_err();
        assert!(text.contains("default route"), "{text}");
        around.before = Some("breth0".into());
        assert_eq!(find(&settings, &around, &excluded).unwrap().device, "breth0", "it is known already");
        settings.gateway.interface = "eth7".into();
        assert!(annotation(&settings, &around, &excluded).unwrap_err().contains("eth7"));
        settings.gateway.interface = "breth0".into();
        assert!(annotation(&settings, &around, &excluded).unwrap_err().contains("--gateway-nexthop"));
        around.bridges.clear();
        assert!(
            annotation(&settings, &around, &excluded).unwrap_err().contains("not a port of an OVS bridge")
        );
    }

    #[test]
    fn the_address_kubernetes_knows_is_preferred() {
        let (settings, mut around, excluded) = recorded(false);
        around
            .addresses
            .insert(0, HostAddress { interface: "breth0".into(), net: "172.18.0.200/32".parse().unwrap() });
        let uplink = find(&settings, &around, &excluded).unwrap();
        assert_eq!(uplink.addresses.v4.unwrap().to_string(), "172.18.0.1/24");
    }

    #[test]
    fn a_second_bridge() {
        let (mut settings, mut around, excluded) = recorded(false);
        settings.gateway.external_interface = "eth1".into();
        let text = annotation(&settings, &around, &excluded).unwrap_err();
        assert!(text.contains("eth1"), "{text}");
        around.bridges.push(Bridge { name: "br1".into(), interfaces: vec!["eth1".into(), "br1".into()] });
        around.macs.push(("br1".into(), "02:42:ac:13:00:01".parse().unwrap()));
        let text = annotation(&settings, &around, &excluded).unwrap_err();
        assert!(text.contains("br1 (--exgw-interface) has no address"), "{text}");
        around.addresses.push(HostAddress { interface: "br1".into(), net: "192.0.2.1/24".parse().unwrap() });
        let text = annotation(&settings, &around, &excluded).unwrap();
        assert!(text.contains(r#""exgw-interface-id":"br1_node1","exgw-mac-address":"02:42:ac:13:00:01","exgw-ip-addresses":["192.0.2.1/24"]"#), "{text}");
    }

    #[test]
    fn modes() {
        let (mut settings, mut around, excluded) = recorded(true);
        settings.gateway.mode = GatewayMode::Local;
        around.default_routes.clear();
        let uplink = find(&settings, &around, &excluded).unwrap();
        assert_eq!(
            uplink.next_hops,
            ["169.254.169.4".parse::<IpAddr>().unwrap(), "fd69::4".parse().unwrap()]
        );
        settings.gateway.mode = GatewayMode::Disabled;
        assert_eq!(
            annotation(&settings, &Surroundings::default(), &excluded).unwrap(),
            r#"{"default":{"mode":""}}"#
        );
    }
}
