//! `k8s.ovn.org/l3-gateway-config`: how a node reaches the outside.

use std::net::IpAddr;

use net::{IpNet, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AnnotationError, DEFAULT_NETWORK};
use crate::Meta;

/// Gateway of the node by network.
pub const GATEWAY_CONFIG: &str = "k8s.ovn.org/l3-gateway-config";

/// Where traffic to the outside leaves OVN.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GatewayMode {
    /// No gateway.
    #[default]
    #[serde(rename = "")]
    Disabled,
    /// OVN's gateway router shares the bridge with the host.
    #[serde(rename = "shared")]
    Shared,
    /// Through the host's network stack.
    #[serde(rename = "local")]
    Local,
}

/// A node's gateway on one network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GatewayConfig {
    /// Where traffic leaves.
    pub mode: GatewayMode,
    /// The bridge, such as `breth0`.
    pub bridge: String,
    /// Name of the localnet logical port, `<bridge>_<node>`.
    pub interface_id: String,
    /// MAC address of the bridge.
    pub mac: Option<Mac>,
    /// Addresses of the bridge.
    pub addresses: Vec<IpNet>,
    /// Default gateways.
    pub next_hops: Vec<IpAddr>,
    /// Whether NodePorts are served.
    pub node_port: bool,
    /// VLAN of the uplink, 0 for none.
    pub vlan_id: u16,
    /// The second bridge to the outside, which only external gateways are reached through.
    pub external: Option<ExternalBridge>,
}

/// A bridge to the outside beside the gateway's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExternalBridge {
    /// Name of the localnet logical port, `<bridge>_<node>`.
    pub interface_id: String,
    /// MAC address of the bridge.
    pub mac: Option<Mac>,
    /// Addresses of the bridge.
    pub addresses: Vec<IpNet>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct Wire {
    mode: GatewayMode,
    #[serde(skip_serializing_if = "String::is_empty")]
    bridge_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    interface_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac_address: Option<Mac>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ip_addresses: Vec<IpNet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_address: Option<IpNet>,
    #[serde(rename = "exgw-interface-id", skip_serializing_if = "String::is_empty")]
    external_interface_id: String,
    #[serde(rename = "exgw-mac-address", skip_serializing_if = "Option::is_none")]
    external_mac_address: Option<Mac>,
    #[serde(rename = "exgw-ip-addresses", skip_serializing_if = "Vec::is_empty")]
    external_ip_addresses: Vec<IpNet>,
    #[serde(rename = "exgw-ip-address", skip_serializing_if = "Option::is_none")]
    external_ip_address: Option<IpNet>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    next_hops: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_hop: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_port_enable: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan_id: Option<String>,
}

impl GatewayConfig {
    /// Reads the default network's gateway; `None` when not announced yet.
    pub fn parse(meta: &Meta) -> Result<Option<GatewayConfig>, AnnotationError> {
        let Some(text) = meta.annotation(GATEWAY_CONFIG) else { return Ok(None) };
        let bad = |problem: String| AnnotationError::new(GATEWAY_CONFIG, text, problem);
        let mut map: Map<String, Value> = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
        let Some(value) = map.remove(DEFAULT_NETWORK) else { return Ok(None) };
        let wire: Wire = serde_json::from_value(value).map_err(|e| bad(e.to_string()))?;
        let vlan = wire.vlan_id.as_deref().unwrap_or("0");
        Ok(Some(GatewayConfig {
            mode: wire.mode,
            bridge: wire.bridge_id,
            interface_id: wire.interface_id,
            mac: wire.mac_address,
            addresses: either(wire.ip_addresses, wire.ip_address),
            external: (!wire.external_interface_id.is_empty()).then(|| ExternalBridge {
                interface_id: wire.external_interface_id,
                mac: wire.external_mac_address,
                addresses: either(wire.external_ip_addresses, wire.external_ip_address),
            }),
            next_hops: either(wire.next_hops, wire.next_hop),
            node_port: wire.node_port_enable.as_deref() == Some("true"),
            vlan_id: vlan.parse().map_err(|_| bad(format!("vlan-id {vlan:?} is not a number")))?,
        }))
    }

    /// The annotation's value with this gateway on the default network.
    pub fn to_annotation(&self) -> String {
        let wire = if self.mode == GatewayMode::Disabled {
            Wire::default()
        } else {
            let external = self.external.clone().unwrap_or_default();
            Wire {
                external_interface_id: external.interface_id,
                external_mac_address: external.mac,
                external_ip_address: only(&external.addresses),
                external_ip_addresses: external.addresses,
                mode: self.mode,
                bridge_id: self.bridge.clone(),
                interface_id: self.interface_id.clone(),
                mac_address: self.mac,
                ip_address: only(&self.addresses),
                ip_addresses: self.addresses.clone(),
                next_hop: only(&self.next_hops),
                next_hops: self.next_hops.clone(),
                node_port_enable: Some(self.node_port.to_string()),
                vlan_id: Some(self.vlan_id.to_string()),
            }
        };
        format!("{{\"{DEFAULT_NETWORK}\":{}}}", serde_json::to_string(&wire).unwrap_or_default())
    }
}

fn either<T>(list: Vec<T>, single: Option<T>) -> Vec<T> {
    if list.is_empty() { single.into_iter().collect() } else { list }
}

fn only<T: Copy>(list: &[T]) -> Option<T> {
    match list {
        [one] => Some(*one),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_value_round_trips_to_the_letter() {
        let text = r#"{"default":{"mode":"shared","bridge-id":"breth0","interface-id":"breth0_node1","mac-address":"02:42:ac:12:00:01","ip-addresses":["172.18.0.1/24"],"ip-address":"172.18.0.1/24","next-hops":["172.18.0.254"],"next-hop":"172.18.0.254","node-port-enable":"true","vlan-id":"0"}}"#;
        let mut meta = Meta::default();
        meta.annotations.insert(GATEWAY_CONFIG.into(), text.into());
        let config = GatewayConfig::parse(&meta).unwrap().unwrap();
        assert_eq!(config.mode, GatewayMode::Shared);
        assert_eq!(config.to_annotation(), text);
        let second = r#"{"default":{"mode":"local","bridge-id":"breth0","interface-id":"breth0_node1","exgw-interface-id":"br1_node1","exgw-mac-address":"02:42:ac:13:00:01","exgw-ip-addresses":["192.0.2.1/24"],"exgw-ip-address":"192.0.2.1/24","node-port-enable":"true","vlan-id":"0"}}"#;
        meta.annotations.insert(GATEWAY_CONFIG.into(), second.into());
        let config = GatewayConfig::parse(&meta).unwrap().unwrap();
        assert_eq!(config.external.as_ref().unwrap().interface_id, "br1_node1");
        assert_eq!(config.to_annotation(), second);
        assert_eq!(GatewayConfig::default().to_annotation(), r#"{"default":{"mode":""}}"#);
    }
}
