//! Carries planned changes out. Each stands alone: one that fails does not keep the others from being made.

use host::addr::AddrFlags;
use host::link::LinkChange;
use host::{Error, Handle, route, rule, sysctl};
use tracing::info;

use super::{Change, NAME, Route, Rule};
use crate::error::NodeError;

/// What could not be done.
#[derive(Debug, Default)]
pub struct Failures {
    /// Without these pods cannot be reached.
    pub errors: Vec<NodeError>,
    /// Without these some traffic is dropped (kernel settings, which a container may be kept from writing).
    pub warnings: Vec<NodeError>,
}

/// Makes the changes on the interface of this index.
pub fn apply(handle: &Handle, index: u32, changes: &[Change]) -> Failures {
    let mut failures = Failures::default();
    for change in changes {
        let Err(error) = one(handle, index, change) else {
            info!(change = %describe(change), "management port corrected");
            continue;
        };
        let error = NodeError::Host { what: describe(change), reason: error.to_string() };
        match change {
            Change::SetSysctl(_) => failures.warnings.push(error),
            _ => failures.errors.push(error),
        }
    }
    failures
}

fn one(handle: &Handle, index: u32, change: &Change) -> Result<(), Error> {
    match change {
        Change::SetSysctl(wanted) => {
            let key: Vec<&str> = wanted.key.iter().map(String::as_str).collect();
            sysctl::set(&key, &wanted.value)
        }
        Change::TxChecksumOff => handle.set_tx_checksum(NAME, false),
        Change::RemoveAddress(net) => gone(handle.delete_address(index, *net)),
        // The router on the other side is the only neighbour: there is nobody to collide with.
        Change::AddAddress(net) => {
            handle.replace_address(index, *net, AddrFlags { nodad: true, ..AddrFlags::default() })
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

/// Protocol numbers of routes. The reference's routes carry `boot`, and so do ours: they are told apart by the
/// interface, which is ours alone.
mod proto {
    pub(super) const ANY: u8 = 0;
    pub(super) const BOOT: u8 = 3;
}

fn kernel_route(wanted: &Route, index: u32, protocol: u8) -> route::Route {
    route::Route {
        gateway: Some(wanted.gateway),
        oif: Some(index),
        table: wanted.table,
        mtu: wanted.mtu,
        metric: wanted.metric,
        proto: protocol,
        ..route::Route::to(wanted.dst)
    }
}

fn kernel_rule(wanted: &Rule) -> rule::Rule {
    rule::Rule {
        v6: wanted.v6,
        priority: wanted.priority,
        fwmark: Some(wanted.mark),
        table: wanted.table,
        ..rule::Rule::default()
    }
}

fn gone(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

fn describe(change: &Change) -> String {
    match change {
        Change::SetSysctl(sysctl) => format!("set {} to {}", sysctl.name(), sysctl.value),
        Change::TxChecksumOff => format!("switch transmit checksum offload of {NAME} off"),
        Change::RemoveAddress(net) => format!("remove address {net} from {NAME}"),
        Change::AddAddress(net) => format!("add address {net} to {NAME}"),
        Change::Up => format!("set {NAME} up"),
        Change::ReplaceRoute(r) => format!("set route {} via {} in table {}", r.dst, r.gateway, r.table),
        Change::RemoveRoute(r) => format!("remove route {} via {} from table {}", r.dst, r.gateway, r.table),
        Change::ReplaceNeighbour(n) => format!("set neighbour {} to {}", n.ip, n.mac),
        Change::RemoveNeighbour(ip) => format!("remove neighbour {ip}"),
        Change::AddRule(r) => format!("add rule {} for mark {:#x} to table {}", r.priority, r.mark, r.table),
        Change::RemoveRule(r) => {
            format!("remove rule {} for mark {:#x} to table {}", r.priority, r.mark, r.table)
        }
    }
}
