//! `PodIFInfo`: everything needed to plumb one interface, in the encoding Go gives the pod annotation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::{Engine, engine::general_purpose::STANDARD};
use ipnet::IpNet;
use kapi::annotations::{PodNetwork, PodRoute, Role};
use net::Mac;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Instructions for one pod interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodIfInfo {
    /// Addresses, gateways, routes.
    #[serde(flatten, with = "annotation")]
    pub network: PodNetwork,
    /// MTU of the interface.
    pub mtu: u32,
    /// MTU of the routes; 0 if they need none.
    #[serde(rename = "routable-mtu", default)]
    pub routable_mtu: u32,
    /// Limit towards the pod, bit/s; 0 is none.
    #[serde(default)]
    pub ingress: i64,
    /// Limit from the pod, bit/s; 0 is none.
    #[serde(default)]
    pub egress: i64,
    /// The interface is plumbed on a DPU.
    #[serde(rename = "is-dpu-host-mode", default)]
    pub is_dpu_host_mode: bool,
    /// Leave addresses to the guest (live-migratable VMs).
    #[serde(rename = "skip-ip-config", default)]
    pub skip_ip_config: bool,
    /// UID of the API object.
    #[serde(rename = "pod-uid", default)]
    pub pod_uid: String,
    /// Name of the VF's netdev.
    #[serde(rename = "vf-netdev-name", default)]
    pub vf_netdev_name: String,
    /// Aggregate UDP packets.
    #[serde(rename = "enable-udp-aggregation", default)]
    pub enable_udp_aggregation: bool,
    /// Network name.
    #[serde(rename = "netName", default)]
    pub net_name: String,
    /// Key in the pod annotation.
    #[serde(rename = "nadKey", default)]
    pub nad_key: String,
    /// Interface names in the pod.
    #[serde(rename = "pod-if-names", default)]
    pub pod_if_names: Option<Vec<String>>,
    /// The userspace datapath needs checksum offload off in the pod. Ours alone; absent from other servers.
    #[serde(rename = "disable-tx-checksum", default)]
    pub disable_tx_checksum: bool,
}

impl PodIfInfo {
    /// Says that the shim has to act, but nothing about an interface: the answer to DEL.
    pub fn nothing() -> PodIfInfo {
        PodIfInfo {
            network: PodNetwork {
                ips: Vec::new(),
                mac: Mac([0; 6]),
                gateways: Vec::new(),
                routes: Vec::new(),
                tunnel_id: 0,
                role: None,
            },
            mtu: 0,
            routable_mtu: 0,
            ingress: 0,
            egress: 0,
            is_dpu_host_mode: false,
            skip_ip_config: false,
            pod_uid: String::new(),
            vf_netdev_name: String::new(),
            enable_udp_aggregation: false,
            net_name: String::new(),
            nad_key: String::new(),
            pod_if_names: None,
            disable_tx_checksum: false,
        }
    }
}

mod annotation {
    use super::*;

    pub(super) fn serialize<S: Serializer>(network: &PodNetwork, serializer: S) -> Result<S::Ok, S::Error> {
        Wire::of(network).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PodNetwork, D::Error> {
        Wire::deserialize(deserializer)?.network().map_err(D::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(rename = "IPs")]
    ips: Option<Vec<WireNet>>,
    #[serde(rename = "MAC", deserialize_with = "or_empty")]
    mac: String,
    #[serde(rename = "Gateways")]
    gateways: Option<Vec<String>>,
    #[serde(rename = "GatewayIPv6LLA", default)]
    gateway_lla: String,
    #[serde(rename = "Routes")]
    routes: Option<Vec<WireRoute>>,
    #[serde(rename = "TunnelID", default)]
    tunnel_id: u32,
    #[serde(rename = "Role", default)]
    role: String,
}

#[derive(Serialize, Deserialize)]
struct WireNet {
    #[serde(rename = "IP")]
    ip: String,
    #[serde(rename = "Mask")]
    mask: String,
}

#[derive(Serialize, Deserialize)]
struct WireRoute {
    #[serde(rename = "Dest")]
    dest: WireNet,
    #[serde(rename = "NextHop")]
    next_hop: String,
}

// === impl Wire ===

impl Wire {
    fn of(network: &PodNetwork) -> Wire {
        let text = |ip: &IpAddr| ip.to_string();
        Wire {
            ips: list(network.ips.iter().map(WireNet::of).collect()),
            mac: STANDARD.encode(network.mac.0),
            gateways: list(network.gateways.iter().map(text).collect()),
            gateway_lla: String::new(),
            routes: list(
                network
                    .routes
                    .iter()
                    .map(|r| WireRoute {
                        dest: WireNet::of(&r.dest),
                        next_hop: r.next_hop.as_ref().map(text).unwrap_or_default(),
                    })
                    .collect(),
            ),
            tunnel_id: network.tunnel_id,
            role: match network.role {
                Some(Role::Primary) => "primary",
                Some(Role::Secondary) => "secondary",
                Some(Role::InfrastructureLocked) => "infrastructure-locked",
                None => "",
            }
            .to_owned(),
        }
    }

    fn network(self) -> Result<PodNetwork, String> {
        let mac = STANDARD.decode(&self.mac).ok().and_then(|b| b.try_into().ok());
        let ip = |text: &String| text.parse::<IpAddr>().map_err(|_| format!("{text:?} is not an address"));
        let routes = self.routes.unwrap_or_default().into_iter().map(|r| {
            let next_hop = if r.next_hop.is_empty() { None } else { Some(ip(&r.next_hop)?) };
            Ok::<_, String>(PodRoute { dest: r.dest.net()?, next_hop })
        });
        Ok(PodNetwork {
            ips: self.ips.unwrap_or_default().iter().map(WireNet::net).collect::<Result<_, _>>()?,
            mac: Mac(mac
                .or(self.mac.is_empty().then_some([0; 6]))
                .ok_or_else(|| format!("MAC {:?} is not six bytes in base64", self.mac))?),
            gateways: self.gateways.unwrap_or_default().iter().map(ip).collect::<Result<_, _>>()?,
            routes: routes.collect::<Result<_, _>>()?,
            tunnel_id: self.tunnel_id,
            role: match self.role.as_str() {
                "primary" => Some(Role::Primary),
                "secondary" => Some(Role::Secondary),
                "infrastructure-locked" => Some(Role::InfrastructureLocked),
                _ => None,
            },
        })
    }
}

impl WireNet {
    fn of(net: &IpNet) -> WireNet {
        let mask = match net {
            IpNet::V4(v4) => STANDARD.encode(v4.netmask().octets()),
            IpNet::V6(v6) => STANDARD.encode(v6.netmask().octets()),
        };
        WireNet { ip: net.addr().to_string(), mask }
    }

    fn net(&self) -> Result<IpNet, String> {
        let bad = || format!("{:?} with mask {:?} is not a network", self.ip, self.mask);
        let ip: IpAddr = self.ip.parse().map_err(|_| bad())?;
        let mask = STANDARD.decode(&self.mask).map_err(|_| bad())?;
        let mask: IpAddr = match (<[u8; 4]>::try_from(&mask[..]), <[u8; 16]>::try_from(&mask[..])) {
            (Ok(v4), _) => Ipv4Addr::from(v4).into(),
            (_, Ok(v6)) => Ipv6Addr::from(v6).into(),
            _ => return Err(bad()),
        };
        IpNet::with_netmask(ip, mask).map_err(|_| bad())
    }
}

/// Go writes null for bytes that were never set.
fn or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default())
}

/// Go writes null for a list nothing was put in.
fn list<T>(items: Vec<T>) -> Option<Vec<T>> {
    (!items.is_empty()).then_some(items)
}
