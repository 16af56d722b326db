//! Node ports and external addresses of this host are held open, so that nobody else on the host takes them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use kapi::{Protocol, ServiceKey};
use net::Family;

use super::host_service::HostService;
use super::wants::{Context, external_ips};

/// A port of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    protocol: Protocol,
    address: SocketAddr,
}

/// The ports that are held.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// With the socket that is open so that nobody else opens it.
    held: BTreeMap<Claim, (ServiceKey, OwnedFd)>,
}

/// A port somebody else has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) claim: Claim,
    pub(super) reason: String,
}

impl Conflict {
    /// In words, for the service's author.
    pub(super) fn message(&self, node: &str) -> String {
        let Claim { protocol, address } = self.claim;
        format!(
            "{protocol} port {} of node {node} cannot be reserved at {}: {}; find the process that listens there \
             (ss -lnp) or choose another port. The service works, but traffic for that process goes to the service",
            address.port(),
            address.ip(),
            self.reason
        )
    }
}

/// What a service holds on this host. SCTP is left out: opening such a socket loads a kernel module.
pub(super) fn wanted(context: &Context, wanted: &HostService) -> Vec<Claim> {
    if !context.node_ports {
        return Vec::new();
    }
    let service = &wanted.service;
    // A socket for IPv6 takes IPv4 too.
    let any: IpAddr = match service.cluster_ips.iter().any(|ip| Family::of(*ip) == Family::V6) {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    };
    let mut claims = Vec::new();
    for port in service.ports.iter().filter(|port| matches!(port.protocol, Protocol::Tcp | Protocol::Udp)) {
        let mut claim = |ip, number| {
            claims.push(Claim { protocol: port.protocol, address: SocketAddr::new(ip, number) });
        };
        if let Some(number) = port.node_port {
            claim(any, number);
        }
        for ip in external_ips(wanted).filter(|ip| context.host_ips.contains(ip)) {
            claim(ip, port.port);
        }
    }
    claims.sort_unstable();
    claims.dedup();
    claims
}

impl Claims {
    /// Lets go of what the service no longer wants, takes what it wants, and tells what others have.
    pub(super) fn replace(&mut self, service: &ServiceKey, wanted: &[Claim]) -> Vec<Conflict> {
        self.held.retain(|claim, (holder, _)| holder != service || wanted.contains(claim));
        let mut conflicts = Vec::new();
        for claim in wanted {
            if self.held.contains_key(claim) {
                continue;
            }
            match open(claim) {
                Ok(socket) => drop(self.held.insert(*claim, (service.clone(), socket))),
                Err(error) => conflicts.push(Conflict { claim: *claim, reason: error.to_string() }),
            }
        }
        conflicts
    }
}

fn open(claim: &Claim) -> std::io::Result<OwnedFd> {
    match claim.protocol {
        Protocol::Udp => UdpSocket::bind(claim.address).map(OwnedFd::from),
        _ => TcpListener::bind(claim.address).map(OwnedFd::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_held_until_the_service_lets_it_go() {
        let key = ServiceKey::new("n", "s");
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut claims = Claims::default();
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let others = open(&Claim { protocol, address: SocketAddr::new(local, 0) }).unwrap();
            let address = match protocol {
                Protocol::Udp => UdpSocket::from(others.try_clone().unwrap()).local_addr(),
                _ => TcpListener::from(others.try_clone().unwrap()).local_addr(),
            };
            let claim = Claim { protocol, address: address.unwrap() };
            let conflicts = claims.replace(&key, &[claim]);
            assert_eq!(conflicts.len(), 1, "somebody has it");
            let message = conflicts[0].message("node1");
            assert!(message.contains(protocol.name()) && message.contains("ss -lnp"), "{message}");
            drop(others);
            assert_eq!(claims.replace(&key, &[claim]), []);
            assert_eq!(claims.replace(&key, &[claim]), [], "it is ours already");
            assert!(open(&claim).is_err(), "nobody else gets it");
            assert_eq!(claims.replace(&key, &[]), []);
            assert!(open(&claim).is_ok());
        }
    }
}
