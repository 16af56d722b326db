//! Services between passes: a change of one writes what it changes, without looking at the host.

use kapi::Service;
use kube_io::{ObjectRef, Severity};
use tracing::warn;

use super::Agent;
use crate::addresses::{Excluded, host_cidrs};
use crate::gateway::flows::Vlan;
use crate::gateway::service_flows::BridgeContext;
use crate::gateway::{Bridge, Masquerade};
use crate::host_view::HostView;
use crate::ovs::{self, PortView};
use crate::services::Around;
use crate::services::state::Notice;
use crate::services::wants::Context;
use net::{Dual, Family};

impl Agent {
    /// Makes the changes that were told since the last time; false if a pass has to look at everything.
    pub(super) async fn follow_services(&mut self) -> bool {
        let delta = self.services.take();
        self.tell_authors(&delta.notices);
        let bridge = self.service_bridge.clone();
        match self.in_place.services(&self.settings, bridge.as_deref(), &delta).await {
            Ok(done) => done,
            Err(error) => {
                warn!("services: {error}");
                false
            }
        }
    }

    /// What services depend on besides themselves.
    pub(super) fn set_around(&mut self, view: &HostView, excluded: &Excluded, bridge: Option<&Bridge>) {
        let ports = bridge.and_then(|bridge| {
            match self.replica.read(|cache| ovs::ports(cache, &bridge.name, &self.settings.node)) {
                PortView::Ready(ports) => Some(ports),
                PortView::NoUplink { .. } | PortView::NoPatch => None,
            }
        });
        let gateway = &self.settings.gateway;
        let local_only = |family| Some(Masquerade::of(&self.settings, family)?.local_only);
        let context = Context {
            mode: gateway.mode,
            node_ports: gateway.node_port,
            host_ips: host_cidrs(&view.addresses, excluded).iter().map(ipnet::IpNet::addr).collect(),
            local_only: Dual { v4: local_only(Family::V4), v6: local_only(Family::V6) },
        };
        let bridge_context = bridge.zip(ports).map(|(bridge, ports)| BridgeContext {
            mac: bridge.mac,
            ports,
            node: bridge.node.map(ipnet::IpNet::addr),
            vlan: Vlan(gateway.vlan_id),
            zone: gateway.conntrack_zone,
        });
        self.service_bridge = bridge.map(|bridge| bridge.name.clone());
        let notices = self.services.set_around(Around { context, bridge: bridge_context });
        self.tell_authors(&notices);
        // What was told meanwhile is part of what this pass compares.
        let delta = self.services.take();
        self.tell_authors(&delta.notices);
    }

    fn tell_authors(&self, notices: &[Notice]) {
        for Notice { service, reason, message } in notices {
            warn!(service = %service.key, "{message}");
            let key = kapi::ObjectKey {
                namespace: service.key.namespace().to_owned(),
                name: service.key.name().to_owned(),
                uid: service.uid.to_string(),
            };
            self.kube.event(
                ObjectRef::from_key::<Service>(&key),
                Severity::Warning,
                reason,
                message.as_str(),
            );
        }
    }
}
