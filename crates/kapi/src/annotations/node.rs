//! Node annotations.

use std::net::IpAddr;

use net::{Dual, IpNet};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AnnotationError, DEFAULT_NETWORK};
use crate::Meta;

/// Subnets of the node by network.
pub const NODE_SUBNETS: &str = "k8s.ovn.org/node-subnets";
/// The node's number, which places its join and transit addresses.
pub const NODE_ID: &str = "k8s.ovn.org/node-id";
/// Addresses of the node's router port on the transit switch.
pub const TRANSIT_ADDRESSES: &str = "k8s.ovn.org/node-transit-switch-port-ifaddr";
/// `external_ids:system-id` of the node's Open vSwitch.
pub const CHASSIS_ID: &str = "k8s.ovn.org/node-chassis-id";
/// The node's primary addresses with their prefix.
pub const PRIMARY_IFADDR: &str = "k8s.ovn.org/node-primary-ifaddr";
/// All usable addresses of the host.
pub const HOST_CIDRS: &str = "k8s.ovn.org/host-cidrs";
/// Tunnel endpoint addresses.
pub const ENCAP_IPS: &str = "k8s.ovn.org/node-encap-ips";
/// The masquerade range programmed on the node.
pub const MASQUERADE_SUBNET: &str = "k8s.ovn.org/node-masquerade-subnet";
/// `false` when the node's gateway cannot check packet sizes.
pub const GATEWAY_MTU_SUPPORT: &str = "k8s.ovn.org/gateway-mtu-support";
/// Which flavour of primary layer-2 topology the node uses.
pub const LAYER2_TOPOLOGY_VERSION: &str = "k8s.ovn.org/layer2-topology-version";
/// Join addresses of older releases; removed, since they follow from the node id.
pub const LEGACY_ROUTER_LRP_ADDRESSES: &str = "k8s.ovn.org/node-gateway-router-lrp-ifaddrs";

/// The `{"ipv4": …, "ipv6": …}` form of several annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CidrPair {
    /// IPv4 address with prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<IpNet>,
    /// IPv6 address with prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<IpNet>,
}

/// The node's id; `None` when not assigned yet.
pub fn node_id(meta: &Meta) -> Result<Option<u32>, AnnotationError> {
    let Some(text) = meta.annotation(NODE_ID) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| AnnotationError::new(NODE_ID, text, "not a decimal number"))
}

/// Subnets of one network on the node. A bare string is read like a list of one. `None` when the annotation or
/// the network is absent.
pub fn parse_node_subnets(meta: &Meta, network: &str) -> Result<Option<Dual<IpNet>>, AnnotationError> {
    let Some(text) = meta.annotation(NODE_SUBNETS) else { return Ok(None) };
    let bad = |problem: String| AnnotationError::new(NODE_SUBNETS, text, problem);
    let map: Map<String, Value> =
        serde_json::from_str(text).map_err(|e| bad(format!("not a JSON object: {e}")))?;
    let texts: Vec<&str> = match map.get(network) {
        None => return Ok(None),
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(list)) => list
            .iter()
            .map(|item| item.as_str().ok_or_else(|| bad("a list element is not a string".into())))
            .collect::<Result<_, _>>()?,
        Some(_) => return Err(bad(format!("network {network} has neither a string nor a list"))),
    };
    if texts.is_empty() {
        return Ok(None);
    }
    let mut nets = Vec::with_capacity(texts.len());
    for item in texts {
        let net: IpNet = item.parse().map_err(|_| bad(format!("{item:?} is not a CIDR")))?;
        nets.push(net.trunc());
    }
    Dual::from_nets(nets)
        .map(Some)
        .map_err(|second| bad(format!("{second} is a second subnet of its family")))
}

/// The annotation's value with `network`'s subnets replaced and the other networks of `old` kept.
pub fn write_node_subnets(old: Option<&str>, network: &str, subnets: &Dual<IpNet>) -> String {
    let mut map: Map<String, Value> =
        old.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let list = subnets.iter().map(|net| Value::String(net.to_string())).collect();
    map.insert(network.to_owned(), Value::Array(list));
    Value::Object(map).to_string()
}

/// Reads an `{"ipv4": …, "ipv6": …}` annotation.
pub fn parse_cidr_pair(meta: &Meta, key: &'static str) -> Result<Option<Dual<IpNet>>, AnnotationError> {
    let Some(text) = meta.annotation(key) else { return Ok(None) };
    let pair: CidrPair = serde_json::from_str(text).map_err(|e| {
        AnnotationError::new(key, text, format!("expected {{\"ipv4\": CIDR, \"ipv6\": CIDR}}: {e}"))
    })?;
    let wrong = pair.ipv4.is_some_and(|net| net.addr().is_ipv6())
        || pair.ipv6.is_some_and(|net| net.addr().is_ipv4());
    if wrong {
        return Err(AnnotationError::new(key, text, "an address stands under the other family's key"));
    }
    Ok(Some(Dual { v4: pair.ipv4, v6: pair.ipv6 }))
}

/// Writes an `{"ipv4": …, "ipv6": …}` annotation.
pub fn write_cidr_pair(pair: &Dual<IpNet>) -> String {
    let mut map = Map::new();
    if let Some(v4) = &pair.v4 {
        map.insert("ipv4".into(), Value::String(v4.to_string()));
    }
    if let Some(v6) = &pair.v6 {
        map.insert("ipv6".into(), Value::String(v6.to_string()));
    }
    Value::Object(map).to_string()
}

/// Reads the host's addresses.
pub fn parse_host_cidrs(meta: &Meta) -> Result<Option<Vec<IpNet>>, AnnotationError> {
    parse_list(meta, HOST_CIDRS)
}

/// Reads the tunnel endpoints.
pub fn parse_encap_ips(meta: &Meta) -> Result<Option<Vec<IpAddr>>, AnnotationError> {
    parse_list(meta, ENCAP_IPS)
}

/// Writes a list annotation (`host-cidrs`, `node-encap-ips`).
pub fn write_list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    Value::Array(items.into_iter().map(|item| Value::String(item.to_string())).collect()).to_string()
}

fn parse_list<T: serde::de::DeserializeOwned>(
    meta: &Meta,
    key: &'static str,
) -> Result<Option<Vec<T>>, AnnotationError> {
    let Some(text) = meta.annotation(key) else { return Ok(None) };
    serde_json::from_str(text).map(Some).map_err(|e| AnnotationError::new(key, text, e.to_string()))
}

/// Subnets of the default network.
impl Meta {
    /// Subnets of the cluster's own network on this node.
    pub fn default_node_subnets(&self) -> Result<Option<Dual<IpNet>>, AnnotationError> {
        parse_node_subnets(self, DEFAULT_NETWORK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(key: &str, value: &str) -> Meta {
        let mut meta = Meta::default();
        meta.annotations.insert(key.into(), value.into());
        meta
    }

    #[test]
    fn subnets_in_every_accepted_spelling() {
        let list = meta(NODE_SUBNETS, r#"{"default":["10.1.0.0/24","fd00:1::/64"],"blue":["10.9.0.0/24"]}"#);
        let subnets = list.default_node_subnets().unwrap().unwrap();
        assert_eq!(subnets.v4, Some("10.1.0.0/24".parse().unwrap()));
        assert_eq!(subnets.v6, Some("fd00:1::/64".parse().unwrap()));
        let bare = meta(NODE_SUBNETS, r#"{"default":"10.1.0.0/24"}"#);
        assert_eq!(bare.default_node_subnets().unwrap().unwrap().v4, subnets.v4);
        assert_eq!(meta(NODE_SUBNETS, r#"{"blue":["10.9.0.0/24"]}"#).default_node_subnets(), Ok(None));
        assert_eq!(Meta::default().default_node_subnets(), Ok(None));
        for bad in [
            "",
            "[]",
            r#"{"default":7}"#,
            r#"{"default":["x"]}"#,
            r#"{"default":["10.1.0.0/24","10.2.0.0/24"]}"#,
        ] {
            assert!(meta(NODE_SUBNETS, bad).default_node_subnets().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn writing_keeps_other_networks() {
        let subnets = Dual { v4: Some("10.1.0.0/24".parse().unwrap()), v6: None };
        let text = write_node_subnets(Some(r#"{"blue":["10.9.0.0/24"]}"#), "default", &subnets);
        assert_eq!(text, r#"{"blue":["10.9.0.0/24"],"default":["10.1.0.0/24"]}"#);
        assert_eq!(
            write_node_subnets(Some("rubbish"), "default", &subnets),
            r#"{"default":["10.1.0.0/24"]}"#
        );
    }

    #[test]
    fn pairs_round_trip_and_swapped_families_are_refused() {
        let text = r#"{"ipv4":"100.88.0.2/16","ipv6":"fd97::2/64"}"#;
        let pair = parse_cidr_pair(&meta(TRANSIT_ADDRESSES, text), TRANSIT_ADDRESSES).unwrap().unwrap();
        assert_eq!(write_cidr_pair(&pair), text);
        assert!(
            parse_cidr_pair(&meta(TRANSIT_ADDRESSES, r#"{"ipv4":"fd97::2/64"}"#), TRANSIT_ADDRESSES).is_err()
        );
    }
}
