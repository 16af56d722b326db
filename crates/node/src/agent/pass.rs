//! One pass: look, plan, apply, and say what is still missing.

use std::net::IpAddr;
use std::sync::Arc;

use kapi::annotations::{DEFAULT_NETWORK, parse_node_subnets};
use kapi::{Meta, Node};
use kube_io::Class;
use ovsdb::{Op, TxnError};
use tracing::{debug, info};

use super::facts::Before;
use super::{Agent, facts};
use crate::annotations::{self, Edit};
use crate::error::NodeError;
use crate::gateway::{Bridge, host};
use crate::host_plan::{self, HostPlan};
use crate::host_view::{self, HostView};
use crate::kube_feed::{OwnNode, key_of};
use crate::mgmt_port::{self, Facts};
use crate::ovs::{self, OwnKeys, PortSpec};
use crate::status::Awaited;
use crate::{chassis, mtu, ovn_controller};

/// Transactions one pass makes at most: each may uncover the next (the bridge, then the port on it).
const MAX_TRANSACTIONS: usize = 4;

/// What a pass did and found.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// What is still missing.
    pub(super) awaited: Option<Awaited>,
    /// What went wrong or is suspicious.
    pub(super) problems: Vec<String>,
    /// Nobody will tell when to try again.
    pub(super) retry: bool,
    /// Something was written.
    pub(super) wrote: bool,
    /// The agent cannot go on.
    pub(super) fatal: Option<NodeError>,
}

/// Annotations the API server has taken but our watch has not shown yet. Without it a pass in between would send the
/// same patch again.
#[derive(Debug, Default)]
pub(super) struct Echo {
    uid: String,
    /// The version of the Node that was patched: as long as the watch shows it, the patch has not been seen.
    version: String,
    edits: Vec<Edit>,
}

impl Echo {
    fn add(&mut self, node: &Node, edits: Vec<Edit>) {
        let meta = &node.metadata;
        if !self.concerns(meta) {
            *self = Echo { uid: meta.uid.clone(), version: meta.resource_version.clone(), edits: Vec::new() };
        }
        self.edits.extend(edits);
    }

    fn concerns(&self, meta: &Meta) -> bool {
        meta.uid == self.uid && meta.resource_version == self.version
    }

    fn applied_to(&self, node: &Node) -> Meta {
        let mut meta = node.metadata.clone();
        if self.concerns(&meta) {
            for (key, value) in &self.edits {
                match value {
                    Some(value) => meta.annotations.insert((*key).to_owned(), value.clone()),
                    None => meta.annotations.remove(*key),
                };
            }
        }
        meta
    }
}

/// Why a pass ends before its last step.
pub(super) enum Stop {
    Await(Awaited),
    Fail(NodeError),
}

impl From<NodeError> for Stop {
    fn from(error: NodeError) -> Self {
        Stop::Fail(error)
    }
}

impl Agent {
    pub(super) async fn pass(&mut self) -> Pass {
        let mut pass = Pass::default();
        self.in_place.forget_writers();
        match self.walk(&mut pass).await {
            Ok(()) => {}
            Err(Stop::Await(awaited)) => pass.awaited = Some(awaited),
            Err(Stop::Fail(error)) if error.is_fatal() && !self.started => pass.fatal = Some(error),
            Err(Stop::Fail(error)) => {
                pass.problems.push(error.to_string());
                pass.awaited = Some(Awaited::Retry { reason: error.to_string() });
                pass.retry = true;
            }
        }
        pass
    }

    async fn walk(&mut self, pass: &mut Pass) -> Result<(), Stop> {
        self.check_database()?;
        let node = self.own_node()?;
        let subnets = parse_node_subnets(&node.metadata, DEFAULT_NETWORK).map_err(|error| {
            NodeError::BadSubnets { node: self.settings.node.clone(), reason: error.to_string() }
        });
        // An unusable annotation must not keep the rest of the node from being set up.
        let (port, unusable) = match subnets {
            Ok(Some(subnets)) => {
                let subnets: Vec<_> = subnets.iter().copied().collect();
                match Facts::from_subnets(&self.settings.node, &subnets) {
                    Ok(facts) => (Some(facts), None),
                    Err(error) => (None, Some(error)),
                }
            }
            Ok(None) => (None, None),
            Err(error) => (None, Some(error)),
        };
        let userspace = self.replica.read(ovs::userspace_datapath);
        let desired = port.as_ref().map(|facts| mgmt_port::desired(&self.settings, facts, userspace));
        let before = Before::of(&node.metadata);
        let excluded = facts::excluded(&self.settings, &node.metadata, &before);
        let look = async || {
            let view = self.observe().await?;
            let bridges = self.replica.read(ovs::other_bridges);
            let ways = facts::find_uplink(&self.settings, &node, bridges, &view, &excluded, &before);
            Ok::<_, NodeError>((view, ways))
        };
        let (mut view, mut ways) = look().await?;
        let mut moved = self.take_over(pass, &ways.0, &view).await?;
        if let Some(external) = &ways.1 {
            moved |= self.take_over(pass, external, &view).await?;
        }
        if moved {
            (view, ways) = look().await?;
        }
        let (uplink, external) = ways;
        let encap_ips = facts::encap_ips(&self.settings, &node, &uplink);
        mtu::check(&self.settings, &encap_ips, &view.addresses, |name| view.mtus.get(name).copied())?;

        let bridge = self.gateway_bridge(&uplink);
        let second = external.as_ref().and_then(|external| self.gateway_bridge(external));
        self.retire_gateway(pass, bridge.as_ref(), &before).await?;
        self.retire_external(&before).await?;
        let bridges = (bridge.as_ref(), second.as_ref());
        self.write_database(pass, &node, port.as_ref(), &encap_ips, bridges, &before).await?;
        if let Some(desired) = desired {
            self.write_host(pass, desired).await?;
        }
        if let Some(bridge) = &bridge {
            self.write_host(pass, host::desired(&self.settings, bridge, &before.masquerade)).await?;
        }
        let (facts, problem) = self.replica.read(|cache| {
            let ways = (&uplink, external.as_ref());
            facts::annotations(&self.settings, cache, &view, &excluded, ways, &encap_ips)
        });
        pass.problems
            .extend(problem.iter().map(|problem| format!("the gateway is not announced: {problem}")));
        let known = self.echo.applied_to(&node);
        self.write_annotations(pass, &node, annotations::plan(&known, &facts)).await?;

        if encap_ips.is_empty() {
            return Err(Stop::Await(Awaited::NodeAddress));
        }
        if let Some(error) = unusable {
            return Err(error.into());
        }
        let Some(port) = port else { return Err(Stop::Await(Awaited::NodeSubnets)) };
        self.set_around(&view, &excluded, bridge.as_ref());
        // One that fails does not keep the other from being written.
        let firewall = self.write_firewall(pass, [bridge.as_ref(), second.as_ref()], &port).await;
        // A node that has served pods goes on with its gateway as it is. A new one has none before it is announced.
        let problem = problem.filter(|_| !self.started);
        let flows = match bridge.as_ref().filter(|_| problem.is_none()) {
            Some(bridge) => self.write_flows(pass, bridge, &view, &excluded, &port).await,
            None => Ok(()),
        };
        let external_flows = match second.as_ref().filter(|_| problem.is_none()) {
            Some(bridge) => self.write_external_flows(pass, bridge, &port).await,
            None => Ok(()),
        };
        firewall?;
        self.check_port(&view)?;
        if let Some(problem) = problem {
            return Err(Stop::Await(Awaited::Gateway { problem }));
        }
        flows?;
        external_flows?;
        self.check_controller(pass).await
    }

    fn check_database(&self) -> Result<(), Stop> {
        let endpoint = self.settings.ovs_db.clone();
        if !self.replica.is_up() {
            return Err(Stop::Await(Awaited::OpenVswitch { endpoint }));
        }
        if let Some((table, column)) = ovs::missing_column(&self.replica.capabilities()) {
            return Err(NodeError::TooOld { endpoint, table, column }.into());
        }
        if self.replica.read(|cache| ovs::root(cache).is_none()) {
            return Err(NodeError::NotInitialised { endpoint }.into());
        }
        Ok(())
    }

    fn own_node(&self) -> Result<Arc<Node>, Stop> {
        let feed = self.node.borrow();
        match &feed.node {
            OwnNode::Present(node) => Ok(node.clone()),
            OwnNode::Absent => Err(Stop::Await(Awaited::NodeObject)),
            OwnNode::Unknown => Err(Stop::Await(Awaited::ApiServer { reason: feed.problem.clone() })),
        }
    }

    async fn observe(&self) -> Result<HostView, NodeError> {
        let handle = self.handle.clone();
        let what = "read the host's interfaces and routes".to_owned();
        match tokio::task::spawn_blocking(move || host_view::observe(&handle)).await {
            Ok(Ok(view)) => Ok(view),
            Ok(Err(error)) => Err(NodeError::Host { what, reason: error.to_string() }),
            Err(error) => Err(NodeError::Host { what, reason: error.to_string() }),
        }
    }

    async fn write_database(
        &self,
        pass: &mut Pass,
        node: &Node,
        port: Option<&Facts>,
        encap_ips: &[IpAddr],
        bridges: (Option<&Bridge>, Option<&Bridge>),
        before: &Before,
    ) -> Result<(), Stop> {
        let system_id = self.system_id(node)?;
        let keys = OwnKeys { system_id, encap_ips: encap_ips.to_vec() };
        let port = port.map(|facts| PortSpec {
            name: mgmt_port::NAME.to_owned(),
            iface_id: ovs::iface_id(&self.settings.node),
            mac: facts.mac,
            mtu: self.settings.mtu,
        });
        for _ in 0..MAX_TRANSACTIONS {
            let ops = self.plan_database(&keys, port.as_ref(), bridges, before);
            if ops.is_empty() {
                return Ok(());
            }
            debug!(?ops, "writing to the Open_vSwitch database");
            pass.wrote = true;
            self.replica.transact(ops).await.map_err(|error| self.explain(&error))?;
        }
        // Somebody else writes the same things differently; the next pass goes on after a pause.
        pass.retry = true;
        Ok(())
    }

    fn plan_database(
        &self,
        keys: &OwnKeys,
        port: Option<&PortSpec>,
        (bridge, external): (Option<&Bridge>, Option<&Bridge>),
        before: &Before,
    ) -> Vec<Op> {
        let retired = self.retired_bridge(bridge, before);
        self.replica.read(|cache| {
            let Some(root) = ovs::root(cache) else { return Vec::new() };
            let mut ops: Vec<Op> = ovs::set_keys(root, &self.settings, keys).into_iter().collect();
            // An entry is ours when it leads where the node said it did.
            let removed = |network| {
                let mapped = ovs::mapped_bridge(root, network);
                let old = match network {
                    ovs::PHYSICAL_NETWORK => retired,
                    _ => before.external(&self.settings.node),
                };
                old.is_some() && old == mapped
            };
            let mut mappings = Vec::new();
            for (network, bridge) in [(ovs::PHYSICAL_NETWORK, bridge), (ovs::EXTERNAL_NETWORK, external)] {
                if bridge.is_some() || (self.is_off(network) && removed(network)) {
                    mappings.push((network, bridge.map(|bridge| bridge.name.as_str())));
                }
            }
            ops.extend(ovs::set_mappings(root, &mappings));
            if let Some(retired) = retired {
                ops.extend(ovs::set_host_vlan(cache, retired, 0, before.vlan()));
            }
            if let Some(bridge) = bridge {
                let vlan = self.settings.gateway.vlan_id;
                ops.extend(ovs::set_host_vlan(cache, &bridge.name, vlan, before.vlan()));
            }
            ops.extend(ovs::ensure_integration_bridge(cache));
            if let Some(port) = port {
                ops.extend(ovs::remove_legacy_port(cache, &self.settings.node));
                ops.extend(ovs::ensure_port(cache, port));
            }
            ops
        })
    }

    fn explain(&self, error: &TxnError) -> Stop {
        match error {
            TxnError::NotConnected | TxnError::Stopped => {
                Stop::Await(Awaited::OpenVswitch { endpoint: self.settings.ovs_db.clone() })
            }
            other => Stop::Fail(NodeError::Ovs { what: "set up the node", reason: other.to_string() }),
        }
    }

    fn system_id(&self, node: &Node) -> Result<String, NodeError> {
        if let Some(id) = self.replica.read(|cache| ovs::system_id(cache).map(str::to_owned)) {
            return Ok(id);
        }
        let file = &self.settings.system_id_file;
        let failed = |source| NodeError::File { path: file.display().to_string(), source };
        let id = chassis::choose(file, &node.metadata).map_err(failed)?;
        chassis::persist(file, &id).map_err(failed)?;
        info!(system_id = id, "Open vSwitch has no system id; setting one");
        Ok(id)
    }

    /// Brings one interface of the host in order.
    pub(super) async fn write_host(&self, pass: &mut Pass, plan: HostPlan) -> Result<(), NodeError> {
        let what = format!("set up interface {}", plan.device);
        let handle = self.handle.clone();
        let work = tokio::task::spawn_blocking(move || host_plan::carry_out(&handle, &plan));
        let done = work.await.map_err(|error| NodeError::Host { what, reason: error.to_string() })?;
        let (wrote, failures) = done?;
        pass.wrote |= wrote;
        pass.problems.extend(failures.warnings.iter().map(ToString::to_string));
        let mut errors = failures.errors.into_iter();
        let first = errors.next();
        pass.problems.extend(errors.map(|error| error.to_string()));
        first.map_or(Ok(()), Err)
    }

    async fn write_annotations(
        &mut self,
        pass: &mut Pass,
        node: &Node,
        edits: Vec<Edit>,
    ) -> Result<(), NodeError> {
        let mut edits = edits;
        while !edits.is_empty() {
            pass.wrote = true;
            let patch: Vec<(&str, Option<&str>)> =
                edits.iter().map(|(key, value)| (*key, value.as_deref())).collect();
            let error = match self.kube.annotate::<Node>(&key_of(node), &patch).await {
                Ok(_) => {
                    debug!(?patch, "annotated the Node");
                    self.echo.add(node, edits);
                    return Ok(());
                }
                Err(error) => error,
            };
            let rest = annotations::without_chassis_id(&edits);
            match (error.class(), rest) {
                // The Node was deleted or replaced meanwhile; its watch tells, and the next pass sees the new one.
                (Class::Conflict | Class::NotFound, _) => return Ok(()),
                (Class::Rejected, Some(rest)) => {
                    pass.problems.push(format!(
                        "cannot announce the chassis id of node {}: {error}; if the id changed because the Open \
                         vSwitch database was lost, delete the Node object so that it is registered anew",
                        node.metadata.name
                    ));
                    edits = rest;
                }
                _ => {
                    let (node, reason) = (node.metadata.name.clone(), error.to_string());
                    return Err(NodeError::Annotate { node, reason });
                }
            }
        }
        Ok(())
    }

    fn check_port(&self, view: &HostView) -> Result<(), Stop> {
        if !view.has_mgmt_port {
            let reason = self.replica.read(|cache| {
                let table = cache.table("Interface")?;
                table.find_one("name", mgmt_port::NAME)?.str("error").map(str::to_owned)
            });
            return Err(Stop::Await(Awaited::Interface { reason }));
        }
        if !self.replica.read(|cache| ovs::is_installed(cache, mgmt_port::NAME)) {
            return Err(Stop::Await(Awaited::Installed { reason: None }));
        }
        Ok(())
    }

    /// Asked at the start only: from then on every attachment waits for ovn-controller itself.
    async fn check_controller(&self, pass: &mut Pass) -> Result<(), Stop> {
        let Some(run_dir) = self.settings.ovn_run_dir.as_deref().filter(|_| !self.started) else {
            return Ok(());
        };
        match ovn_controller::connected(run_dir).await {
            Ok(()) => Ok(()),
            Err(reason) => {
                pass.retry = true;
                Err(Stop::Await(Awaited::OvnController { reason }))
            }
        }
    }
}
