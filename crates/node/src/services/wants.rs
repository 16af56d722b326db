//! What a service needs in the host's firewall, derived from the service alone.
//!
//! | set or map | holds | leads to |
//! |---|---|---|
//! | `nodeports`, `external-ips` | every node port and external address | the cluster address |
//! | `…-etp-local` | those that must stay on the node | the node port at an address of OVN's that has only local endpoints |
//! | `mgmtport-no-snat-…` | what takes that way | keeps the client's address |
//! | `refused-services`, `refused-nodeports` | addresses without any endpoint | a refusal at once |
//! | `itp-services-to-mark` | cluster addresses that must stay on the node | the management port, by a mark |
//! | `itp-services-to-redirect` | the same where the endpoint is the host itself | its port |

use std::net::{IpAddr, SocketAddr};

use kapi::Protocol;
use kapi::annotations::GatewayMode;
use net::{Dual, Family};
use service::Port;

use super::host_service::{Endpoints, HostService};

/// Surroundings of all services on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Context {
    /// The gateway's mode.
    pub(crate) mode: GatewayMode,
    /// Node ports and external addresses are served.
    pub(crate) node_ports: bool,
    /// Every address of the host.
    pub(crate) host_ips: Vec<IpAddr>,
    /// OVN's address behind which a node port has only local endpoints.
    pub(crate) local_only: Dual<IpAddr>,
}

/// A set or map of the firewall, by its names for each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SetName(pub(crate) &'static str);

/// An entry of a set (no value) or a map.
pub(crate) type Element = ((SetName, String), Option<String>);

/// What a service puts into the firewall.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Firewall {
    /// Entries of sets and maps.
    pub(crate) elements: Vec<Element>,
    /// Rules for external addresses that must stay on the node but have no node port.
    pub(crate) rules: Vec<String>,
}

const NODE_PORTS: [SetName; 2] = [SetName("nodeports-v4"), SetName("nodeports-v6")];
const NODE_PORTS_LOCAL: [SetName; 2] = [SetName("nodeports-etp-local-v4"), SetName("nodeports-etp-local-v6")];
const EXTERNAL: [SetName; 2] = [SetName("external-ips-v4"), SetName("external-ips-v6")];
const EXTERNAL_LOCAL: [SetName; 2] =
    [SetName("external-ips-etp-local-v4"), SetName("external-ips-etp-local-v6")];
const KEEP_NODE_PORTS: SetName = SetName("mgmtport-no-snat-nodeports");
const KEEP_SERVICES: [SetName; 2] =
    [SetName("mgmtport-no-snat-services-v4"), SetName("mgmtport-no-snat-services-v6")];
const MARK: [SetName; 2] = [SetName("itp-services-to-mark-v4"), SetName("itp-services-to-mark-v6")];
const REDIRECT: [SetName; 2] =
    [SetName("itp-services-to-redirect-v4"), SetName("itp-services-to-redirect-v6")];

const REFUSED: [SetName; 2] = [SetName("refused-services-v4"), SetName("refused-services-v6")];
const REFUSED_PORTS: SetName = SetName("refused-nodeports");

fn of(names: [SetName; 2], family: Family) -> SetName {
    match family {
        Family::V4 => names[0],
        Family::V6 => names[1],
    }
}

/// The firewall's part of a service.
pub(crate) fn firewall(context: &Context, wanted: &HostService) -> Firewall {
    let mut out = Firewall::default();
    for (port, endpoints) in wanted.service.ports.iter().zip(&wanted.ports) {
        for cluster_ip in &wanted.service.cluster_ips {
            let plan = Plan { context, wanted, port, endpoints, cluster_ip: *cluster_ip };
            if is_refused(wanted, endpoints, plan.family()) {
                plan.refused(&mut out);
            }
            if wanted.service.internal_local {
                plan.internal(&mut out);
            }
            if context.node_ports {
                plan.node_port(&mut out);
                plan.external(&mut out);
            }
        }
    }
    out
}

/// One port at one cluster address.
struct Plan<'a> {
    context: &'a Context,
    wanted: &'a HostService,
    port: &'a Port,
    endpoints: &'a Endpoints,
    cluster_ip: IpAddr,
}

impl Plan<'_> {
    fn family(&self) -> Family {
        Family::of(self.cluster_ip)
    }

    fn key(&self, ip: IpAddr) -> String {
        format!("{ip} . {} . {}", self.port.protocol.lower(), self.port.port)
    }

    fn cluster(&self) -> String {
        format!("{} . {}", self.cluster_ip, self.port.port)
    }

    /// The port of an endpoint that is this host itself.
    fn on_host(&self) -> Option<u16> {
        host_port(&self.context.host_ips, self.endpoints, self.family())
    }

    /// Traffic from outside that must not leave this node, where the endpoints are pods. With endpoints on the host the
    /// gateway bridge takes care of it.
    fn stays(&self) -> bool {
        self.wanted.service.external_local && self.on_host().is_none()
    }

    /// OVN's router refuses too, but in the name of the node, which no client takes for the service's answer.
    fn refused(&self, out: &mut Firewall) {
        let family = self.family();
        out.elements.push(((of(REFUSED, family), self.key(self.cluster_ip)), None));
        if !self.context.node_ports {
            return;
        }
        for ip in external_ips(self.wanted).filter(|ip| Family::of(*ip) == family) {
            out.elements.push(((of(REFUSED, family), self.key(ip)), None));
        }
        let nowhere = !self.endpoints.any(Family::V4) && !self.endpoints.any(Family::V6);
        if let Some(number) = self.port.node_port.filter(|_| nowhere) {
            let key = format!("{} . {number}", self.port.protocol.lower());
            out.elements.push(((REFUSED_PORTS, key), None));
        }
    }

    fn internal(&self, out: &mut Firewall) {
        let family = self.family();
        let key = self.key(self.cluster_ip);
        out.elements.push(match self.on_host() {
            Some(port) => ((of(REDIRECT, family), key), Some(port.to_string())),
            None => ((of(MARK, family), key), None),
        });
    }

    fn node_port(&self, out: &mut Firewall) {
        let Some(number) = self.port.node_port else { return };
        let family = self.family();
        let key = format!("{} . {number}", self.port.protocol.lower());
        if self.stays() {
            if let (GatewayMode::Local, Some(ip)) = (self.context.mode, self.context.local_only.get(family)) {
                out.elements
                    .push(((of(NODE_PORTS_LOCAL, family), key.clone()), Some(format!("{ip} . {number}"))));
            }
            out.elements.push(((KEEP_NODE_PORTS, key.clone()), None));
        }
        out.elements.push(((of(NODE_PORTS, family), key), Some(self.cluster())));
    }

    fn external(&self, out: &mut Firewall) {
        let family = self.family();
        for ip in external_ips(self.wanted).filter(|ip| Family::of(*ip) == family) {
            let key = self.key(ip);
            if self.stays() {
                match (self.port.node_port, self.context.local_only.get(family)) {
                    (Some(number), Some(local)) => {
                        let value = Some(format!("{local} . {number}"));
                        out.elements.push(((of(EXTERNAL_LOCAL, family), key.clone()), value));
                    }
                    _ => self.without_node_port(out, ip),
                }
            }
            out.elements.push(((of(EXTERNAL, family), key), Some(self.cluster())));
        }
    }

    /// There is no address of OVN's to lead to, so one of the local endpoints is chosen here.
    fn without_node_port(&self, out: &mut Firewall, ip: IpAddr) {
        let family = self.family();
        let word = match family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        };
        let protocol = self.port.protocol.lower();
        let local: Vec<&SocketAddr> =
            self.endpoints.local.iter().filter(|endpoint| Family::of(endpoint.ip()) == family).collect();
        let target = |endpoint: &SocketAddr| format!("{} . {}", endpoint.ip(), endpoint.port());
        let action = match local.as_slice() {
            [] => "drop".to_owned(),
            all => {
                let choices: Vec<String> = all
                    .iter()
                    .enumerate()
                    .map(|(at, endpoint)| format!("{at} : {}", target(endpoint)))
                    .collect();
                format!("dnat {word} to numgen random mod {} map {{ {} }}", all.len(), choices.join(", "))
            }
        };
        let service = &self.wanted.service;
        out.rules.push(format!(
            "{word} daddr {ip} {protocol} dport {} {action} comment \"{}:{}\"",
            self.port.port, service.key, self.port.name
        ));
        for endpoint in local {
            let key = format!("{} . {protocol} . {}", endpoint.ip(), endpoint.port());
            out.elements.push(((of(KEEP_SERVICES, family), key), None));
        }
    }
}

/// Whether nobody can answer for a port, anywhere. An idle service is woken by the packets that OVN sees.
pub(crate) fn is_refused(wanted: &HostService, endpoints: &Endpoints, family: Family) -> bool {
    !endpoints.any(family) && !wanted.service.idled
}

/// Addresses by which clients outside reach a service.
pub(crate) fn external_ips(wanted: &HostService) -> impl Iterator<Item = IpAddr> {
    let service = &wanted.service;
    let external = service.external_ips.iter().filter(|ip| !service.ingress_ips.contains(ip));
    external.chain(&service.ingress_ips).copied()
}

/// The port of an endpoint that is the host itself.
pub(crate) fn host_port(host_ips: &[IpAddr], endpoints: &Endpoints, family: Family) -> Option<u16> {
    let ours =
        |endpoint: &&SocketAddr| Family::of(endpoint.ip()) == family && host_ips.contains(&endpoint.ip());
    endpoints.local.iter().find(ours).map(SocketAddr::port)
}

/// The addresses at which a port's clients reach it, seen from this node.
pub(crate) fn frontends(context: &Context, wanted: &HostService, port: &Port) -> Vec<SocketAddr> {
    let mut all: Vec<SocketAddr> =
        wanted.service.cluster_ips.iter().map(|ip| SocketAddr::new(*ip, port.port)).collect();
    all.extend(external_ips(wanted).map(|ip| SocketAddr::new(ip, port.port)));
    if let Some(number) = port.node_port {
        let nodes = context.host_ips.iter().chain(context.local_only.iter());
        all.extend(nodes.map(|ip| SocketAddr::new(*ip, number)));
    }
    all
}

/// Whether connections of a protocol go on to an endpoint that is gone, because nobody ends them.
pub(crate) fn lingers(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Udp | Protocol::Sctp)
}
