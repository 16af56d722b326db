//! The result of ADD, and its shapes in the versions of the specification.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::version::Version;

/// What ADD made, in the newest shape.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniResult {
    /// Version of the shape; the shim writes its own.
    #[serde(rename = "cniVersion", default)]
    pub cni_version: String,
    /// Interfaces, host side first.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Addresses.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpConfig>,
    /// Routes.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Name service; always empty from us.
    #[serde(default)]
    pub dns: Value,
}

/// One interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name in its namespace.
    pub name: String,
    /// MAC address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// MTU; in results of 1.1.0 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Path of its namespace; empty on the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
}

/// One address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpConfig {
    /// Index into the interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// Address with prefix length.
    pub address: IpNet,
    /// Gateway of its family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// One route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination.
    pub dst: IpNet,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

// === impl CniResult ===

impl CniResult {
    /// The JSON for a caller that speaks `version`.
    pub fn to_version(&self, version: Version) -> Value {
        let mut out = Map::new();
        out.insert("cniVersion".into(), version.as_str().into());
        if version <= Version::V020 {
            for (key, v6) in [("ip4", false), ("ip6", true)] {
                if let Some(ip) = self.ips.iter().find(|ip| ip.address.addr().is_ipv6() == v6) {
                    out.insert(key.into(), self.old_ip(ip, v6));
                }
            }
        } else {
            out.insert("interfaces".into(), self.interfaces.iter().map(|i| i.to_version(version)).collect());
            out.insert("ips".into(), self.ips.iter().map(|ip| ip.to_version(version)).collect());
            if !self.routes.is_empty() {
                out.insert("routes".into(), json!(self.routes));
            }
        }
        out.insert("dns".into(), if self.dns.is_object() { self.dns.clone() } else { json!({}) });
        Value::Object(out)
    }

    fn old_ip(&self, ip: &IpConfig, v6: bool) -> Value {
        let mut out = json!({ "ip": ip.address });
        if let Some(gateway) = ip.gateway {
            out["gateway"] = json!(gateway);
        }
        let routes: Vec<&Route> = self.routes.iter().filter(|r| r.dst.addr().is_ipv6() == v6).collect();
        if !routes.is_empty() {
            out["routes"] = json!(routes);
        }
        out
    }
}

impl Interface {
    fn to_version(&self, version: Version) -> Value {
        let mtu = self.mtu.filter(|_| version >= Version::V110);
        json!(Interface { mtu, ..self.clone() })
    }
}

impl IpConfig {
    fn to_version(&self, version: Version) -> Value {
        let mut out = json!(self);
        if version < Version::V100 {
            out["version"] = if self.address.addr().is_ipv6() { "6" } else { "4" }.into();
        }
        out
    }
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(d: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}
