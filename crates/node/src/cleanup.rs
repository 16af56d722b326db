//! `--cleanup-node`: takes the agent's things off the machine. Everything is tried; what fails is reported at the end.
//! Pods' ports, bridges, the chassis id and whatever others put there stay.

use std::time::Duration;

use ::host::Handle;
use net::Dual;
use ovsdb::{Cache, Endpoint, Options, Replica};
use tokio::time::timeout;
use tracing::info;

use crate::conf_file;
use crate::error::NodeError;
use crate::gateway::takeover;
use crate::gateway::{apply, host};
use crate::host_plan::{self, HostPlan};
use crate::mgmt_port;
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
    // Both rules: the gateway's would stay behind where its bridge is gone already.
    let rule_kinds = vec![mgmt_port::SERVICE_RULE, host::EGRESS_RULE];
    errors.extend(remove_from_host(&HostPlan { rule_kinds, ..mgmt_port::nothing() }).err());
    errors.extend(apply::remove_table(settings).await.err());
    errors.extend(remove_from_database(settings).await.err());
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Rules name no interface, so they would outlive ours. Routes and neighbours go with the interface, but a database
/// that does not answer keeps the interface, and then they must not go on attracting traffic.
fn remove_from_host(plan: &HostPlan) -> Result<(), NodeError> {
    let handle = Handle::open().map_err(|error| NodeError::Host {
        what: "open a netlink socket".to_owned(),
        reason: error.to_string(),
    })?;
    let (_, failures) = host_plan::carry_out(&handle, plan)?;
    failures.errors.into_iter().next().map_or(Ok(()), Err)
}

async fn remove_from_database(settings: &Settings) -> Result<(), NodeError> {
    let missing = |reason: String| NodeError::NoOpenVswitch { endpoint: settings.ovs_db.clone(), reason };
    let endpoint: Endpoint =
        settings.ovs_db.parse().map_err(|e| missing(format!("not an OVSDB address: {e}")))?;
    let replica = Replica::connect(Options::new([endpoint], "Open_vSwitch").monitor(ovs::monitor_spec()));
    let late = |_| missing("no answer".to_owned());
    timeout(PATIENCE, replica.ready()).await.map_err(late)?;
    for network in [ovs::PHYSICAL_NETWORK, ovs::EXTERNAL_NETWORK] {
        let mapped = |cache: &Cache| Some(ovs::mapped_bridge(ovs::root(cache)?, network)?.to_owned());
        let Some(bridge) = replica.read(mapped) else { continue };
        apply::remove_flows(settings, &bridge).await?;
        remove_from_host(&host::nothing(settings, &bridge, &Dual::default()))?;
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
        let ours = [(ovs::PHYSICAL_NETWORK, None), (ovs::EXTERNAL_NETWORK, None)];
        ops.extend(ovs::root(cache).and_then(|root| ovs::set_mappings(root, &ours)));
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
