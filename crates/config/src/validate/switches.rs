//! Features that need other features.

use super::conflict;
use crate::{BgpTopology, Config, NoOverlayRouting, error::ConfigError};

/// A switch and the one it needs.
const NEEDS: &[(&str, &str)] = &[
    ("enable-network-segmentation", "enable-multi-network"),
    ("enable-uplink", "enable-network-segmentation"),
    ("enable-dynamic-udn-allocation", "enable-network-segmentation"),
    ("enable-evpn", "enable-route-advertisements"),
];

pub(super) fn check(config: &Config, errors: &mut Vec<ConfigError>) {
    for (switch, needed) in NEEDS {
        if config.is_on(switch) && !config.is_on(needed) {
            errors.push(conflict(format!(
                "{} needs --{needed}; set it or turn --{switch} off",
                config.described(switch)
            )));
        }
    }
    no_overlay(config, errors);
}

fn no_overlay(config: &Config, errors: &mut Vec<ConfigError>) {
    if config.default.transport.is_none() {
        return;
    }
    let transport = config.described("transport");
    if !config.features.route_advertisements {
        errors.push(conflict(format!("{transport} needs --enable-route-advertisements")));
    }
    for (missing, key, words) in [
        (config.no_overlay.outbound_snat.is_none(), "outbound-snat", "enabled or disabled"),
        (config.no_overlay.routing.is_none(), "routing", "managed or unmanaged"),
    ] {
        if missing {
            errors.push(conflict(format!(
                "{transport} needs {key} in section [no-overlay] of the file; write {words}"
            )));
        }
    }
    if config.no_overlay.routing == Some(NoOverlayRouting::Managed) {
        let routing = config.described("no-overlay-routing");
        if config.bgp_managed.topology != Some(BgpTopology::FullMesh) {
            errors.push(conflict(format!(
                "{routing} needs topology = full-mesh in section [bgp-managed] of the file"
            )));
        }
        if config.bgp_managed.frr_namespace.is_none() {
            errors.push(conflict(format!(
                "{routing} needs frr-namespace in section [bgp-managed] of the file"
            )));
        }
    }
}
