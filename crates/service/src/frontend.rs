//! The addresses clients use.

use std::net::IpAddr;

use crate::{Port, Service};

/// What an address clients use is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendKind {
    /// An address inside the cluster; subject to the internal policy.
    ClusterIp,
    /// An external address; subject to the external policy.
    ExternalIp,
    /// An address of the load balancer; subject to the external policy and to source ranges.
    Ingress,
    /// A port on every address of every node; subject to the external policy.
    NodePort,
}

/// One address and port clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frontend {
    /// What the address is.
    pub kind: FrontendKind,
    /// The address; none for a port of the nodes, whose addresses only the nodes know.
    pub ip: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

impl Service {
    /// Where clients reach `port`: cluster addresses, external ones, those of the load balancer, the node port. An
    /// address that is external and the load balancer's at once comes once, as the load balancer's.
    pub fn frontends<'a>(&'a self, port: &'a Port) -> impl Iterator<Item = Frontend> + use<'a> {
        let at = move |kind, ip: &IpAddr| Frontend { kind, ip: Some(*ip), port: port.port };
        let cluster = self.cluster_ips.iter().map(move |ip| at(FrontendKind::ClusterIp, ip));
        let external = self.external_ips.iter().filter(|ip| !self.ingress_ips.contains(ip));
        let external = external.map(move |ip| at(FrontendKind::ExternalIp, ip));
        let ingress = self.ingress_ips.iter().map(move |ip| at(FrontendKind::Ingress, ip));
        let node = port.node_port.map(|port| Frontend { kind: FrontendKind::NodePort, ip: None, port });
        cluster.chain(external).chain(ingress).chain(node)
    }
}
