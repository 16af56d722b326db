//! The gateway's settings among themselves.

use super::conflict;
use crate::{Config, GatewayMode, error::ConfigError};

pub(super) fn check(config: &Config, errors: &mut Vec<ConfigError>) {
    let gateway = &config.gateway;
    if gateway.vlan_id.is_some() && gateway.mode != Some(GatewayMode::Shared) {
        errors.push(conflict(format!(
            "{} works only with --gateway-mode=shared, not with {}; change the mode or remove the VLAN",
            config.described("gateway-vlanid"),
            gateway.mode.map_or("no gateway".to_owned(), |_| config.described("gateway-mode")),
        )));
    }
    if gateway.mode.is_none() {
        for name in ["gateway-interface", "gateway-nexthop", "ephemeral-port-range"] {
            if config.is_set(name) {
                errors.push(conflict(format!(
                    "{} is given but the gateway is disabled; set --gateway-mode=shared or local, or remove it",
                    config.described(name)
                )));
            }
        }
    }
    for v6 in [false, true] {
        let hops = gateway.next_hop.iter().filter(|ip| ip.is_ipv6() == v6).count();
        if hops > 1 {
            errors.push(conflict(format!(
                "{} has {hops} {} addresses; give at most one a family",
                config.described("gateway-nexthop"),
                if v6 { "IPv6" } else { "IPv4" }
            )));
        }
    }
}
