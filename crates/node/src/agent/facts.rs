//! What one pass sees of Node, database and host, put together.

use std::net::IpAddr;

use ipnet::IpNet;
use kapi::annotations::{self as key, GatewayConfig, GatewayMode};
use kapi::{Meta, Node};
use net::Dual;
use ovsdb::Cache;

use crate::addresses::{Excluded, host_cidrs};
use crate::annotations::Facts;
use crate::host_view::HostView;
use crate::ovs;
use crate::settings::Settings;
use crate::uplink::{self, Surroundings, Uplink};

/// Egress IPs we placed on the gateway bridge.
const BRIDGE_EGRESS_IPS: &str = "k8s.ovn.org/bridge-egress-ips";
/// Egress IPs we placed on other interfaces.
const SECONDARY_EGRESS_IPS: &str = "k8s.ovn.org/secondary-host-egress-ips";

/// The masquerade ranges as the annotation lists them.
pub(super) fn masquerade(settings: &Settings) -> Dual<IpNet> {
    let gateway = &settings.gateway;
    Dual { v4: Some(gateway.masquerade_v4.into()), v6: Some(gateway.masquerade_v6.into()) }
}

/// What the node was before this start, as its annotations tell: what of it is not wanted any more has to go.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// The gateway; none if it had none.
    pub(super) gateway: Option<GatewayConfig>,
    /// The masquerade ranges.
    pub(super) masquerade: Dual<IpNet>,
}

impl Before {
    /// An annotation that cannot be read tells nothing.
    pub(super) fn of(node: &Meta) -> Before {
        let gateway = GatewayConfig::parse(node).ok().flatten();
        let masquerade = key::parse_cidr_pair(node, key::MASQUERADE_SUBNET).ok().flatten();
        Before {
            gateway: gateway.filter(|gateway| gateway.mode != GatewayMode::Disabled),
            masquerade: masquerade.unwrap_or_default(),
        }
    }

    /// The second bridge, of a node of this name.
    pub(super) fn external(&self, node: &str) -> Option<&str> {
        let external = self.gateway.as_ref()?.external.as_ref()?;
        external.interface_id.strip_suffix(node)?.strip_suffix('_')
    }

    /// The VLAN of the uplink, 0 for none.
    pub(super) fn vlan(&self) -> u16 {
        self.gateway.as_ref().map(|gateway| gateway.vlan_id).unwrap_or_default()
    }
}

/// Addresses of the host that are not the host's own.
pub(super) fn excluded(settings: &Settings, node: &Meta, before: &Before) -> Excluded {
    let list = |key| node.annotation(key).and_then(|text| serde_json::from_str::<Vec<IpAddr>>(text).ok());
    let egress_ips =
        [BRIDGE_EGRESS_IPS, SECONDARY_EGRESS_IPS].into_iter().filter_map(list).flatten().collect();
    let now = masquerade(settings);
    Excluded { masquerade: now.iter().chain(before.masquerade.iter()).copied().collect(), egress_ips }
}

/// The host's way out, and the second one if there is to be one.
pub(super) fn find_uplink(
    settings: &Settings,
    node: &Node,
    bridges: Vec<uplink::Bridge>,
    view: &HostView,
    excluded: &Excluded,
    before: &Before,
) -> (Result<Uplink, String>, Option<Result<Uplink, String>>) {
    let around = Surroundings {
        bridges,
        addresses: view.addresses.clone(),
        macs: view.macs.clone(),
        default_routes: view.default_routes.clone(),
        node_ips: node.internal_ips().collect(),
        before: before.gateway.as_ref().map(|gateway| gateway.bridge.clone()),
    };
    (uplink::find(settings, &around, excluded), uplink::find_external(settings, &around, excluded))
}

/// Tunnel addresses: the flag's, else the address Kubernetes knows the node by, else the uplink's.
pub(super) fn encap_ips(settings: &Settings, node: &Node, uplink: &Result<Uplink, String>) -> Vec<IpAddr> {
    if !settings.encap.ips.is_empty() {
        return settings.encap.ips.clone();
    }
    let of_uplink = uplink.as_ref().ok().and_then(|uplink| uplink.addresses.first()).map(IpNet::addr);
    node.internal_ips().next().or(of_uplink).into_iter().collect()
}

/// What the annotations shall say.
pub(super) fn annotations(
    settings: &Settings,
    cache: &Cache,
    view: &HostView,
    excluded: &Excluded,
    (uplink, external): (&Result<Uplink, String>, Option<&Result<Uplink, String>>),
    encap_ips: &[IpAddr],
) -> (Facts, Option<String>) {
    let (gateway, problem) = match uplink::gateway_config(settings, uplink, external) {
        Ok(config) => (Some(config.to_annotation()), None),
        Err(problem) => (None, Some(problem)),
    };
    let offload = ovs::root(cache).is_some_and(|root| root.key("other_config", "hw-offload") == Some("true"));
    let primary =
        uplink.as_ref().ok().map(|uplink| uplink.addresses).filter(|addresses| !addresses.is_empty());
    let facts = Facts {
        chassis_id: ovs::system_id(cache).map(str::to_owned),
        encap_ips: (!encap_ips.is_empty()).then(|| encap_ips.to_vec()),
        primary,
        host_cidrs: Some(host_cidrs(&view.addresses, excluded)),
        masquerade: Some(masquerade(settings)),
        gateway,
        gateway_mtu_support: !settings.gateway.disable_packet_mtu_check && !offload,
    };
    (facts, problem)
}
