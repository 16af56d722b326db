//! The gateway's part of a pass.

use std::sync::atomic::Ordering;

use kapi::annotations::GatewayMode;

use super::Agent;
use super::facts::Before;
use super::pass::{Pass, Stop};
use crate::addresses::{Excluded, host_cidrs, is_usable};
use crate::error::NodeError;
use crate::fault::Job;
use crate::gateway::takeover::{self, Next};
use crate::gateway::{self, Bridge, Ports, apply, fdb, flows, host, nft};
use crate::host_plan;
use crate::host_view::HostView;
use crate::mgmt_port::Facts;
use crate::ovs::{self, PortView};
use crate::status::Awaited;
use crate::uplink::Uplink;

/// Rounds of looking and acting after which a move has ended, unless somebody works against it.
const MAX_ROUNDS: usize = 8;

impl Agent {
    /// The bridge that is the gateway; none while the uplink is no bridge.
    pub(super) fn gateway_bridge(&self, uplink: &Result<Uplink, String>) -> Option<Bridge> {
        let uplink = uplink.as_ref().ok()?;
        let userspace = self.replica.read(|cache| ovs::is_userspace(cache, &uplink.device));
        Bridge::of(&self.settings, uplink, userspace)
    }

    /// Makes the network card that is the node's way out a port of a bridge, step by step; true if something was done
    /// and everything has to be looked at again.
    pub(super) async fn take_over(
        &self,
        pass: &mut Pass,
        uplink: &Result<Uplink, String>,
        view: &HostView,
    ) -> Result<bool, Stop> {
        let off = self.settings.gateway.mode == GatewayMode::Disabled;
        // One without an address of its own is nobody's way out yet.
        let plain = uplink.as_ref().ok();
        let plain = plain.filter(|uplink| !off && !uplink.is_bridge && !uplink.addresses.is_empty());
        let card = self
            .replica
            .read(ovs::unfinished_takeover)
            .or_else(|| plain.map(|uplink| uplink.device.clone()))
            .or_else(|| {
                self.replica.read(takeover::taken_cards).into_iter().find(|card| has_address(view, card))
            });
        let Some(card) = card else { return Ok(false) };
        let mut wrote = false;
        for _ in 0..MAX_ROUNDS {
            let Some(view) = takeover::observe(&self.replica, &self.handle, &card)? else { return Ok(wrote) };
            let steps = match takeover::next(&view) {
                Next::Do(steps) => steps,
                Next::Done => return Ok(wrote),
                Next::Wait(step) => return Err(Stop::Await(Awaited::Bridge { card, step })),
            };
            for step in &steps {
                self.settings.before_step_of(Job::Takeover);
                takeover::apply(&self.replica, &self.handle, &view, step).await?;
            }
            wrote = true;
            pass.wrote = true;
        }
        let what = format!("move addresses and routes from {card} to its bridge");
        Err(NodeError::Host { what, reason: "somebody else keeps changing them".to_owned() }.into())
    }

    /// The bridge that was the gateway and is not any more. One whose address is only missing for the moment stays.
    pub(super) fn retired_bridge<'a>(&self, bridge: Option<&Bridge>, before: &'a Before) -> Option<&'a str> {
        let old = before.gateway.as_ref()?.bridge.as_str();
        let replaced = match bridge {
            Some(bridge) => bridge.name != old,
            None => self.settings.gateway.mode == GatewayMode::Disabled,
        };
        (replaced && !old.is_empty()).then_some(old)
    }

    /// Whether there is to be no bridge to this network.
    pub(super) fn is_off(&self, network: &str) -> bool {
        let gateway = &self.settings.gateway;
        let second = network == ovs::EXTERNAL_NETWORK && gateway.external_interface.is_empty();
        second || gateway.mode == GatewayMode::Disabled
    }

    /// Takes our flows off the second bridge where there is to be none any more.
    pub(super) async fn retire_external(&mut self, before: &Before) -> Result<(), Stop> {
        if let Some(old) = before.external(&self.settings.node).filter(|_| self.is_off(ovs::EXTERNAL_NETWORK))
        {
            self.external_in_place.forget_flows();
            apply::remove_flows(&self.settings, old).await?;
        }
        Ok(())
    }

    /// Flows of the second bridge: what any bridge to the outside has.
    pub(super) async fn write_external_flows(
        &mut self,
        pass: &mut Pass,
        bridge: &Bridge,
        port: &Facts,
    ) -> Result<(), Stop> {
        let ports = self.bridge_ports(pass, bridge)?;
        let inputs = flows::Inputs {
            bridge: bridge.clone(),
            ports,
            host_cidrs: Vec::new(),
            node_subnets: port.addresses.iter().map(ipnet::IpNet::trunc).collect(),
            remote_nodes: Vec::new(),
        };
        let wanted = gateway::flows::external(&self.settings, &inputs);
        pass.wrote |= self.external_in_place.flows(&self.settings, bridge, wanted, &self.wake).await?;
        Ok(())
    }

    /// The numbers of a bridge's ports.
    fn bridge_ports(&mut self, pass: &mut Pass, bridge: &Bridge) -> Result<Ports, Stop> {
        let name = bridge.name.clone();
        match self.replica.read(|cache| ovs::ports(cache, &name, &self.settings.node)) {
            PortView::Ready(ports) => Ok(ports),
            PortView::NoPatch => {
                self.new_gateway = true;
                Err(Stop::Await(Awaited::PatchPort { bridge: name }))
            }
            PortView::NoUplink { patch } => {
                if !self.settings.gateway.allow_no_uplink {
                    pass.problems.push(format!(
                        "gateway bridge {name} has no network card; add one to it, or say --allow-no-uplink"
                    ));
                }
                Ok(Ports { uplink: None, patch })
            }
        }
    }

    /// Takes off the bridge that was the gateway before what only a gateway needs.
    pub(super) async fn retire_gateway(
        &mut self,
        pass: &mut Pass,
        bridge: Option<&Bridge>,
        before: &Before,
    ) -> Result<(), Stop> {
        let Some(gateway) = &before.gateway else { return Ok(()) };
        let retired = self.retired_bridge(bridge, before);
        if let Some(old) = retired {
            self.in_place.forget_flows();
            apply::remove_flows(&self.settings, old).await?;
            self.write_host(pass, host::nothing(&self.settings, old, &before.masquerade)).await?;
        }
        let other_vlan = bridge.is_some() && gateway.vlan_id != self.settings.gateway.vlan_id;
        if let (true, Some(mac)) = (retired.is_some() || other_vlan, gateway.mac) {
            fdb::unpin(&apply::run_dir(&self.settings), &gateway.bridge, gateway.vlan_id, mac).await;
        }
        Ok(())
    }

    /// The firewall table. Written once all other nodes and all services are known: a set that is filled later would let through what
    /// it is there to stop.
    pub(super) async fn write_firewall(
        &mut self,
        pass: &mut Pass,
        bridges: [Option<&Bridge>; 2],
        port: &Facts,
    ) -> Result<(), Stop> {
        let Some(remote_nodes) = self.remote_nodes() else {
            return Err(Stop::Await(Awaited::ApiServer { reason: None }));
        };
        self.services_are_known()?;
        let userspace = bridges.into_iter().flatten().filter(|bridge| bridge.userspace);
        let inputs = nft::Inputs {
            port: port.clone(),
            remote_nodes: remote_nodes.into_iter().collect(),
            userspace_uplinks: userspace
                .filter_map(|bridge| self.replica.read(|cache| ovs::uplink(cache, &bridge.name)))
                .collect(),
            forwards_all_v6: !host_plan::forwards_single_v6(),
        };
        let mut table = nft::desired(&self.settings, &inputs);
        self.services.fill(&mut table);
        if self.table_touched.swap(false, Ordering::AcqRel) {
            self.in_place.doubt_nft();
        }
        pass.wrote |= self.in_place.nft(&self.settings, table).await?;
        Ok(())
    }

    /// The bridge's flows, once its ports have numbers.
    pub(super) async fn write_flows(
        &mut self,
        pass: &mut Pass,
        bridge: &Bridge,
        view: &HostView,
        excluded: &Excluded,
        port: &Facts,
    ) -> Result<(), Stop> {
        let ports = self.bridge_ports(pass, bridge)?;
        let Some(remote_nodes) = self.remote_nodes() else {
            return Err(Stop::Await(Awaited::ApiServer { reason: None }));
        };
        self.services_are_known()?;
        let inputs = flows::Inputs {
            bridge: bridge.clone(),
            ports,
            host_cidrs: host_cidrs(&view.addresses, excluded),
            node_subnets: port.addresses.iter().map(ipnet::IpNet::trunc).collect(),
            remote_nodes,
        };
        let mut wanted = gateway::flows::desired(&self.settings, &inputs);
        wanted.extend(self.services.flows());
        wanted.sort();
        pass.wrote |= self.in_place.flows(&self.settings, bridge, wanted, &self.wake).await?;
        Ok(())
    }

    /// What is written is complete: a service that is left out would lose its connections.
    fn services_are_known(&self) -> Result<(), Stop> {
        let needed = self.settings.gateway.mode != GatewayMode::Disabled;
        match needed && !self.services.is_complete() {
            true => Err(Stop::Await(Awaited::ApiServer { reason: None })),
            false => Ok(()),
        }
    }

    fn remote_nodes(&self) -> Option<Vec<std::net::IpAddr>> {
        let remote = self.remote.borrow();
        Some(remote.as_ref()?.values().flatten().copied().collect())
    }
}

/// Whether a network card that is a bridge's port has been given an address, which works nowhere but on the bridge.
fn has_address(view: &HostView, card: &str) -> bool {
    view.addresses.iter().any(|address| address.interface == card && is_usable(address.net.addr()))
}
