//! What the process is asked to be.

use super::conflict;
use crate::{Config, error::ConfigError};

pub(super) fn check(config: &Config, errors: &mut Vec<ConfigError>) {
    let roles = &config.roles;
    let working = roles.ovnkube_controller.is_some() || roles.node.is_some();
    if roles.cluster_manager.is_some() && working {
        errors.push(conflict(
            "--init-cluster-manager cannot be combined with --init-ovnkube-controller or --init-node; \
             run the cluster manager as a process of its own",
        ));
    }
    if roles.cleanup_node.is_some() && (working || roles.cluster_manager.is_some()) {
        errors.push(conflict("--cleanup-node cannot be combined with another role; run it alone"));
    }
    if let (Some(controller), Some(node)) = (&roles.ovnkube_controller, &roles.node)
        && controller != node
    {
        errors.push(conflict(format!(
            "--init-ovnkube-controller {controller:?} and --init-node {node:?} name different nodes; \
             one process serves one node"
        )));
    }
    for (flag, name) in [
        ("--init-ovnkube-controller", &roles.ovnkube_controller),
        ("--init-node", &roles.node),
        ("--cleanup-node", &roles.cleanup_node),
    ] {
        if let Some(name) = name
            && !is_node_name(name)
        {
            errors.push(conflict(format!(
                "{flag} {name:?} is not a node name; give metadata.name of the Node (lower case letters, digits, '-' and '.')"
            )));
        }
    }
    let ha = &config.cluster_manager_ha;
    if !(ha.lease_duration > ha.renew_deadline
        && ha.renew_deadline > ha.retry_period
        && !ha.retry_period.is_zero())
    {
        let name = |n: &str| config.described(&format!("cluster-manager-ha-election-{n}"));
        errors.push(conflict(format!(
            "{} must be longer than {}, that longer than {}, and none zero; else the leader can lose its lease while it renews",
            name("lease-duration"),
            name("renew-deadline"),
            name("retry-period"),
        )));
    }
}

/// A DNS subdomain, as the API requires of Node names.
fn is_node_name(name: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}
