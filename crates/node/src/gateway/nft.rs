//! The firewall table `inet ovn-kubernetes`: its sets, maps and chains for these settings.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use kapi::annotations::GatewayMode;
use net::Family;

use super::Masquerade;
pub use super::nft_text::{Chain, Hook, Set, TABLE, Table};
use crate::mgmt_port::{Facts, NAME, SERVICE_MARK};
use crate::settings::Settings;

/// Firewall mark of pods whose egress IP is on another interface of this node.
const SECONDARY_EGRESS_MARK: u32 = 0x3f1;
/// Firewall mark of egress traffic towards node addresses.
const EGRESS_MARK: u32 = super::host::EGRESS_MARK;

/// What the table is made from, besides settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs {
    /// The management port.
    pub port: Facts,
    /// Addresses of the other nodes.
    pub remote_nodes: BTreeSet<IpAddr>,
    /// The network cards of bridges that are switched in userspace.
    pub userspace_uplinks: Vec<String>,
    /// The kernel forwards IPv6 on all interfaces, because it cannot do so on single ones.
    pub forwards_all_v6: bool,
}

const PROTOCOL_PORT: &str = "inet_proto . inet_service";

/// The whole table.
pub fn desired(settings: &Settings, inputs: &Inputs) -> Table {
    let mut table = Table::default();
    path_mtu(&mut table, inputs);
    port_sets(&mut table);
    management_port(&mut table, &inputs.port);
    if settings.gateway.mode == GatewayMode::Disabled {
        return table;
    }
    service_maps(&mut table);
    service_chains(&mut table);
    refusals(&mut table);
    if settings.gateway.egress_ip {
        egress_ip(&mut table, settings, &inputs.port);
    }
    pod_subnets(&mut table, settings, &inputs.port);
    if settings.gateway.disable_forwarding && inputs.forwards_all_v6 {
        no_router(&mut table, settings, &inputs.port);
    }
    if !inputs.userspace_uplinks.is_empty() {
        deaf_uplinks(&mut table, &inputs.userspace_uplinks);
    }
    table
}

/// Where packets are switched in userspace, the kernel gets a copy of each directly from the network card, besides the
/// one through the bridge. It would answer for connections of pods, which it does not know, and end them.
fn deaf_uplinks(table: &mut Table, uplinks: &[String]) {
    table.chains.push(Chain {
        name: "userspace-uplink".into(),
        comment: Some("The bridge delivers what is for this node".into()),
        hook: Some(Hook::new("filter", "prerouting", "raw")),
        rules: uplinks.iter().map(|uplink| format!("iifname \"{uplink}\" drop")).collect(),
    });
}

/// IPv4 is forwarded on our interfaces only. Where that cannot be said of IPv6, what is not the cluster's is stopped here.
fn no_router(table: &mut Table, settings: &Settings, port: &Facts) {
    if !used(port).any(|(family, _)| family == Family::V6) {
        return;
    }
    let cluster = settings.cluster_subnets.iter().chain(&settings.service_cidrs);
    let cluster = cluster.filter(|net| net.addr().is_ipv6()).map(|net| net.trunc().to_string());
    let host = Masquerade::of(settings, Family::V6).map(|masquerade| masquerade.ovn.to_string());
    let mut rules = Vec::new();
    for address in cluster.chain(host) {
        rules.extend(["saddr", "daddr"].map(|side| format!("ip6 {side} {address} accept")));
    }
    rules.extend(["iifname", "oifname"].map(|side| format!("{side} \"{NAME}\" accept")));
    rules.push("meta nfproto ipv6 drop".to_owned());
    table.chains.push(Chain {
        name: "no-router".into(),
        comment: Some("Only what belongs to the cluster is forwarded".into()),
        hook: Some(Hook::new("filter", "forward", "filter")),
        rules,
    });
}

fn family_words(family: Family) -> (&'static str, &'static str, &'static str) {
    match family {
        Family::V4 => ("ip", "v4", "ipv4_addr"),
        Family::V6 => ("ip6", "v6", "ipv6_addr"),
    }
}

const BOTH: [Family; 2] = [Family::V4, Family::V6];

/// The families the node's pods have.
fn used(port: &Facts) -> impl Iterator<Item = (Family, IpAddr)> {
    port.addresses.iter().map(|net| (Family::of_net(net), net.addr()))
}

/// Other nodes must not learn that this one takes only small packets: their tunnels would shrink.
fn path_mtu(table: &mut Table, inputs: &Inputs) {
    let mut rules = Vec::new();
    for family in BOTH {
        let (_, suffix, kind) = family_words(family);
        let what = if family == Family::V4 { "ICMP needs frag" } else { "ICMPv6 packet too big" };
        let mut set = Set::plain(
            format!("remote-node-ips-{suffix}"),
            kind,
            format!("Block egress {what} to remote Kubernetes nodes"),
        );
        let ips = inputs.remote_nodes.iter().filter(|ip| Family::of(**ip) == family);
        set.elements = ips.map(ToString::to_string).collect();
        table.sets.push(set);
    }
    for (family, _) in used(&inputs.port) {
        rules.push(match family {
            Family::V4 => {
                "ip daddr @remote-node-ips-v4 icmp type destination-unreachable icmp code 4 drop".to_owned()
            }
            Family::V6 => {
                "icmpv6 type packet-too-big icmpv6 code 0 ip6 daddr @remote-node-ips-v6 drop".to_owned()
            }
        });
    }
    table.chains.push(Chain {
        name: "no-pmtud".into(),
        comment: Some("Block egress needs frag/packet too big to remote k8s nodes".into()),
        hook: Some(Hook::new("filter", "output", "filter")),
        rules,
    });
}

fn port_sets(table: &mut Table) {
    table.sets.push(Set::plain(
        "mgmtport-no-snat-nodeports",
        PROTOCOL_PORT,
        "NodePorts not subject to management port SNAT",
    ));
    for family in BOTH {
        let (_, suffix, kind) = family_words(family);
        table.sets.push(Set::plain(
            format!("mgmtport-no-snat-services-{suffix}"),
            format!("{kind} . {PROTOCOL_PORT}"),
            format!("eTP:Local short-circuit not subject to management port SNAT ({})", family.name()),
        ));
        let mut subnets = Set::plain(
            format!("mgmtport-no-snat-subnets-{suffix}"),
            kind,
            format!("subnets not subject to management port SNAT ({})", family.name()),
        );
        subnets.interval = true;
        table.sets.push(subnets);
    }
}

fn service_maps(table: &mut Table) {
    for family in BOTH {
        let (_, suffix, kind) = family_words(family);
        let name = family.name();
        let key = format!("{kind} . {PROTOCOL_PORT}");
        let target = format!("{kind} . inet_service");
        let mut map = |name: &str, key: &str, value: &str, comment: String| {
            table.sets.push(Set::map(format!("{name}-{suffix}"), format!("{key} : {value}"), Some(comment)));
        };
        for (prefix, local) in [("-etp-local", true), ("", false)] {
            let text = |what: &str| match local {
                true => format!("DNAT mappings for {name} {what} traffic with ExternalTrafficPolicy: Local"),
                false => format!("DNAT mappings for ordinary {name} {what} traffic"),
            };
            map(&format!("external-ips{prefix}"), &key, &target, text("ExternalIP/LB"));
            map(&format!("nodeports{prefix}"), PROTOCOL_PORT, &target, text("NodePort"));
        }
        map(
            "itp-services-to-redirect",
            &key,
            "inet_service",
            "Port redirections for ordinary InternalTrafficPolicy: Local traffic".to_owned(),
        );
        table.sets.push(Set::plain(
            format!("itp-services-to-mark-{suffix}"),
            key,
            "InternalTrafficPolicy: Local traffic to mark for special routing",
        ));
    }
}

fn service_chains(table: &mut Table) {
    let dnat = |prefix: &str| {
        let mut rules = Vec::new();
        for (guard, key, map) in
            [("", "{ip} daddr . ", "external-ips"), ("fib daddr type local ", "", "nodeports")]
        {
            for family in BOTH {
                let (ip, suffix, _) = family_words(family);
                let key = key.replace("{ip}", ip);
                rules.push(format!(
                    "{guard}dnat {ip} to {key}meta l4proto . th dport map @{map}{prefix}-{suffix}"
                ));
            }
        }
        rules
    };
    let mut chain = |name: &str, comment: Option<&str>, hook: Option<Hook>, rules: Vec<String>| {
        let comment = comment.map(str::to_owned);
        table.chains.push(Chain { name: name.to_owned(), comment, hook, rules });
    };
    let jump = |names: &[&str]| names.iter().map(|name| format!("jump {name}")).collect::<Vec<_>>();
    chain("services", Some("DNAT for ordinary NodePort/ExternalIP/LB traffic"), None, dnat(""));
    chain(
        "services-etp",
        Some("Special DNAT for NodePort/ExternalIP/LB traffic with ExternalTrafficPolicy: Local"),
        None,
        dnat("-etp-local"),
    );
    chain(
        "services-etp-no-nodeport",
        Some("Special DNAT for ExternalIP/LB traffic with ExternalTrafficPolicy: Local and no NodePorts"),
        None,
        Vec::new(),
    );
    let redirect = BOTH.map(|family| {
        let (ip, suffix, _) = family_words(family);
        format!(
            "meta l4proto {{ tcp, udp, sctp }} redirect to :{ip} daddr . meta l4proto . th dport map \
             @itp-services-to-redirect-{suffix}"
        )
    });
    chain(
        "services-itp",
        Some("Redirects for traffic with InternalTrafficPolicy: Local"),
        None,
        redirect.to_vec(),
    );
    chain(
        "services-prerouting",
        None,
        Some(Hook::new("nat", "prerouting", "dstnat")),
        jump(&["services-etp", "services-etp-no-nodeport", "services"]),
    );
    chain(
        "services-output",
        None,
        Some(Hook::new("nat", "output", "dstnat")),
        jump(&["services-itp", "services"]),
    );
    let mark = BOTH.map(|family| {
        let (ip, suffix, _) = family_words(family);
        format!(
            "{ip} daddr . meta l4proto . th dport @itp-services-to-mark-{suffix} meta mark set {SERVICE_MARK:#010x}"
        )
    });
    chain(
        "services-itp-mark",
        Some("Chain to mark InternalTrafficPolicy: Local traffic for special routing"),
        Some(Hook::new("route", "output", "mangle")),
        mark.to_vec(),
    );
}

/// Services without endpoints are refused before anything else is done about them.
fn refusals(table: &mut Table) {
    let mut matches = Vec::new();
    for family in BOTH {
        let (ip, suffix, kind) = family_words(family);
        let name = format!("refused-services-{suffix}");
        matches.push(format!("{ip} daddr . meta l4proto . th dport @{name}"));
        table.sets.push(Set::plain(
            name,
            format!("{kind} . {PROTOCOL_PORT}"),
            format!("{} addresses of services without endpoints", family.name()),
        ));
    }
    matches.push("fib daddr type local meta l4proto . th dport @refused-nodeports".to_owned());
    table.sets.push(Set::plain(
        "refused-nodeports",
        PROTOCOL_PORT,
        "NodePorts of services without endpoints",
    ));
    let rules = matches.iter().flat_map(|matches| {
        [format!("{matches} meta l4proto tcp reject with tcp reset"), format!("{matches} reject")]
    });
    let rules = rules.collect();
    table.chains.push(Chain {
        name: "services-refused".into(),
        comment: Some("Refusal of services without endpoints".into()),
        hook: None,
        rules,
    });
    for hook in ["prerouting", "output"] {
        table.chains.push(Chain {
            name: format!("services-refused-{hook}"),
            comment: None,
            hook: Some(Hook::new("filter", hook, "mangle")),
            rules: vec!["jump services-refused".to_owned()],
        });
    }
}

/// Whether the table of the reference has no such set or chain.
#[cfg(test)]
pub(crate) fn is_addition(block: &str) -> bool {
    block.contains(" refused-") || block.contains(" services-refused")
}

/// Whatever the host sends to pods comes from the management port's address, so that replies come back through it.
fn management_port(table: &mut Table, port: &Facts) {
    let mut rules = vec![
        format!("oifname != \"{NAME}\" return"),
        "meta l4proto . th dport @mgmtport-no-snat-nodeports return".to_owned(),
    ];
    for (family, own) in used(port) {
        let (ip, suffix, _) = family_words(family);
        rules.push(format!("{ip} saddr {own} return"));
        rules
            .push(format!("{ip} daddr . meta l4proto . th dport @mgmtport-no-snat-services-{suffix} return"));
        rules.push(format!("{ip} saddr @mgmtport-no-snat-subnets-{suffix} return"));
        rules.push(format!("snat {ip} to {own}"));
    }
    table.chains.push(Chain {
        name: "mgmtport-snat".into(),
        comment: Some("OVN SNAT to Management Port".into()),
        hook: Some(Hook::new("nat", "postrouting", "srcnat")),
        rules,
    });
}

fn egress_ip(table: &mut Table, settings: &Settings, port: &Facts) {
    let mut snat = Vec::new();
    for (family, _) in used(port) {
        let (ip, suffix, kind) = family_words(family);
        let map = format!("egress-ip-snat-{suffix}");
        snat.push(format!("snat {ip} to {ip} saddr . oifname map @{map}"));
        table.sets.push(Set::map(map, format!("{kind} . ifname : {kind}"), None));
    }
    table.chains.push(Chain {
        name: "egress-ip-snat".into(),
        comment: None,
        hook: Some(Hook::new("nat", "postrouting", "srcnat")),
        rules: snat,
    });
    if settings.gateway.mode == GatewayMode::Local {
        table.chains.push(Chain {
            name: "egress-ip-connmark".into(),
            comment: None,
            hook: Some(Hook::new("filter", "prerouting", "mangle")),
            rules: vec![
                "meta mark 0x00000000 meta mark set ct mark".to_owned(),
                format!("meta mark {EGRESS_MARK:#010x} ct mark set meta mark"),
            ],
        });
    }
    let drop = settings.cluster_subnets.iter().map(|net| {
        let (ip, ..) = family_words(Family::of_net(net));
        format!(
            "{ip} saddr {net} meta mark {SECONDARY_EGRESS_MARK:#010x} drop comment \"Drop egress IP pod traffic from \
             {net}\""
        )
    });
    table.chains.push(Chain {
        name: "egress-ip-sec-filter".into(),
        comment: Some("Egress IP on secondary interfaces filtering".into()),
        hook: Some(Hook::new("filter", "postrouting", "srcnat + 1")),
        rules: drop.collect(),
    });
}

/// In local mode pods reach the outside through the host, which gives them its address.
fn pod_subnets(table: &mut Table, settings: &Settings, port: &Facts) {
    let mut pods = Vec::new();
    if settings.gateway.mode == GatewayMode::Local {
        let mut rules = Vec::new();
        for (family, _) in used(port) {
            let (ip, ..) = family_words(family);
            if let Some(masquerade) = Masquerade::of(settings, family) {
                rules.push(format!("{ip} saddr {} masquerade", masquerade.ovn));
            }
        }
        rules.push("jump ovn-kube-pod-subnet-masq".to_owned());
        table.chains.push(Chain {
            name: "ovn-kube-local-gw-masq".into(),
            comment: Some("OVN local gateway masquerade".into()),
            hook: Some(Hook::new("nat", "postrouting", "srcnat + 1")),
            rules,
        });
        pods.extend(port.addresses.iter().map(|net| {
            let (ip, ..) = family_words(Family::of_net(net));
            format!("{ip} saddr {} masquerade", IpNet::trunc(net))
        }));
    }
    table.chains.push(Chain {
        name: "ovn-kube-pod-subnet-masq".into(),
        comment: None,
        hook: None,
        rules: pods,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::nft_text::canonical;

    fn port(subnets: &[&str]) -> Facts {
        let subnets: Vec<IpNet> = subnets.iter().map(|net| net.parse().unwrap()).collect();
        Facts::from_subnets("node1", &subnets).unwrap()
    }

    #[test]
    fn without_a_gateway_only_what_the_management_port_needs() {
        let mut settings = Settings::new("node1", vec![], vec![]);
        settings.gateway.mode = GatewayMode::Disabled;
        let inputs = Inputs {
            port: port(&["10.244.0.0/24"]),
            remote_nodes: BTreeSet::new(),
            userspace_uplinks: vec![],
            forwards_all_v6: true,
        };
        let table = desired(&settings, &inputs);
        let chains: Vec<&str> = table.chains.iter().map(|chain| chain.name.as_str()).collect();
        assert_eq!(chains, ["no-pmtud", "mgmtport-snat"]);
    }

    #[test]
    fn the_kernel_does_not_answer_beside_a_bridge_in_userspace() {
        let settings = Settings::new("node1", vec![], vec![]);
        let mut inputs = Inputs {
            port: port(&["10.244.0.0/24"]),
            remote_nodes: BTreeSet::new(),
            userspace_uplinks: vec!["eth0".into()],
            forwards_all_v6: true,
        };
        assert!(desired(&settings, &inputs).text().contains("iifname \"eth0\" drop"));
        inputs.userspace_uplinks.clear();
        assert!(!desired(&settings, &inputs).text().contains("userspace-uplink"));
    }

    #[test]
    fn a_node_that_is_no_router_forwards_only_what_is_the_clusters() {
        let cluster = vec!["10.244.0.0/16".parse().unwrap(), "fd00:10:244::/48".parse().unwrap()];
        let mut settings = Settings::new("node1", cluster, vec!["fd00:10:96::/112".parse().unwrap()]);
        let mut inputs = Inputs {
            port: port(&["10.244.0.0/24", "fd00:10:244:1::/64"]),
            remote_nodes: BTreeSet::new(),
            userspace_uplinks: vec![],
            forwards_all_v6: true,
        };
        let stops = |settings: &Settings, inputs: &Inputs| {
            let table = desired(settings, inputs);
            table.chains.iter().find(|chain| chain.name == "no-router").map(|chain| chain.rules.clone())
        };
        assert_eq!(stops(&settings, &inputs), None, "unless it is asked for");
        settings.gateway.disable_forwarding = true;
        let rules = stops(&settings, &inputs).unwrap();
        assert_eq!(rules.last().unwrap(), "meta nfproto ipv6 drop");
        for accepted in ["fd00:10:244::/48", "fd00:10:96::/112", "fd69::1", "ovn-k8s-mp0"] {
            let both = rules.iter().filter(|rule| rule.contains(accepted) && rule.ends_with("accept"));
            assert_eq!(both.count(), 2, "{accepted}: {rules:?}");
        }
        assert!(!rules.iter().any(|rule| rule.contains("10.244.0.0/16")));
        inputs.forwards_all_v6 = false;
        assert_eq!(stops(&settings, &inputs), None, "where single interfaces forward");
        inputs.forwards_all_v6 = true;
        inputs.port = port(&["10.244.0.0/24"]);
        assert_eq!(stops(&settings, &inputs), None, "without IPv6");
    }

    fn compare(mode: GatewayMode, dual: bool, recorded: &str) {
        let mut cluster = vec!["10.244.0.0/16".parse().unwrap()];
        let mut subnets = vec!["10.244.0.0/24"];
        let mut remote: BTreeSet<IpAddr> = ["172.18.0.2".parse().unwrap()].into();
        if dual {
            cluster.push("fd00:10:244::/48".parse().unwrap());
            subnets.push("fd00:10:244:1::/64");
            remote.insert("fd00:172:18::2".parse().unwrap());
        }
        let mut settings = Settings::new("node1", cluster, vec![]);
        settings.gateway.egress_ip = true;
        settings.gateway.mode = mode;
        let table = desired(
            &settings,
            &Inputs {
                port: port(&subnets),
                remote_nodes: remote,
                userspace_uplinks: vec![],
                forwards_all_v6: true,
            },
        );
        let from = recorded.find("table inet ovn-kubernetes").unwrap();
        let to = recorded[from..].find("\n}\n").unwrap();
        let recorded = canonical(&recorded[from..from + to + 3]).unwrap();
        let ours = canonical(&table.text()).unwrap();
        for (name, block) in &recorded {
            assert_eq!(ours.get(name), Some(block), "{name}");
        }
        let ours = ours.keys().filter(|name| !is_addition(name));
        assert_eq!(ours.collect::<Vec<_>>(), recorded.keys().collect::<Vec<_>>());
    }

    #[test]
    fn shared_mode_as_recorded() {
        compare(GatewayMode::Shared, false, include_str!("../../tests/data/shared.host.txt"));
    }

    #[test]
    fn local_mode_as_recorded() {
        compare(GatewayMode::Local, false, include_str!("../../tests/data/local.host.txt"));
    }

    #[test]
    fn both_families_as_recorded() {
        compare(GatewayMode::Shared, true, include_str!("../../tests/data/dual.host.txt"));
    }
}
