//! Carries planned changes out. Each stands alone: one that fails does not keep the others from being made.

use host::addr::{AddrFlags, Lifetime};
use host::link::LinkChange;
use host::{Error, Handle, route, rule, sysctl};
use tracing::info;

use super::observe::observe;
use super::{Change, HostPlan, Route, Rule};
use crate::error::NodeError;

/// What could not be done.
#[derive(Debug, Default)]
pub struct Failures {
    /// Without these something cannot be reached.
    pub errors: Vec<NodeError>,
    /// Without these some traffic is dropped (kernel settings, which a container may be kept from writing).
    pub warnings: Vec<NodeError>,
}

/// Looks, and makes the changes that lead to the plan; tells whether there were any. `handle` and the calling thread
/// belong to the namespace of the node.
pub(crate) fn carry_out(handle: &Handle, plan: &HostPlan) -> Result<(bool, Failures), NodeError> {
    let device = &plan.device;
    let observed = observe(handle, plan).map_err(|error| NodeError::Host {
        what: format!("read interface {device}"),
        reason: error.to_string(),
    })?;
    let changes = plan.changes(&observed);
    let mut failures = Failures::default();
    for change in &changes {
        let what = describe(device, change);
        let Err(error) = one(handle, device, observed.index.unwrap_or_default(), change) else {
            info!("corrected: {what}");
            continue;
        };
        let error = NodeError::Host { what, reason: error.to_string() };
        match change {
            Change::SetSysctl(_) => failures.warnings.push(error),
            _ => failures.errors.push(error),
        }
    }
    Ok((!changes.is_empty(), failures))
}

fn one(handle: &Handle, device: &str, index: u32, change: &Change) -> Result<(), Error> {
    match change {
        Change::SetSysctl(wanted) => {
            let key: Vec<&str> = wanted.key.iter().map(String::as_str).collect();
            sysctl::set(&key, &wanted.value)
        }
        Change::TxChecksumOff => handle.set_tx_checksum(device, false),
        Change::RemoveAddress(net) => gone(handle.delete_address(index, *net)),
        // These addresses mean the same on every node: there is nobody to collide with.
        Change::AddAddress(address) => {
            let lifetime = if address.deprecated { Lifetime::DEPRECATED } else { Lifetime::default() };
            handle.replace_address(
                index,
                address.net,
                AddrFlags { nodad: true, lifetime, ..AddrFlags::default() },
            )
        }
        Change::Up => handle.set_link(index, &LinkChange { up: Some(true), ..LinkChange::default() }),
        Change::ReplaceRoute(route) => handle.replace_route(&kernel_route(route, index, proto::BOOT)),
        Change::RemoveRoute(route) => gone(handle.delete_route(&kernel_route(route, index, proto::ANY))),
        Change::ReplaceNeighbour(neighbour) => handle.replace_neighbour(index, neighbour.ip, neighbour.mac.0),
        Change::RemoveNeighbour(ip) => gone(handle.delete_neighbour(index, *ip)),
        Change::AddRule(rule) => match handle.add_rule(&kernel_rule(rule)) {
            Err(error) if error.is_exists() => Ok(()),
            other => other,
        },
        Change::RemoveRule(rule) => gone(handle.delete_rule(&kernel_rule(rule))),
    }
}

/// Protocol numbers of routes. The reference's routes carry `boot`, and so do ours.
mod proto {
    pub(super) const ANY: u8 = 0;
    pub(super) const BOOT: u8 = 3;
}

fn kernel_route(wanted: &Route, index: u32, proto: u8) -> route::Route {
    route::Route {
        gateway: wanted.gateway,
        oif: Some(index),
        table: wanted.table,
        src: wanted.src,
        mtu: wanted.mtu,
        metric: wanted.metric,
        proto,
        ..route::Route::to(wanted.dst)
    }
}

fn kernel_rule(wanted: &Rule) -> rule::Rule {
    rule::Rule {
        v6: wanted.v6,
        priority: wanted.kind.priority,
        fwmark: Some(wanted.kind.mark),
        table: wanted.table,
        ..rule::Rule::default()
    }
}

/// What is gone need not be removed; the kernel takes routes away with the address they name.
pub(crate) fn gone(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

fn describe(device: &str, change: &Change) -> String {
    let via = |route: &Route| match route.gateway {
        Some(gateway) => format!("{} via {gateway} on {device} in table {}", route.dst, route.table),
        None => format!("{} on {device} in table {}", route.dst, route.table),
    };
    let rule = |rule: &Rule| {
        format!("rule {} for mark {:#x} to table {}", rule.kind.priority, rule.kind.mark, rule.table)
    };
    match change {
        Change::SetSysctl(sysctl) => format!("set {} to {}", sysctl.name(), sysctl.value),
        Change::TxChecksumOff => format!("switch transmit checksum offload of {device} off"),
        Change::RemoveAddress(net) => format!("remove address {net} from {device}"),
        Change::AddAddress(address) => format!("add address {} to {device}", address.net),
        Change::Up => format!("set {device} up"),
        Change::ReplaceRoute(route) => format!("set route {}", via(route)),
        Change::RemoveRoute(route) => format!("remove route {}", via(route)),
        Change::ReplaceNeighbour(n) => format!("set neighbour {} on {device} to {}", n.ip, n.mac),
        Change::RemoveNeighbour(ip) => format!("remove neighbour {ip} from {device}"),
        Change::AddRule(added) => format!("add {}", rule(added)),
        Change::RemoveRule(removed) => format!("remove {}", rule(removed)),
    }
}
