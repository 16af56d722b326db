//! Flows of the gateway bridge for node ports and external addresses, derived from one service.
//!
//! In shared mode what comes from outside goes to OVN and back. In both modes, traffic that must stay on this node and
//! whose endpoint is the host itself is translated on the bridge, so that the host sees who asks.

use std::net::{IpAddr, SocketAddr};

use kapi::annotations::GatewayMode;
use net::{Family, Mac};
use service::Port;

use super::Ports;
use super::flows::{Flow, Vlan, Words, words};
use crate::services::host_service::HostService;
use crate::services::wants::{Context, external_ips, host_port, is_refused};

/// Priority of the flows in table 0.
const PRIORITY: u16 = 110;
/// Where it is decided that a client may use a load balancer's address, that of those who may not comes after.
const REFUSED: u16 = PRIORITY - 1;
/// To the host, translated.
const TO_HOST: u8 = 6;
/// The host's answer.
const FROM_HOST: u8 = 7;
/// Cookies of services are hashes, all others are small.
const SMALLEST_COOKIE: u64 = 1 << 32;

/// The bridge's part of the surroundings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BridgeContext {
    /// Its MAC.
    pub(crate) mac: Mac,
    /// Its ports.
    pub(crate) ports: Ports,
    /// The node's addresses on it.
    pub(crate) node: net::Dual<IpAddr>,
    /// VLAN of the uplink.
    pub(crate) vlan: Vlan,
    /// First of the connection tracking zones.
    pub(crate) zone: u16,
}

/// Whether a flow is one of a service's, whoever wrote it and whether or not the service still exists: its cookie is a
/// hash, and it stands where flows of services stand.
pub(crate) fn is_of_service(flow: &Flow) -> bool {
    let place = match flow.table {
        0 => flow.priority == PRIORITY || flow.priority == REFUSED,
        TO_HOST | FROM_HOST => flow.priority == PRIORITY && flow.matches.is_empty(),
        _ => false,
    };
    place && flow.cookie >= SMALLEST_COOKIE
}

/// The flows of a service. Some are the same for several of its ports.
pub(crate) fn desired(context: &Context, bridge: &BridgeContext, wanted: &HostService) -> Vec<Flow> {
    let Some(uplink) = bridge.ports.uplink.filter(|_| context.node_ports) else { return Vec::new() };
    let mut out = Vec::new();
    for (port, endpoints) in wanted.service.ports.iter().zip(&wanted.ports) {
        for (family, node) in bridge.node.families() {
            if !wanted.service.cluster_ips.iter().any(|ip| Family::of(*ip) == family) {
                continue;
            }
            let host = wanted
                .service
                .external_local
                .then(|| host_port(&context.host_ips, endpoints, family))
                .flatten()
                .map(|port| SocketAddr::new(*node, port));
            let plan = Plan {
                shared: context.mode == GatewayMode::Shared,
                bridge,
                wanted,
                uplink,
                family,
                protocol: family_protocol(port, family),
                host,
                refused: is_refused(wanted, endpoints, family),
            };
            plan.node_port(&mut out, port);
            plan.external(&mut out, port);
        }
    }
    out
}

fn family_protocol(port: &Port, family: Family) -> String {
    let suffix = if family == Family::V6 { "6" } else { "" };
    format!("{}{suffix}", port.protocol.lower())
}

/// One port in one family.
struct Plan<'a> {
    shared: bool,
    bridge: &'a BridgeContext,
    wanted: &'a HostService,
    uplink: u16,
    family: Family,
    /// `tcp`, `udp6`, …
    protocol: String,
    /// The endpoint that is the host itself, for traffic that must stay here.
    host: Option<SocketAddr>,
    /// There is no endpoint anywhere, and the host's firewall refuses.
    refused: bool,
}

impl Plan<'_> {
    fn words(&self) -> Words {
        words(self.family)
    }

    fn flow(&self, cookie: u64, matches: String, actions: String) -> Flow {
        Flow { table: 0, priority: PRIORITY, matches, actions, cookie }
    }

    fn node_port(&self, out: &mut Vec<Flow>, port: &Port) {
        let Some(number) = port.node_port else { return };
        let cookie = self.cookie(port.protocol.lower(), number);
        let (protocol, uplink) = (&self.protocol, self.uplink);
        let arrives = format!("{protocol},in_port={uplink},tp_dst={number}");
        if self.to_host(out, cookie, &arrives) || !self.shared {
            return;
        }
        let (patch, mac) = (self.bridge.ports.patch, self.bridge.mac);
        out.push(self.flow(cookie, arrives, format!("output:{patch}")));
        let answers = format!("{protocol},in_port={patch},dl_src={mac},tp_src={number}");
        out.push(self.flow(cookie, answers, format!("output:{uplink}")));
    }

    fn external(&self, out: &mut Vec<Flow>, port: &Port) {
        for ip in external_ips(self.wanted).filter(|ip| Family::of(*ip) == self.family) {
            let cookie = self.cookie(&ip.to_string(), port.port);
            self.neighbours(out, cookie, ip);
            let (protocol, uplink, number) = (&self.protocol, self.uplink, port.port);
            let Words { src, dst, .. } = self.words();
            let arrives = format!("{protocol},in_port={uplink},{dst}={ip},tp_dst={number}");
            let start = out.len();
            if !self.to_host(out, cookie, &arrives) {
                if self.shared && self.refused {
                    out.push(self.flow(cookie, arrives, self.as_usual()));
                } else if self.shared {
                    let (patch, mac) = (self.bridge.ports.patch, self.bridge.mac);
                    out.push(self.flow(cookie, arrives, format!("output:{patch}")));
                    let answers =
                        format!("{protocol},in_port={patch},dl_src={mac},{src}={ip},tp_src={number}");
                    out.push(self.flow(cookie, answers, format!("output:{uplink}")));
                } else if self.is_reserved(ip) {
                    out.push(self.flow(cookie, arrives, self.as_usual()));
                }
            }
            if self.is_reserved(ip) {
                self.only_some_clients(out, start, ip);
            }
        }
    }

    /// Whether only some clients may use an address.
    fn is_reserved(&self, ip: IpAddr) -> bool {
        let service = &self.wanted.service;
        !service.source_ranges.is_empty() && service.ingress_ips.contains(&ip)
    }

    /// What happens to a packet for this node that no flow of a service takes.
    fn as_usual(&self) -> String {
        format!("ct(table=1,zone={},nat)", self.bridge.zone)
    }

    /// Nobody but the host answers for an external address.
    fn neighbours(&self, out: &mut Vec<Flow>, cookie: u64, ip: IpAddr) {
        let (uplink, patch, tagged) = (self.uplink, self.bridge.ports.patch, self.bridge.vlan.tagged());
        let (asks, too_big) = match ip {
            IpAddr::V4(_) => (
                format!("arp,in_port={uplink}{tagged},arp_tpa={ip},arp_op=1"),
                format!("icmp,in_port={uplink},nw_dst={ip},icmp_type=3,icmp_code=4"),
            ),
            IpAddr::V6(_) => (
                format!("icmp6,in_port={uplink}{tagged},icmp_type=135,icmp_code=0,nd_target={ip}"),
                format!("icmp6,in_port={uplink},ipv6_dst={ip},icmp_type=2,icmp_code=0"),
            ),
        };
        out.push(self.flow(cookie, asks, self.bridge.vlan.to_host().to_owned()));
        if self.shared {
            out.push(self.flow(cookie, too_big, format!("output:{patch}")));
        }
    }

    /// To an endpoint that is the host itself; false if there is none.
    fn to_host(&self, out: &mut Vec<Flow>, cookie: u64, arrives: &str) -> bool {
        let Some(host) = self.host else { return false };
        let (protocol, zone) = (&self.protocol, self.bridge.zone + 3);
        out.push(self.flow(
            cookie,
            arrives.to_owned(),
            format!("ct(commit,table={TO_HOST},zone={zone},nat(dst={host}))"),
        ));
        out.push(self.flow(
            cookie,
            format!("{protocol},in_port=LOCAL,tp_src={}", host.port()),
            format!("ct(table={FROM_HOST},zone={zone},nat)"),
        ));
        let vlan = self.bridge.vlan;
        for (table, actions) in
            [(TO_HOST, vlan.to_host().to_owned()), (FROM_HOST, vlan.leave_host(self.uplink))]
        {
            out.push(Flow { table, priority: PRIORITY, matches: String::new(), actions, cookie });
        }
        true
    }

    /// What lets packets in does so for each range of clients, and everybody else is refused. Of the flows behind `start`
    /// those that take what comes from outside are concerned.
    fn only_some_clients(&self, out: &mut Vec<Flow>, start: usize, ip: IpAddr) {
        let service = &self.wanted.service;
        let Words { src, dst, .. } = self.words();
        let to = format!(",{dst}={ip},tp_dst=");
        let (entries, others): (Vec<Flow>, Vec<Flow>) =
            out.split_off(start).into_iter().partition(|flow| flow.matches.contains(&to));
        out.extend(others);
        for entry in entries {
            for range in service.source_ranges.iter().filter(|range| Family::of_net(range) == self.family) {
                let matches = format!("{},{src}={}", entry.matches, super::flows::short(range));
                out.push(Flow { matches, ..entry.clone() });
            }
            out.push(Flow { priority: REFUSED, actions: "drop".to_owned(), ..entry });
        }
    }

    /// FNV-1a over what tells one port of a service from all others.
    fn cookie(&self, token: &str, number: u16) -> u64 {
        let key = &self.wanted.service.key;
        let text = format!("{}{}{token}{number}", key.namespace(), key.name());
        text.bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }
}
