//! `k8s.ovn.org/pod-networks`: the addresses of a pod, the contract between controller and CNI.

use std::net::IpAddr;

use net::{IpNet, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AnnotationError, DEFAULT_NETWORK};
use crate::Meta;

/// Addresses of a pod by attachment.
pub const POD_NETWORKS: &str = "k8s.ovn.org/pod-networks";

/// What the pod's network is to the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Carries the pod's default route.
    Primary,
    /// An additional network.
    Secondary,
    /// The cluster network of a pod whose primary network is a user-defined one.
    InfrastructureLocked,
}

/// One attachment of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodNetwork {
    /// Addresses with the subnet's prefix length.
    pub ips: Vec<IpNet>,
    /// MAC address.
    pub mac: Mac,
    /// Default gateways, at most one a family.
    pub gateways: Vec<IpAddr>,
    /// Further routes.
    pub routes: Vec<PodRoute>,
    /// Tunnel id of layer-2 networks; 0 is none.
    pub tunnel_id: u32,
    /// What the network is to the pod; `None` in annotations of old releases.
    pub role: Option<Role>,
}

/// A route of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodRoute {
    /// Destination.
    pub dest: IpNet,
    /// Next hop; `None` is on-link.
    pub next_hop: Option<IpAddr>,
}

/// The wire form. Singular fields duplicate the lists when there is exactly one entry, for old readers.
#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(default)]
    ip_addresses: Option<Vec<String>>,
    mac_address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway_ips: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    routes: Option<Vec<WireRoute>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip_address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway_ip: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    tunnel_id: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
}

#[derive(Serialize, Deserialize)]
struct WireRoute {
    dest: String,
    #[serde(rename = "nextHop", default)]
    next_hop: String,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// The attachment of `meta`'s pod under `nad_key` (`default` for the cluster's own network). Lists and singular
/// fields are both understood and unknown fields ignored; `None` when annotation or key are absent.
pub fn parse_pod_networks(meta: &Meta, nad_key: &str) -> Result<Option<PodNetwork>, AnnotationError> {
    let Some(text) = meta.annotation(POD_NETWORKS) else { return Ok(None) };
    let bad = |problem: String| AnnotationError::new(POD_NETWORKS, text, problem);
    let mut map: Map<String, Value> =
        serde_json::from_str(text).map_err(|e| bad(format!("not a JSON object: {e}")))?;
    let Some(value) = map.remove(nad_key) else { return Ok(None) };
    let wire: Wire = serde_json::from_value(value).map_err(|e| bad(format!("network {nad_key}: {e}")))?;
    decode(wire).map(Some).map_err(|problem| bad(format!("network {nad_key}: {problem}")))
}

/// The annotation's value with `nad_key` set to `network` and other attachments of `old` kept.
pub fn merge_pod_networks(old: Option<&str>, nad_key: &str, network: &PodNetwork) -> String {
    let mut map: Map<String, Value> =
        old.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    map.remove(nad_key);
    let own = network.to_json();
    // Written by hand so that fields keep the order readers of diffs know from the reference.
    let others: Vec<String> =
        map.iter().map(|(key, value)| format!("{}:{value}", Value::from(key.as_str()))).collect();
    let mut entries = others;
    entries.push(format!("{}:{own}", Value::from(nad_key)));
    entries.sort();
    format!("{{{}}}", entries.join(","))
}

impl PodNetwork {
    /// The JSON object of this attachment.
    pub fn to_json(&self) -> String {
        let ips: Vec<String> = self.ips.iter().map(IpNet::to_string).collect();
        let gateways: Vec<String> = self.gateways.iter().map(IpAddr::to_string).collect();
        let routes: Vec<WireRoute> = self
            .routes
            .iter()
            .map(|route| WireRoute {
                dest: route.dest.to_string(),
                next_hop: route.next_hop.map(|ip| ip.to_string()).unwrap_or_default(),
            })
            .collect();
        let wire = Wire {
            ip_address: single(&ips),
            gateway_ip: single(&ips).and_then(|_| single(&gateways)),
            ip_addresses: (!ips.is_empty()).then_some(ips),
            mac_address: self.mac.to_string(),
            gateway_ips: (!gateways.is_empty()).then_some(gateways),
            routes: (!routes.is_empty()).then_some(routes),
            tunnel_id: self.tunnel_id,
            role: self.role,
        };
        // A struct of strings and numbers always serialises.
        serde_json::to_string(&wire).unwrap_or_default()
    }

    /// The bare addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ips.iter().map(IpNet::addr)
    }
}

impl Meta {
    /// The pod's attachment to the cluster's own network.
    pub fn default_pod_network(&self) -> Result<Option<PodNetwork>, AnnotationError> {
        parse_pod_networks(self, DEFAULT_NETWORK)
    }
}

fn single(list: &[String]) -> Option<String> {
    match list {
        [one] => Some(one.clone()),
        _ => None,
    }
}

fn decode(wire: Wire) -> Result<PodNetwork, String> {
    let ips =
        wire.ip_addresses.filter(|list| !list.is_empty()).or_else(|| wire.ip_address.map(|one| vec![one]));
    let gateways =
        wire.gateway_ips.filter(|list| !list.is_empty()).or_else(|| wire.gateway_ip.map(|one| vec![one]));
    Ok(PodNetwork {
        ips: parse_all(ips.unwrap_or_default(), "an address with prefix")?,
        mac: wire.mac_address.parse().map_err(|e: net::ParseMacError| e.to_string())?,
        gateways: parse_all(gateways.unwrap_or_default(), "a gateway address")?,
        routes: wire.routes.unwrap_or_default().into_iter().map(decode_route).collect::<Result<_, _>>()?,
        tunnel_id: wire.tunnel_id,
        role: wire.role,
    })
}

fn decode_route(wire: WireRoute) -> Result<PodRoute, String> {
    let dest: IpNet =
        wire.dest.parse().map_err(|_| format!("route destination {:?} is not a CIDR", wire.dest))?;
    if dest.prefix_len() == 0 {
        return Err(format!("route {dest} is a default route; those belong into gateway_ips"));
    }
    let next_hop = match wire.next_hop.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|_| format!("next hop {text:?} is not an IP address"))?),
    };
    Ok(PodRoute { dest, next_hop })
}

fn parse_all<T: std::str::FromStr>(texts: Vec<String>, what: &str) -> Result<Vec<T>, String> {
    texts.into_iter().map(|text| text.parse().map_err(|_| format!("{text:?} is not {what}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(value: &str) -> Meta {
        let mut meta = Meta::default();
        meta.annotations.insert(POD_NETWORKS.into(), value.into());
        meta
    }

    const SINGLE: &str = r#"{"default":{"ip_addresses":["10.244.0.4/24"],"mac_address":"0a:58:0a:f4:00:04","gateway_ips":["10.244.0.1"],"routes":[{"dest":"10.244.0.0/16","nextHop":"10.244.0.1"},{"dest":"10.96.0.0/16","nextHop":"10.244.0.1"},{"dest":"169.254.169.5/32","nextHop":"10.244.0.1"},{"dest":"100.64.0.0/16","nextHop":"10.244.0.1"}],"ip_address":"10.244.0.4/24","gateway_ip":"10.244.0.1","role":"primary"}}"#;
    const DUAL: &str = r#"{"default":{"ip_addresses":["10.244.0.4/24","fd00:1::4/64"],"mac_address":"0a:58:0a:f4:00:04","gateway_ips":["10.244.0.1","fd00:1::1"],"role":"primary"}}"#;

    #[test]
    fn recorded_values_round_trip_to_the_letter() {
        for text in [SINGLE, DUAL] {
            let network = meta(text).default_pod_network().unwrap().unwrap();
            assert_eq!(merge_pod_networks(None, "default", &network), text);
        }
    }

    #[test]
    fn old_singular_form_reads_like_the_lists() {
        let old = r#"{"default":{"ip_address":"10.244.0.4/24","mac_address":"0a:58:0a:f4:00:04","gateway_ip":"10.244.0.1","later":{"x":1}}}"#;
        let network = meta(old).default_pod_network().unwrap().unwrap();
        assert_eq!(network.ips, ["10.244.0.4/24".parse().unwrap()]);
        assert_eq!(network.gateways, ["10.244.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(network.role, None);
    }

    #[test]
    fn other_attachments_are_kept() {
        let other = r#"{"shop/l2":{"ip_addresses":["10.77.0.9/16"],"mac_address":"0a:58:0a:4d:00:09","tunnel_id":12,"role":"secondary"}}"#;
        let network = meta(SINGLE).default_pod_network().unwrap().unwrap();
        let merged = merge_pod_networks(Some(other), "default", &network);
        let both = meta(&merged);
        assert_eq!(both.default_pod_network().unwrap().unwrap(), network);
        let second = parse_pod_networks(&both, "shop/l2").unwrap().unwrap();
        assert_eq!((second.tunnel_id, second.role), (12, Some(Role::Secondary)));
    }

    #[test]
    fn bad_values_name_the_problem() {
        for (text, needle) in [
            ("nonsense", "not a JSON object"),
            (r#"{"default":{"mac_address":"x"}}"#, "not a MAC address"),
            (
                r#"{"default":{"ip_addresses":["10.0.0.300/24"],"mac_address":"0a:58:0a:f4:00:04"}}"#,
                "10.0.0.300",
            ),
            (
                r#"{"default":{"mac_address":"0a:58:0a:f4:00:04","routes":[{"dest":"0.0.0.0/0","nextHop":"10.0.0.1"}]}}"#,
                "default route",
            ),
        ] {
            let error = meta(text).default_pod_network().unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }
}
