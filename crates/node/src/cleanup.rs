//! `--cleanup-node`: takes the agent's things off the machine. Everything is tried; what fails is reported at the end.
//! Pods' ports, bridges, the chassis id and whatever others put there stay.

use std::net::IpAddr;
use std::time::Duration;

use host::Handle;
use ipnet::IpNet;
use ovsdb::{Endpoint, Options, Replica};
use tokio::time::timeout;
use tracing::info;

use crate::conf_file;
use crate::error::NodeError;
use crate::gateway::apply;
use crate::gateway::host::{EGRESS_MARK, EGRESS_RULE_PRIORITY};
use crate::gateway::takeover;
use crate::mgmt_port::{self, SERVICE_MARK, SERVICE_RULE_PRIORITY, SERVICE_TABLE};
use crate::ovs;
use crate::settings::Settings;

/// How long a database that is there may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Removes the CNI configuration, the management port, the gateway's host state, flows and firewall table, our rules and
/// routes, and our keys of the Open_vSwitch row.
/// A second run finds nothing to do. The errors are all that could not be removed.
pub async fn cleanup(settings: &Settings) -> Result<(), Vec<NodeError>> {
    let mut errors = Vec::new();
    let path = conf_file::path(&settings.cni_conf).display().to_string();
    match conf_file::remove(&settings.cni_conf) {
        Ok(true) => info!(path, "removed the CNI configuration"),
        Ok(false) => {}
        Err(source) => errors.push(NodeError::File { path, source }),
    }
    errors.extend(remove_from_host().err());
    errors.extend(apply::remove_table(settings).await.err());
    errors.extend(remove_from_database(settings).await.err());
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Rules name no interface, so they would outlive ours. Routes and neighbours go with the interface, but a database
/// that does not answer keeps the interface, and then they must not go on attracting traffic.
fn remove_from_host() -> Result<(), NodeError> {
    let failed = |error: host::Error| NodeError::Host {
        what: "remove our routes and rules".to_owned(),
        reason: error.to_string(),
    };
    let handle = Handle::open().map_err(failed)?;
    for rule in handle.rules().map_err(failed)? {
        let key = (rule.priority, rule.fwmark, rule.table);
        let ours = key == (SERVICE_RULE_PRIORITY, Some(SERVICE_MARK), SERVICE_TABLE)
            || key == (EGRESS_RULE_PRIORITY, Some(EGRESS_MARK), mgmt_port::MAIN_TABLE);
        if ours {
            info!(priority = rule.priority, v6 = rule.v6, "removed our rule");
            ignore_gone(handle.delete_rule(&rule)).map_err(failed)?;
        }
    }
    let Some(link) = handle.link(mgmt_port::NAME).map_err(failed)? else { return Ok(()) };
    for route in handle.routes(None).map_err(failed)? {
        if route.oif == Some(link.index) && route.gateway.is_some() {
            ignore_gone(handle.delete_route(&route)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Takes the masquerade addresses, and what leads to them, off the gateway bridge.
fn remove_from_bridge(settings: &Settings, bridge: &str) -> Result<(), NodeError> {
    let failed = |error: host::Error| NodeError::Host {
        what: format!("remove our addresses and routes from {bridge}"),
        reason: error.to_string(),
    };
    let handle = Handle::open().map_err(failed)?;
    let Some(link) = handle.link(bridge).map_err(failed)? else { return Ok(()) };
    let ranges = [IpNet::from(settings.gateway.masquerade_v4), IpNet::from(settings.gateway.masquerade_v6)];
    let ours = |ip: IpAddr| ranges.iter().any(|range| range.contains(&ip));
    for route in handle.routes(Some(mgmt_port::MAIN_TABLE)).map_err(failed)? {
        let single = route.dst.prefix_len() == route.dst.max_prefix_len();
        let to_ours = route.gateway.is_some_and(ours) || (single && ours(route.dst.addr()));
        if route.oif == Some(link.index) && to_ours {
            ignore_gone(handle.delete_route(&route)).map_err(failed)?;
        }
    }
    for neighbour in handle.neighbours(Some(link.index)).map_err(failed)? {
        if neighbour.permanent && ours(neighbour.ip) {
            ignore_gone(handle.delete_neighbour(link.index, neighbour.ip)).map_err(failed)?;
        }
    }
    for address in handle.addresses(Some(link.index)).map_err(failed)? {
        if address.index == link.index && ours(address.net.addr()) {
            info!(address = %address.net, bridge, "removed our address");
            ignore_gone(handle.delete_address(link.index, address.net)).map_err(failed)?;
        }
    }
    Ok(())
}

fn ignore_gone(result: Result<(), host::Error>) -> Result<(), host::Error> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

async fn remove_from_database(settings: &Settings) -> Result<(), NodeError> {
    let missing = |reason: String| NodeError::NoOpenVswitch { endpoint: settings.ovs_db.clone(), reason };
    let endpoint: Endpoint =
        settings.ovs_db.parse().map_err(|e| missing(format!("not an OVSDB address: {e}")))?;
    let replica = Replica::connect(Options::new([endpoint], "Open_vSwitch").monitor(ovs::monitor_spec()));
    let late = |_| missing("no answer".to_owned());
    timeout(PATIENCE, replica.ready()).await.map_err(late)?;
    if let Some(bridge) = replica.read(|cache| Some(ovs::mapped_bridge(ovs::root(cache)?)?.to_owned())) {
        apply::remove_flows(settings, &bridge).await?;
        remove_from_bridge(settings, &bridge)?;
    }
    let handle = Handle::open().map_err(|error| NodeError::Host {
        what: "open a netlink socket".to_owned(),
        reason: error.to_string(),
    })?;
    takeover::take_back(&replica, &handle, settings).await?;
    let ops = replica.read(|cache| {
        let mut ops = ovs::remove_port(cache, mgmt_port::NAME);
        ops.extend(ovs::remove_legacy_port(cache, &settings.node));
        ops.extend(ovs::root(cache).and_then(|root| ovs::remove_own_keys(root)));
        ops.extend(ovs::root(cache).and_then(|root| ovs::set_mapping(root, None)));
        ops
    });
    if ops.is_empty() {
        return Ok(());
    }
    let outcome = timeout(PATIENCE, replica.transact(ops)).await.map_err(late)?;
    outcome.map_err(|error| NodeError::Ovs { what: "remove the node's rows", reason: error.to_string() })?;
    info!("removed the management port and our keys from the Open_vSwitch database");
    Ok(())
}
