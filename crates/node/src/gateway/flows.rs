//! The OpenFlow rules of the gateway bridge, derived from settings and facts.
//!
//! ```text
//!  table 0  where a packet comes from and goes to; commits connections of pods (mark 1) and of the host (mark 2)
//!  table 1  replies, by that mark      table 2  host ─▶ service      table 3  service ─▶ host
//!  table 4  service ─▶ its own node    table 5  reply to table 4     table 11 too large for a pod (local mode)
//! ```

use std::net::IpAddr;

use ipnet::IpNet;
use kapi::annotations::GatewayMode;
use net::{Family, Mac};

use super::service_flows::is_of_service;
use super::{Bridge, Ports, families};
use crate::settings::Settings;

/// Cookie of most flows.
pub const COOKIE: u64 = 0xdeff105;
/// Cookie of the flows that keep "fragmentation needed" from other nodes.
pub const COOKIE_PMTUD: u64 = 0x304;
/// Cookie of the guard against announcements of the gateway router.
pub const COOKIE_GARP: u64 = 0x305;

/// Connection mark of the default network's pods.
const MARK_PODS: u8 = 1;
/// Connection mark of the host.
const MARK_HOST: u8 = 2;
/// UDP port of bidirectional forwarding detection.
const BFD: u16 = 3784;
/// The bit that says that there is a VLAN.
const VLAN_PRESENT: u16 = 0x1000;
/// What an Ethernet header adds to the MTU.
const ETHERNET: u32 = 14;

/// Whether we write and delete a flow; all other flows are somebody else's.
pub(crate) fn is_ours(flow: &Flow) -> bool {
    [COOKIE, COOKIE_PMTUD, COOKIE_GARP].contains(&flow.cookie) || is_of_service(flow)
}

/// One flow, in the words of `ovs-ofctl`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Table.
    pub table: u8,
    /// Priority.
    pub priority: u16,
    /// Fields compared, separated by commas; the empty text matches every packet.
    pub matches: String,
    /// Actions.
    pub actions: String,
    /// Who it belongs to.
    pub cookie: u64,
}

/// What flows are made from, besides settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs {
    /// The bridge.
    pub bridge: Bridge,
    /// Its ports.
    pub ports: Ports,
    /// All addresses of the host that others may use, with their prefix lengths.
    pub host_cidrs: Vec<IpNet>,
    /// The node's pod subnets.
    pub node_subnets: Vec<IpNet>,
    /// Addresses of the other nodes.
    pub remote_nodes: Vec<IpAddr>,
}

/// The words of one family.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    ip: &'static str,
    pub(crate) src: &'static str,
    pub(crate) dst: &'static str,
    udp: &'static str,
    l4: [&'static str; 3],
}

/// The VLAN of the uplink; 0 = none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vlan(pub(crate) u16);

impl Vlan {
    /// What a match needs so that packets from outside, which carry the node's VLAN, can lose it.
    pub(crate) fn tagged(self) -> String {
        if self.0 == 0 { String::new() } else { format!(",dl_vlan={}", self.0) }
    }

    /// To the host, which knows nothing of the VLAN. The match must have [`Vlan::tagged`].
    pub(crate) fn to_host(self) -> &'static str {
        if self.0 == 0 { "LOCAL" } else { "pop_vlan,LOCAL" }
    }

    /// From the host to another port.
    pub(crate) fn leave_host(self, port: u16) -> String {
        if self.0 == 0 {
            return format!("output:{port}");
        }
        format!("push_vlan:0x8100,set_field:{}->vlan_vid,output:{port}", self.0 | VLAN_PRESENT)
    }
}

const V4: Words = Words { ip: "ip", src: "nw_src", dst: "nw_dst", udp: "udp", l4: ["tcp", "udp", "sctp"] };
const V6: Words =
    Words { ip: "ipv6", src: "ipv6_src", dst: "ipv6_dst", udp: "udp6", l4: ["tcp6", "udp6", "sctp6"] };

/// The words of a family.
pub(crate) fn words(family: Family) -> Words {
    match family {
        Family::V4 => V4,
        Family::V6 => V6,
    }
}

/// Collects flows.
struct Table {
    flows: Vec<Flow>,
    cookie: u64,
}

impl Table {
    fn add(&mut self, table: u8, priority: u16, matches: impl Into<String>, actions: impl Into<String>) {
        let (matches, actions) = (matches.into(), actions.into());
        self.flows.push(Flow { table, priority, matches, actions, cookie: self.cookie });
    }
}

/// The zones of connection tracking, counted from the configured one.
struct Zones {
    default: u16,
    host: u16,
    ovn: u16,
    reassembly: u16,
}

/// Every flow of the bridge.
pub fn desired(settings: &Settings, inputs: &Inputs) -> Vec<Flow> {
    let plan = Plan::of(settings, inputs);
    let mut out = Table { flows: Vec::new(), cookie: COOKIE };
    plan.services(&mut out);
    plan.tunnels(&mut out);
    plan.egress(&mut out);
    plan.ingress(&mut out);
    plan.replies(&mut out);
    plan.path_mtu(&mut out);
    out.flows.sort();
    out.flows
}

/// Every flow of a second bridge: what any bridge to the outside has.
pub fn external(settings: &Settings, inputs: &Inputs) -> Vec<Flow> {
    let plan = Plan::of(settings, inputs);
    let mut out = Table { flows: Vec::new(), cookie: COOKIE };
    plan.tunnels(&mut out);
    plan.egress(&mut out);
    plan.ingress(&mut out);
    plan.replies(&mut out);
    out.flows.sort();
    out.flows
}

struct Plan<'a> {
    settings: &'a Settings,
    inputs: &'a Inputs,
    mac: Mac,
    patch: u16,
    shared: bool,
    zones: Zones,
}

impl<'a> Plan<'a> {
    fn of(settings: &'a Settings, inputs: &'a Inputs) -> Self {
        let base = settings.gateway.conntrack_zone;
        Plan {
            settings,
            inputs,
            mac: inputs.bridge.mac,
            patch: inputs.ports.patch,
            shared: settings.gateway.mode == GatewayMode::Shared,
            zones: Zones { default: base, host: base + 1, ovn: base + 2, reassembly: base + 4 },
        }
    }
}

impl Plan<'_> {
    fn vlan(&self) -> Vlan {
        Vlan(self.settings.gateway.vlan_id)
    }

    fn tagged(&self) -> String {
        self.vlan().tagged()
    }

    fn host_output(&self) -> &'static str {
        self.vlan().to_host()
    }

    fn leave_host(&self, port: u16) -> String {
        self.vlan().leave_host(port)
    }

    fn commit(&self, mark: u8) -> String {
        format!("ct(commit,zone={},exec(set_field:{mark:#x}->ct_mark))", self.zones.default)
    }

    /// Between the host and services, and a service that leads back to the host itself.
    fn services(&self, out: &mut Table) {
        let (patch, mac) = (self.patch, self.mac);
        let Zones { host, ovn, .. } = self.zones;
        for (family, node, masquerade) in families(self.settings, &self.inputs.bridge) {
            let Words { ip, src, dst, l4, .. } = words(family);
            let (node, own, back) = (node.addr(), masquerade.host.addr(), masquerade.ovn);
            let from_patch = format!("{ip},in_port={patch}");
            out.add(
                0,
                500,
                format!("{from_patch},{src}={node},{dst}={own}"),
                format!("ct(commit,table=4,zone={host},nat(dst={node}))"),
            );
            for other in self.others(family, node) {
                out.add(
                    0,
                    500,
                    format!("{from_patch},{src}={node},{dst}={other}"),
                    format!("ct(commit,table=4,zone={host})"),
                );
            }
            out.add(
                0,
                500,
                format!("{ip},in_port=LOCAL,{dst}={back}"),
                format!("ct(table=5,zone={ovn},nat)"),
            );
            if !self.shared {
                for protocol in l4 {
                    let matches = format!("{protocol},in_port={patch},{src}={node}");
                    out.add(0, 175, matches, format!("ct(table=4,zone={host})"));
                }
            }
            let services = self.settings.service_cidrs.iter().filter(|net| Family::of_net(net) == family);
            for net in services.map(short) {
                out.add(
                    0,
                    500,
                    format!("{ip},in_port=LOCAL,{dst}={net}"),
                    format!("ct(commit,table=2,zone={host},nat(src={own}))"),
                );
                out.add(
                    0,
                    500,
                    format!("{from_patch},{src}={net},{dst}={own}"),
                    format!("ct(table=3,zone={host},nat)"),
                );
                // What no load balancer took must not leave the node.
                out.add(0, 115, format!("{from_patch},{dst}={net}"), "drop");
            }
            out.add(4, 0, ip, format!("ct(commit,table=3,zone={ovn},nat(src={back}))"));
            out.add(5, 0, ip, format!("ct(commit,table=2,zone={host},nat)"));
        }
        out.add(2, 100, "", format!("set_field:{mac}->eth_dst,{}", self.leave_host(patch)));
        let back = format!(
            "move:NXM_OF_ETH_DST[]->NXM_OF_ETH_SRC[],set_field:{mac}->eth_dst,{}",
            self.host_output()
        );
        out.add(3, 32768, self.tagged().trim_start_matches(','), back);
    }

    /// The host's further addresses of a family.
    fn others(&self, family: Family, node: IpAddr) -> impl Iterator<Item = IpAddr> {
        let all = self.inputs.host_cidrs.iter().map(IpNet::addr);
        all.filter(move |ip| Family::of(*ip) == family && *ip != node)
    }

    /// Tunnels between nodes are the host's own and need no connection tracking.
    fn tunnels(&self, out: &mut Table) {
        if self.settings.encap.none {
            return;
        }
        let Some(uplink) = self.inputs.ports.uplink else { return };
        let (mac, port) = (self.mac, self.settings.encap.port);
        for (family, ..) in families(self.settings, &self.inputs.bridge) {
            let udp = words(family).udp;
            let tagged = self.tagged();
            let matches = format!("{udp},in_port={uplink}{tagged},dl_dst={mac},tp_dst={port}");
            out.add(0, 205, matches, self.host_output());
            out.add(0, 200, format!("{udp},in_port={uplink},tp_dst={port}"), "NORMAL");
            out.add(0, 200, format!("{udp},in_port=LOCAL,tp_dst={port}"), self.leave_host(uplink));
        }
    }

    /// From pods and host to the outside.
    fn egress(&self, out: &mut Table) {
        let (patch, mac, zone) = (self.patch, self.mac, self.zones.default);
        let gateway = &self.settings.gateway;
        for (family, node, _) in families(self.settings, &self.inputs.bridge) {
            let Words { ip, src, dst, udp, .. } = words(family);
            let from_router = format!("{ip},in_port={patch},dl_src={mac}");
            if let Some(uplink) = self.inputs.ports.uplink {
                if !self.shared {
                    let matches = format!("{udp},in_port={patch},dl_src={mac},tp_dst={BFD}");
                    out.add(0, 650, matches, format!("output:{uplink}"));
                }
                if gateway.egress_ip || gateway.egress_service {
                    let actions = format!(
                        "ct(commit,zone={zone},nat(src={}),exec(set_field:{MARK_PODS:#x}->ct_mark)),output:{uplink}",
                        node.addr()
                    );
                    out.add(0, 105, format!("pkt_mark=0x3f0,{from_router}"), actions);
                }
                if gateway.snat_per_pod {
                    for net in self.inputs.node_subnets.iter().filter(|net| Family::of_net(net) == family) {
                        let net = short(net);
                        out.add(0, 104, format!("{from_router},{src}={net}"), format!("output:{uplink}"));
                        out.add(
                            0,
                            300,
                            format!("{ip},in_port={uplink},{dst}={net}"),
                            format!("output:{patch}"),
                        );
                    }
                }
                let commit = self.commit(MARK_PODS);
                out.add(0, 100, from_router.clone(), format!("{commit},output:{uplink}"));
                let commit = self.commit(MARK_HOST);
                out.add(
                    0,
                    100,
                    format!("{ip},in_port=LOCAL"),
                    format!("{commit},{}", self.leave_host(uplink)),
                );
            }
            if gateway.egress_ip {
                // Pods' own addresses mean nothing outside.
                let pods = self.settings.cluster_subnets.iter().filter(|net| Family::of_net(net) == family);
                for net in pods.map(short) {
                    out.add(0, 103, format!("{ip},in_port={patch},{src}={net}"), "drop");
                }
            }
            let mut to_neighbours = |matches: String| {
                if self.shared {
                    let from = matches.replace("PORT", &patch.to_string());
                    out.add(0, 102, from, format!("{},NORMAL", self.commit(MARK_PODS)));
                }
                let from = matches.replace("PORT", "LOCAL");
                out.add(0, 102, from, format!("{},NORMAL", self.commit(MARK_HOST)));
            };
            // Others on the node's own network may be behind this very bridge.
            to_neighbours(format!("{ip},in_port=PORT,dl_src={mac},{dst}={}", short(&node)));
            if family == Family::V6 {
                for kind in [135, 136] {
                    to_neighbours(format!("icmp6,in_port=PORT,dl_src={mac},icmp_type={kind}"));
                }
            }
        }
        out.add(0, 10, format!("in_port={patch},dl_src={mac}"), "NORMAL");
        // Nothing may leave under a foreign MAC.
        out.add(0, 9, format!("in_port={patch}"), "drop");
    }

    /// From the outside.
    fn ingress(&self, out: &mut Table) {
        let (patch, mac) = (self.patch, self.mac);
        for (family, ..) in families(self.settings, &self.inputs.bridge) {
            let ip = words(family).ip;
            if let Some(uplink) = self.inputs.ports.uplink.filter(|_| self.shared) {
                // The kernel goes on with the whole packet; in userspace the pieces come back as pieces, and would be
                // sent through here for ever.
                let once = if self.inputs.bridge.userspace { "ct_state=-trk," } else { "" };
                let matches = format!("{once}{ip},in_port={uplink},nw_frag=yes");
                out.add(0, 110, matches, format!("ct(table=0,zone={})", self.zones.reassembly));
            }
            let matches = format!("{ip},dl_dst={mac}");
            out.add(0, 50, matches, format!("ct(table=1,zone={},nat)", self.zones.default));
        }
        out.add(0, 10, format!("dl_dst={mac}"), format!("output:{patch},NORMAL"));
    }

    /// Whose connection a packet from the outside belongs to.
    fn replies(&self, out: &mut Table) {
        let patch = self.patch;
        let mut to_pods = format!("output:{patch}");
        if !self.shared && !self.settings.gateway.disable_packet_mtu_check {
            // Too large for a pod: the host's stack tells the sender or cuts it in pieces.
            let limit = self.settings.mtu + ETHERNET;
            to_pods = format!("check_pkt_larger({limit})->NXM_NX_REG0[0],resubmit(,11)");
            out.add(11, 10, format!("reg0=0x1{}", self.tagged()), self.host_output());
            out.add(11, 1, "", format!("output:{patch}"));
        }
        for (family, ..) in families(self.settings, &self.inputs.bridge) {
            let Words { ip, udp, .. } = words(family);
            for state in ["+est+trk", "+rel+trk"] {
                let matches = |mark: u8| format!("ct_state={state},ct_mark={mark:#x},{ip}");
                out.add(1, 100, matches(MARK_PODS), to_pods.clone());
                out.add(1, 100, matches(MARK_HOST) + &self.tagged(), self.host_output());
            }
            if let Some(uplink) = self.inputs.ports.uplink {
                let matches = format!("{udp},in_port={uplink}{},tp_dst={BFD}", self.tagged());
                out.add(1, 13, matches, format!("output:{patch},{}", self.host_output()));
            }
            if family == Family::V6 {
                for kind in [134, 136] {
                    // Flooding knows nothing of VLANs: the host would get it with the tag, and never learn a neighbour.
                    let everywhere = match self.vlan().0 {
                        0 => "FLOOD".to_owned(),
                        _ => format!("output:{patch},{}", self.host_output()),
                    };
                    out.add(1, 14, format!("icmp6,icmp_type={kind}{}", self.tagged()), everywhere);
                }
            }
        }
        let matches = format!("dl_dst={}{}", self.mac, self.tagged());
        out.add(1, 10, matches, self.host_output());
        out.add(1, 0, "", "NORMAL");
    }

    /// OVN must not tell other nodes to shrink packets to the overlay's MTU: that would shrink their tunnels too.
    fn path_mtu(&self, out: &mut Table) {
        if !self.shared {
            return;
        }
        out.cookie = COOKIE_PMTUD;
        let patch = self.patch;
        for ip in &self.inputs.remote_nodes {
            if !self.settings.has_family_of(*ip) {
                continue;
            }
            let matches = match ip {
                IpAddr::V4(ip) => format!("icmp,in_port={patch},nw_dst={ip},icmp_type=3,icmp_code=4"),
                IpAddr::V6(ip) => format!("icmp6,in_port={patch},ipv6_dst={ip},icmp_type=2,icmp_code=0"),
            };
            out.add(0, 700, matches, "drop");
        }
        out.cookie = COOKIE;
    }
}

/// A prefix as `ovs-ofctl` prints it: without host bits, a single address without length.
pub(crate) fn short(net: &IpNet) -> String {
    let net = net.trunc();
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::ofctl;
    use net::Dual;

    fn settings(dual: bool) -> Settings {
        let nets = |v4: &str, v6: &str| {
            let mut nets: Vec<IpNet> = vec![v4.parse().unwrap()];
            nets.extend(dual.then(|| v6.parse::<IpNet>().unwrap()));
            nets
        };
        let mut settings = Settings::new(
            "node1",
            nets("10.244.0.0/16", "fd00:10:244::/48"),
            nets("10.96.0.0/16", "fd00:10:96::/112"),
        );
        settings.mtu = 1342;
        settings.gateway.egress_ip = true;
        settings
    }

    fn inputs(dual: bool) -> Inputs {
        let node = Dual {
            v4: Some("172.18.0.1/24".parse().unwrap()),
            v6: dual.then(|| "fd00:172:18::1/64".parse().unwrap()),
        };
        let mac = "02:42:ac:12:00:01".parse().unwrap();
        let mut remote_nodes = vec!["172.18.0.2".parse().unwrap()];
        remote_nodes.extend(dual.then(|| "fd00:172:18::2".parse::<IpAddr>().unwrap()));
        Inputs {
            bridge: Bridge { name: "breth0".into(), mac, node, userspace: false },
            ports: Ports { uplink: Some(1), patch: 2 },
            host_cidrs: node.iter().copied().collect(),
            node_subnets: vec!["10.244.0.0/24".parse().unwrap()],
            remote_nodes,
        }
    }

    fn as_recorded(settings: &Settings, inputs: &Inputs, recorded: &str) {
        let recorded = ofctl::parse_dump(recorded).unwrap();
        let wanted = desired(settings, inputs);
        let bundle = ofctl::bundle(&recorded, &wanted);
        assert!(bundle.is_empty(), "differs from the record: {bundle:#?}");
        // The record has one more flow: the one that lets everything else pass.
        assert_eq!(recorded.len(), wanted.len() + 1);
    }

    #[test]
    fn shared_mode_as_recorded() {
        as_recorded(&settings(false), &inputs(false), include_str!("../../tests/data/shared.flows.txt"));
    }

    #[test]
    fn both_families_as_recorded() {
        as_recorded(&settings(true), &inputs(true), include_str!("../../tests/data/dual.flows.txt"));
    }

    #[test]
    fn local_mode_as_recorded() {
        let mut settings = settings(false);
        settings.gateway.mode = GatewayMode::Local;
        as_recorded(&settings, &inputs(false), include_str!("../../tests/data/local.flows.txt"));
    }

    fn find(settings: &Settings, inputs: &Inputs, priority: u16) -> Vec<String> {
        let flows = desired(settings, inputs).into_iter().filter(|flow| flow.priority == priority);
        flows.map(|flow| format!("{} -> {}", flow.matches, flow.actions)).collect()
    }

    #[test]
    fn pods_that_keep_their_address_are_let_out_and_back() {
        let (mut settings, inputs) = (settings(false), inputs(false));
        assert!(find(&settings, &inputs, 104).is_empty());
        settings.gateway.snat_per_pod = true;
        assert_eq!(
            find(&settings, &inputs, 104),
            ["ip,in_port=2,dl_src=02:42:ac:12:00:01,nw_src=10.244.0.0/24 -> output:1"]
        );
        assert_eq!(find(&settings, &inputs, 300), ["ip,in_port=1,nw_dst=10.244.0.0/24 -> output:2"]);
    }

    #[test]
    fn further_addresses_of_the_host_are_reached_by_services_too() {
        let (settings, mut inputs) = (settings(false), inputs(false));
        inputs.host_cidrs.push("192.0.2.7/24".parse().unwrap());
        let to_host = find(&settings, &inputs, 500);
        let expected = "ip,in_port=2,nw_src=172.18.0.1,nw_dst=192.0.2.7 -> ct(commit,table=4,zone=64001)";
        assert!(to_host.iter().any(|flow| flow == expected), "{to_host:?}");
    }

    #[test]
    fn without_an_uplink_no_flow_names_one_and_without_the_check_packets_go_straight_to_pods() {
        let (mut settings, mut inputs) = (settings(true), inputs(true));
        inputs.ports.uplink = None;
        settings.gateway.mode = GatewayMode::Local;
        settings.gateway.disable_packet_mtu_check = true;
        for flow in desired(&settings, &inputs) {
            assert!(!flow.matches.contains("in_port=1") && !flow.actions.contains("output:1"), "{flow:?}");
            assert!(flow.table != 11 && !flow.actions.contains("check_pkt_larger"), "{flow:?}");
        }
    }

    #[test]
    fn pieces_pass_reassembly_once_in_userspace() {
        let (settings, mut inputs) = (settings(false), inputs(false));
        inputs.bridge.userspace = true;
        assert_eq!(
            find(&settings, &inputs, 110),
            ["ct_state=-trk,ip,in_port=1,nw_frag=yes -> ct(table=0,zone=64004)"]
        );
    }

    #[test]
    fn the_host_is_untagged_and_everybody_else_in_its_vlan() {
        let mut settings = settings(true);
        settings.gateway.vlan_id = 100;
        for flow in desired(&settings, &inputs(true)) {
            let strips = flow.actions.contains("pop_vlan");
            assert_eq!(strips, flow.actions.contains("LOCAL"), "{flow:?}");
            assert_eq!(strips, flow.matches.contains("dl_vlan=100"), "{flow:?}");
            let from_host = flow.matches.contains("in_port=LOCAL") || flow.table == 2;
            let leaves = flow.actions.contains("output:");
            assert_eq!(from_host && leaves, flow.actions.contains("set_field:4196->vlan_vid"), "{flow:?}");
        }
    }

    #[test]
    fn no_tunnels_no_flows_for_them() {
        let mut settings = settings(false);
        settings.encap.none = true;
        assert!(find(&settings, &inputs(false), 205).is_empty());
    }
}
