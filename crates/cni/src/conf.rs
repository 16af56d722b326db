//! The network configuration: `/etc/cni/net.d/*.conf` or a network attachment definition's `config`.

use std::collections::BTreeSet;

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::{
    error::{CniError, code},
    version::Version,
};

/// The `type` of our plugin.
pub const PLUGIN_TYPE: &str = "ovn-k8s-cni-overlay";
/// Names that mean the cluster network and may not be given to another.
const RESERVED_NAMES: [&str; 2] = ["default", "ovn-kubernetes"];

/// A network configuration as the plugin understands it. Unknown keys are ignored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetConf {
    /// Version of the specification the configuration follows.
    pub cni_version: String,
    /// Network name; `default` after parsing if the configuration is of the cluster network.
    pub name: String,
    /// Plugin name.
    #[serde(rename = "type")]
    pub plugin: String,
    /// What the network is to its pods.
    pub role: String,
    /// `layer2`, `layer3`, `localnet`; empty for the cluster network.
    pub topology: String,
    /// `namespace/name` of the attachment definition.
    pub net_attach_def_name: String,
    /// MTU; 0 for the cluster's.
    pub mtu: u32,
    /// Subnets, comma separated.
    pub subnets: String,
    /// Excluded subnets, comma separated.
    pub exclude_subnets: String,
    /// Reserved subnets, comma separated.
    pub reserved_subnets: String,
    /// Infrastructure subnets, comma separated.
    pub infrastructure_subnets: String,
    /// Join subnets, comma separated.
    pub join_subnet: String,
    /// Transit subnets, comma separated.
    pub transit_subnet: String,
    /// Default gateways, comma separated.
    #[serde(rename = "defaultGatewayIPs")]
    pub default_gateway_ips: String,
    /// VLAN of a localnet.
    #[serde(rename = "vlanID")]
    pub vlan_id: u32,
    /// Keep addresses over a pod's life.
    #[serde(rename = "allowPersistentIPs")]
    pub allow_persistent_ips: bool,
    /// Bridge mapping of a localnet.
    pub physical_network_name: String,
    /// How nodes are joined.
    pub transport: String,
    /// Source NAT towards the outside.
    #[serde(rename = "outboundSNAT")]
    pub outbound_snat: String,
    /// EVPN settings.
    pub evpn: Option<Value>,
    /// Uplink of the network.
    pub uplink: String,
    /// Device given by a device plugin: PCI address, auxiliary device or netdev.
    #[serde(rename = "deviceID")]
    pub device_id: String,
    /// Log file of the shim.
    pub log_file: String,
    /// Log level of the shim.
    pub log_level: String,
    /// Rotation: megabytes.
    #[serde(rename = "logfile-maxsize")]
    pub logfile_maxsize: i64,
    /// Rotation: files.
    #[serde(rename = "logfile-maxbackups")]
    pub logfile_maxbackups: i64,
    /// Rotation: days.
    #[serde(rename = "logfile-maxage")]
    pub logfile_maxage: i64,
    /// What the runtime adds.
    #[serde(deserialize_with = "or_default")]
    pub runtime_config: RuntimeConfig,
    /// Result of the ADD this DEL or CHECK belongs to, in the configuration's version.
    pub prev_result: Option<Value>,
    /// GC: the attachments that still exist. Absent means the runtime did not say.
    #[serde(rename = "cni.dev/valid-attachments")]
    pub valid_attachments: Option<Vec<Attachment>>,
}

/// Keys of `runtimeConfig` we use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeConfig {
    /// File with device information.
    #[serde(rename = "CNIDeviceInfoFile", skip_serializing_if = "String::is_empty")]
    pub device_info_file: String,
}

/// One attachment that still exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attachment {
    /// The sandbox.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The interface.
    pub ifname: String,
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfError {
    /// Not JSON, or a key of the wrong type.
    #[error("network configuration is not valid JSON of the expected shape: {0}")]
    Decode(String),
    /// No name.
    #[error("network configuration has no name")]
    NoName,
    /// Another plugin's configuration.
    #[error("plugin type {0:?} is not {PLUGIN_TYPE}")]
    OtherPlugin(String),
    /// A list with other plugins beside ours.
    #[error(
        "network {0}: a plugin list must hold exactly one plugin, {PLUGIN_TYPE}; chaining is not supported"
    )]
    Chained(String),
    /// List and single configuration at once.
    #[error("network {0}: both a plugin list and a single plugin are configured; keep one")]
    ListAndSingle(String),
    /// A user network with a name of the cluster network.
    #[error("network name {0:?} is reserved for the cluster network")]
    ReservedName(String),
    /// A user network without its attachment definition.
    #[error("network {0}: netAttachDefName must be the definition's namespace/name, not {1:?}")]
    NoDefinition(String, String),
    /// A topology we do not know.
    #[error("network {0}: topology {1:?} is none of layer2, layer3, localnet")]
    Topology(String, String),
}

// === impl NetConf ===

impl NetConf {
    /// The addresses in the result of the ADD this request belongs to, in the shape of any version.
    pub fn previous_addresses(&self) -> Vec<IpAddr> {
        let Some(result) = &self.prev_result else { return Vec::new() };
        let list = result["ips"].as_array().into_iter().flatten().map(|ip| &ip["address"]);
        let old = ["ip4", "ip6"].map(|family| &result[family]["ip"]);
        let texts = list.chain(old).filter_map(Value::as_str);
        texts.filter_map(|net| net.split('/').next()?.parse().ok()).collect()
    }

    /// Reads and checks a configuration, single or a list with one plugin.
    pub fn parse(bytes: &[u8]) -> Result<NetConf, ConfError> {
        let decode = |e: serde_json::Error| ConfError::Decode(e.to_string());
        let mut object: Map<String, Value> = serde_json::from_slice(bytes).map_err(decode)?;
        if let Some(plugins) = object.remove("plugins") {
            object = unlist(object, plugins)?;
        }
        let mut conf: NetConf = serde_json::from_value(Value::Object(object)).map_err(decode)?;
        conf.check()?;
        Ok(conf)
    }

    /// Whether this is the cluster network.
    pub fn is_default(&self) -> bool {
        self.topology.is_empty()
    }

    /// The configuration's version, or error 1.
    pub fn version(&self) -> Result<Version, CniError> {
        Version::parse(&self.cni_version)
    }

    fn check(&mut self) -> Result<(), ConfError> {
        if self.name.is_empty() {
            return Err(ConfError::NoName);
        }
        if self.plugin != PLUGIN_TYPE {
            return Err(ConfError::OtherPlugin(self.plugin.clone()));
        }
        if self.is_default() {
            self.name = kapi::annotations::DEFAULT_NETWORK.to_owned();
            return Ok(());
        }
        if !matches!(self.topology.as_str(), "layer2" | "layer3" | "localnet") {
            return Err(ConfError::Topology(self.name.clone(), self.topology.clone()));
        }
        if RESERVED_NAMES.contains(&self.name.as_str()) {
            return Err(ConfError::ReservedName(self.name.clone()));
        }
        let parts: Vec<&str> = self.net_attach_def_name.split('/').collect();
        if parts.len() != 2 || parts.iter().any(|p| p.is_empty()) {
            return Err(ConfError::NoDefinition(self.name.clone(), self.net_attach_def_name.clone()));
        }
        Ok(())
    }
}

/// The single plugin of a list, with the list's own keys.
fn unlist(mut list: Map<String, Value>, plugins: Value) -> Result<Map<String, Value>, ConfError> {
    let name = list.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if list.get("type").and_then(Value::as_str).is_some_and(|t| !t.is_empty()) {
        return Err(ConfError::ListAndSingle(name));
    }
    let Value::Array(mut plugins) = plugins else { return Err(ConfError::Chained(name)) };
    let (Some(Value::Object(plugin)), true) = (plugins.pop(), plugins.is_empty()) else {
        return Err(ConfError::Chained(name));
    };
    for key in ["name", "cniVersion"] {
        list.entry(key).or_insert_with(|| plugin.get(key).cloned().unwrap_or_default());
    }
    let mut merged = plugin;
    merged.extend(list);
    Ok(merged)
}

/// The sandboxes GC must keep, or none if the runtime did not list any attachment set: then nothing may be removed.
pub fn valid_attachments(conf: &NetConf) -> Option<BTreeSet<(&str, &str)>> {
    conf.valid_attachments
        .as_ref()
        .map(|list| list.iter().map(|a| (a.container_id.as_str(), a.ifname.as_str())).collect())
}

impl From<ConfError> for CniError {
    fn from(error: ConfError) -> CniError {
        let code = match &error {
            ConfError::Decode(_) => code::DECODE,
            _ => code::INVALID_CONFIG,
        };
        CniError::new(code, error.to_string(), "")
    }
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(d: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}
