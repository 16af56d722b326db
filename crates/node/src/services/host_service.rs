//! A service as far as this node's host is concerned.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kapi::ServiceKey;
use net::Family;
use service::{Backend, Place, Service, Services};

use super::wants::lingers;

/// A service with its endpoints on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostService {
    /// The service.
    pub service: Arc<Service>,
    /// For each of its ports, in their order, the endpoints.
    pub ports: Box<[Endpoints]>,
    /// Addresses on this node that take new connections: what load balancers outside ask for.
    pub ready_here: usize,
}

/// Endpoints of one port, of both families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Those on this node.
    pub local: Box<[SocketAddr]>,
    /// Families with an endpoint anywhere.
    pub families: [bool; 2],
    /// All of them, for protocols whose connections must be forgotten when one goes; else empty.
    pub all: Box<[SocketAddr]>,
}

impl Endpoints {
    /// Whether there is an endpoint of a family anywhere.
    pub fn any(&self, family: Family) -> bool {
        self.families[usize::from(family == Family::V6)]
    }
}

impl HostService {
    /// A service of the table as seen from a node; none if there is no such service, or nobody is to balance it.
    pub fn of(services: &Services, key: &ServiceKey, place: Place<'_>) -> Option<HostService> {
        let service = services.shared(key)?;
        let view = services.view(key, place)?;
        let addresses = |backends: &[Backend]| -> Box<[SocketAddr]> {
            backends.iter().map(|backend| SocketAddr::new(backend.ip, backend.port)).collect()
        };
        let ports = view.ports.iter().map(|port| Endpoints {
            // Only local policies look at them.
            local: match service.external_local || service.internal_local {
                true => addresses(&port.local),
                false => Box::default(),
            },
            families: [Family::V4, Family::V6].map(|family| {
                let mut all = port.cluster.iter().chain(&port.local);
                all.any(|backend| backend.family() == family)
            }),
            all: match lingers(port.port.protocol) {
                true => {
                    let both = [addresses(&port.cluster), addresses(&port.local)].concat();
                    both.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
                }
                false => Box::default(),
            },
        });
        let ports = ports.collect();
        let endpoints = services.slices(key).flat_map(|slice| &slice.endpoints);
        let ready = endpoints.filter(|endpoint| {
            endpoint.node.as_deref() == Some(place.node) && (endpoint.ready || service.publish_not_ready)
        });
        let ready: BTreeSet<IpAddr> = ready.map(|endpoint| endpoint.ip).collect();
        let ready_here = if service.health_check_port.is_some() { ready.len() } else { 0 };
        Some(HostService { service, ports, ready_here })
    }
}
