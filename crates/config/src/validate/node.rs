//! The node agent's settings among themselves.

use super::conflict;
use crate::{Config, NodeMode, error::ConfigError};

pub(super) fn check(config: &Config, errors: &mut Vec<ConfigError>) {
    let node = &config.node;
    let (netdev, resource) = ("ovnkube-node-mgmt-port-netdev", "ovnkube-node-mgmt-port-dp-resource-name");
    let mode = || config.described("ovnkube-node-mode");

    if node.mode != NodeMode::Full && config.hybrid_overlay.enabled {
        errors.push(conflict(format!(
            "{} does not work with {}; remove one",
            config.described("enable-hybrid-overlay"),
            mode()
        )));
    }
    match node.mode {
        NodeMode::Full => {}
        NodeMode::Dpu => {
            for name in [netdev, resource].into_iter().filter(|n| config.is_set(n)) {
                errors.push(conflict(format!(
                    "{} belongs on the host, not beside {}; remove it",
                    config.described(name),
                    mode()
                )));
            }
        }
        NodeMode::DpuHost => {
            if config.features.network_segmentation && node.mgmt_port_dp_resource_name.is_none() {
                errors.push(conflict(format!(
                    "{} with {} needs --{resource}; user-defined networks take one management port each",
                    mode(),
                    config.described("enable-network-segmentation"),
                )));
            } else if node.mgmt_port_netdev.is_none() && node.mgmt_port_dp_resource_name.is_none() {
                errors.push(conflict(format!("{} needs --{netdev} or --{resource}", mode())));
            }
        }
    }
    if !node.dpu_node_lease_duration.is_zero()
        && node.dpu_node_lease_duration <= node.dpu_node_lease_renew_interval
    {
        errors.push(conflict(format!(
            "{} must be longer than {}, or 0 for no lease; else the lease ends before it is renewed",
            config.described("dpu-node-lease-duration"),
            config.described("dpu-node-lease-renew-interval"),
        )));
    }
    let metrics = &config.metrics;
    if metrics.node_server_privkey.is_some() != metrics.node_server_cert.is_some() {
        let (given, missing) = if metrics.node_server_cert.is_some() {
            ("node-server-cert", "node-server-privkey")
        } else {
            ("node-server-privkey", "node-server-cert")
        };
        errors.push(conflict(format!(
            "{} needs --{missing} beside it; give both for TLS or neither",
            config.described(given)
        )));
    }
}
