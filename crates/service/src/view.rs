//! A service as seen from one place.

use std::net::IpAddr;

use net::Family;

use crate::{Endpoint, Port, Service, Slice};

/// Where a service is looked at from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// The node's zone (label `topology.kubernetes.io/zone`).
    pub zone: Option<&'a str>,
}

/// A service with the endpoints of each port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View<'a> {
    /// The service.
    pub service: &'a Service,
    /// Its ports, in the order of the object.
    pub ports: Vec<PortView<'a>>,
    /// What of the slices cannot be used, in words.
    pub problems: Vec<String>,
}

/// The endpoints of one port, each list sorted by port and the address's text, without duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortView<'a> {
    /// The port.
    pub port: &'a Port,
    /// Endpoints for policy `Cluster`: those that hints give to this place where hints are complete, else all.
    pub cluster: Vec<Backend>,
    /// Endpoints for policy `Local`: those on this node. Can hold endpoints that are going away which `cluster`
    /// does not, because readiness is decided among the local ones alone.
    pub local: Vec<Backend>,
}

/// One endpoint of one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backend {
    /// Address.
    pub ip: IpAddr,
    /// Port at that address.
    pub port: u16,
    /// Whether the endpoint is on the node of the view.
    pub local: bool,
}

impl Backend {
    /// Family of the address.
    pub fn family(&self) -> Family {
        Family::of(self.ip)
    }
}

/// How near an endpoint has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nearness {
    Any,
    Zone,
    Node,
}

impl<'a> View<'a> {
    /// `service` with the endpoints of `slices` as seen from `place`.
    pub fn new(service: &'a Service, slices: &[&Slice], place: Place<'_>) -> View<'a> {
        let ports = service.ports.iter().map(|port| PortView::new(service, port, slices, place)).collect();
        let mut problems: Vec<String> =
            slices.iter().flat_map(|slice| &slice.problems).map(|problem| problem.to_string()).collect();
        let mut unused: Vec<Family> = slices
            .iter()
            .filter(|slice| !slice.endpoints.is_empty() && !service.has_family(slice.family))
            .map(|slice| slice.family)
            .collect();
        unused.dedup();
        problems.extend(unused.into_iter().map(|family| {
            let name = family.name();
            format!("its EndpointSlices hold {name} endpoints, but it has no {name} address; add {name} to spec.ipFamilies or remove these slices")
        }));
        View { service, ports, problems }
    }

    /// Whether this node has an endpoint of any port: what a load balancer outside asks at the health check port.
    pub fn local_endpoints(&self) -> usize {
        let mut ips: Vec<IpAddr> =
            self.ports.iter().flat_map(|port| &port.local).map(|backend| backend.ip).collect();
        ips.sort_unstable();
        ips.dedup();
        ips.len()
    }
}

impl Service {
    /// Whether clients can reach the service by this family.
    pub fn has_family(&self, family: Family) -> bool {
        let all = self.cluster_ips.iter().chain(&self.external_ips).chain(&self.ingress_ips);
        all.into_iter().any(|ip| Family::of(*ip) == family)
    }
}

impl<'a> PortView<'a> {
    fn new(service: &Service, port: &'a Port, slices: &[&Slice], place: Place<'_>) -> PortView<'a> {
        let mut view = PortView { port, cluster: Vec::new(), local: Vec::new() };
        // Each family on its own, as if the service had one only: what is ready in one does not help the other.
        for family in [Family::V4, Family::V6] {
            let mut all: Vec<(&Endpoint, u16)> = Vec::new();
            for slice in slices.iter().filter(|slice| slice.family == family) {
                let ports = slice.ports.iter();
                for known in
                    ports.filter(|known| known.protocol == port.protocol && *known.name == *port.name)
                {
                    all.extend(slice.endpoints.iter().map(|endpoint| (endpoint, known.port)));
                }
            }
            view.add(service, &all, place);
        }
        sort(&mut view.cluster);
        sort(&mut view.local);
        view
    }

    fn add(&mut self, service: &Service, all: &[(&Endpoint, u16)], place: Place<'_>) {
        let ready = |endpoint: &Endpoint| endpoint.ready || service.publish_not_ready;
        let is_local = |endpoint: &Endpoint| endpoint.node.as_deref() == Some(place.node);
        let nearness = nearness(all.iter().map(|(endpoint, _)| *endpoint).filter(|one| ready(one)), place);
        let before = self.cluster.len();
        self.cluster.extend(backends(all, place, |one| ready(one) && is_near(one, nearness, place)));
        if self.cluster.len() == before {
            self.cluster.extend(backends(all, place, |one| one.draining));
        }
        let before = self.local.len();
        self.local.extend(backends(all, place, |one| is_local(one) && ready(one)));
        if self.local.len() == before {
            self.local.extend(backends(all, place, |one| is_local(one) && one.draining));
        }
    }
}

fn backends<'s>(
    all: &'s [(&Endpoint, u16)],
    place: Place<'s>,
    wanted: impl Fn(&Endpoint) -> bool + 's,
) -> impl Iterator<Item = Backend> + 's {
    let chosen = all.iter().filter(move |(endpoint, _)| wanted(endpoint));
    chosen.map(move |(endpoint, port)| Backend {
        ip: endpoint.ip,
        port: *port,
        local: endpoint.node.as_deref() == Some(place.node),
    })
}

/// By port and text, each once. Of doubled ones a local one stays: if any slice says so, the endpoint is local.
fn sort(list: &mut Vec<Backend>) {
    list.sort_by_cached_key(|backend| (backend.port, backend.ip.to_string(), !backend.local));
    list.dedup_by_key(|backend| (backend.port, backend.ip));
}

/// Hints count only when every ready endpoint has them and some endpoint is meant for this place: otherwise a
/// client could be left without any.
fn nearness<'a>(ready: impl Iterator<Item = &'a Endpoint>, place: Place<'_>) -> Nearness {
    let (mut any, mut all_nodes, mut this_node, mut all_zones, mut this_zone) =
        (false, true, false, true, false);
    for endpoint in ready {
        any = true;
        let hints = endpoint.hints.as_deref();
        all_nodes &= hints.is_some_and(|hints| !hints.nodes.is_empty());
        all_zones &= hints.is_some_and(|hints| !hints.zones.is_empty());
        this_node |= is_near(endpoint, Nearness::Node, place);
        this_zone |= is_near(endpoint, Nearness::Zone, place);
    }
    match () {
        () if any && all_nodes && this_node => Nearness::Node,
        () if any && all_zones && this_zone => Nearness::Zone,
        () => Nearness::Any,
    }
}

fn is_near(endpoint: &Endpoint, nearness: Nearness, place: Place<'_>) -> bool {
    let hints = endpoint.hints.as_deref();
    match nearness {
        Nearness::Any => true,
        Nearness::Node => hints.is_some_and(|hints| hints.nodes.iter().any(|node| **node == *place.node)),
        Nearness::Zone => hints.is_some_and(|hints| {
            place.zone.is_some_and(|zone| hints.zones.iter().any(|known| **known == *zone))
        }),
    }
}
