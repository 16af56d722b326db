//! In and out of the cluster with real packets: pods, nodes, and a host outside behind the underlay.

#[path = "common/lab.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lab;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use anyhow::{Context, Result, ensure};
use devcluster::{
    AgentOptions, ApiChoice, Cluster, Datapath, Families, GATEWAY, Node, PodHandle, Process, Program, Stack,
};
use lab::{MTU, addresses, at, eventually, pings::Pings, probe, ready, run, servers, without_bridge};

/// Bytes of a datagram that fits the underlay but not a pod's interface.
const TOO_LARGE: usize = 1400;
/// What an answer has before the bytes that were sent: whom the server saw.
const ANSWER: usize = 64;

/// Whoever can ask.
#[derive(Clone)]
enum Place {
    Pod(PodHandle),
    Node(Arc<Node>),
    Outside,
}

/// A cluster with a pod and a server of the host's own on every node, and a server outside.
struct Site {
    stack: Stack,
    pods: Vec<PodHandle>,
    families: Families,
    servers: Vec<Process>,
}

impl Site {
    async fn start(mode: &str, families: Families) -> Result<Site> {
        let cluster = Cluster::builder().nodes(2).families(families).start().await?;
        let options = AgentOptions { gateway_mode: mode.to_owned(), ..AgentOptions::default() };
        Site::on(cluster, options).await
    }

    async fn on(cluster: Cluster, options: AgentOptions) -> Result<Site> {
        let families = cluster.families();
        let mut stack = Stack::without_agents(cluster, ApiChoice::Any).await?;
        stack.start_agents(options).await?;
        let pods = servers(&mut stack, 1).await?;
        let mut servers = Vec::new();
        for (address, _) in families.on_underlay(GATEWAY) {
            servers.push(stack.cluster().underlay().spawn(serve(address)?).await?);
        }
        for node in stack.cluster().nodes().to_vec() {
            for address in node.addresses() {
                servers.push(node.spawn(serve(address)?).await?);
            }
            ready(&node).await?;
        }
        Ok(Site { stack, pods, families, servers })
    }

    fn node(&self, number: u8) -> Place {
        Place::Node(self.stack.cluster().node(number).clone())
    }

    fn pod(&self, number: u8) -> Place {
        Place::Pod(self.pods[usize::from(number) - 1].clone())
    }

    /// Addresses on the underlay with this host part.
    fn on_underlay(&self, host: u8) -> Vec<IpAddr> {
        self.families.on_underlay(host).into_iter().map(|(address, _)| address).collect()
    }

    async fn exec(&self, from: &Place, argv: &[&str]) -> Result<String> {
        match from {
            Place::Pod(pod) => pod.exec(argv).await,
            Place::Node(node) => node.exec(argv).await,
            Place::Outside => self.stack.cluster().underlay().exec(argv).await,
        }
    }

    /// Fails unless the server at each of the addresses answers over TCP and UDP, to little and to much, and sees the
    /// asker under the address of the same place in `seen`.
    async fn reach(&self, what: &str, from: &Place, to: &[IpAddr], seen: &[IpAddr]) -> Result<()> {
        ensure!(!to.is_empty() && to.len() == seen.len(), "{what}: {to:?} and {seen:?}");
        let probe = probe()?;
        for (address, seen) in to.iter().zip(seen) {
            let largest = MTU - ANSWER - if address.is_ipv4() { 28 } else { 48 };
            for (protocol, bytes) in [("tcp", 1), ("tcp", 300_000), ("udp", 1), ("udp", largest)] {
                let (target, bytes) = (at(*address), bytes.to_string());
                let argv =
                    [&probe, protocol, &target, "--bytes", &bytes, "--tries", "10", "--timeout-ms", "1000"];
                let asked = self.exec(from, &argv).await;
                let answer = asked.with_context(|| format!("{what}: {protocol} {target}, {bytes} bytes"))?;
                let peer = answer.trim_start_matches("peer=").trim_start_matches('[');
                let port = [format!("{seen}:"), format!("{seen}]:")];
                ensure!(
                    port.iter().any(|port| peer.starts_with(port.as_str())),
                    "{what}: {target} saw {answer} and not {seen}"
                );
            }
        }
        Ok(())
    }

    /// Every way there is.
    async fn everything_is_reached(&self, mode: &str) -> Result<()> {
        let outside = self.on_underlay(GATEWAY);
        let [node1, node2] = [1, 2].map(|host| self.on_underlay(host));
        let [pod1, pod2] = [0, 1].map(|at: usize| addresses(&self.pods[at]));
        let own_port = management_addresses(self.stack.cluster().node(1)).await?;

        self.reach("pod to outside", &self.pod(1), &outside, &node1).await?;
        self.reach("pod of the other node to outside", &self.pod(2), &outside, &node2).await?;
        self.reach("pod to its node", &self.pod(1), &node1, &pod1).await?;
        self.reach("pod to the other node", &self.pod(1), &node2, &node1).await?;
        self.reach("pod to pod", &self.pod(1), &pod2, &pod1).await?;
        self.reach("node to its pod", &self.node(1), &pod1, &own_port).await?;
        self.reach("node to a pod of the other", &self.node(1), &pod2, &own_port).await?;
        self.reach("node to node", &self.node(1), &node2, &node1).await?;
        self.reach("node to outside", &self.node(1), &outside, &node1).await?;
        self.reach("outside to node", &Place::Outside, &node1, &outside).await?;
        let running = self.servers.iter().all(Process::is_running);
        ensure!(running, "a server ended in {mode} mode");
        Ok(())
    }

    /// Datagrams larger than a pod's interface: sent in pieces, and the answer is made to fit, because its sender is told.
    async fn too_large_for_a_pod(&self) -> Result<()> {
        let probe = probe()?;
        for address in self.on_underlay(GATEWAY) {
            let (target, bytes) = (at(address), TOO_LARGE.to_string());
            let argv = [&probe, "udp", &target, "--bytes", &bytes, "--tries", "10", "--timeout-ms", "1000"];
            let asked = self.exec(&self.pod(1), &argv).await;
            asked.with_context(|| format!("{bytes} bytes between a pod and {target}"))?;
        }
        Ok(())
    }
}

/// A server on one address of a host.
fn serve(address: IpAddr) -> Result<Program> {
    let argv = [probe()?.as_str(), "serve", "--from", &address.to_string()].map(str::to_owned).to_vec();
    Ok(Program { argv, ..Program::default() })
}

/// The addresses of the host on the pod network.
async fn management_addresses(node: &Node) -> Result<Vec<IpAddr>> {
    let text = node.exec(&["ip", "-o", "addr", "show", "dev", "ovn-k8s-mp0", "scope", "global"]).await?;
    let words = text.lines().filter_map(|line| line.split_whitespace().nth(3));
    Ok(words.filter_map(|net| net.split('/').next()?.parse().ok()).collect())
}

async fn in_and_out(mode: &str, families: Families) -> Result<()> {
    let site = Site::start(mode, families).await?;
    site.everything_is_reached(mode).await?;
    site.too_large_for_a_pod().await?;
    // What the gateway tells pods and outsiders must not make nodes believe that the way between them is narrow.
    for (from, to) in [(1, 2), (2, 1)] {
        for address in site.on_underlay(to) {
            let way = site.exec(&site.node(from), &["ip", "route", "get", &address.to_string()]).await?;
            ensure!(!way.contains("mtu"), "node{from}: {way}");
        }
    }
    site.stack.stop().await
}

/// The gateway bridge's uplink carries VLAN 100: a second switch on the node takes the tag off towards the underlay, and lets
/// nothing else pass.
async fn into_vlan(node: &Node) -> Result<()> {
    node.ip_batch("link add trunk0 type veth peer name uplink0\nlink set trunk0 up\nlink set uplink0 up\n")
        .await?;
    let lines = [
        "ovs-vsctl --timeout=20 del-port breth0 eth0",
        "ovs-vsctl --timeout=20 add-br brvlan -- add-port brvlan eth0 tag=100 -- add-port brvlan trunk0",
        "ovs-vsctl --timeout=20 add-port breth0 uplink0 -- set Bridge breth0 external_ids:bridge-uplink=uplink0",
        // The machine's own set-up: without it the node would not reach the API server.
        "ovs-vsctl --timeout=20 set Port breth0 tag=100",
    ];
    for line in lines {
        let mut argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if line.contains("add-br") {
            let kind = match Datapath::chosen() {
                Datapath::Userspace => "datapath_type=netdev",
                Datapath::Kernel => "datapath_type=system",
            };
            argv.extend(["--", "set", "Bridge", "brvlan", kind].map(str::to_owned));
        }
        node.ovn(&argv).await?;
    }
    if Datapath::chosen() == Datapath::Userspace {
        for device in ["trunk0", "uplink0"] {
            node.exec(&["ethtool", "-K", device, "tx", "off"]).await?;
        }
        // The kernel sees what comes in on the card beside the switches.
        let deaf =
            "table inet lab { chain deaf { type filter hook prerouting priority raw; iifname eth0 drop; }; }";
        node.exec(&["nft", deaf]).await?;
    }
    Ok(())
}

/// In shared mode: the flags refuse a VLAN in local mode, where the host's own set-up does it.
#[test]
fn nodes_in_a_vlan() -> Result<()> {
    run(async {
        let cluster = Cluster::builder().nodes(2).families(Families::Dual).start().await?;
        for node in cluster.nodes() {
            into_vlan(node).await?;
        }
        let extra = vec!["--gateway-vlanid=100".to_owned()];
        let site = Site::on(cluster, AgentOptions { extra, ..AgentOptions::default() }).await?;
        site.everything_is_reached("shared").await?;
        site.stack.stop().await
    })
}

#[test]
fn the_mtu_follows_from_the_uplink_unless_it_is_given() -> Result<()> {
    run(async {
        const NARROW: u32 = 1380;
        let cluster = Cluster::builder().nodes(2).families(Families::Dual).start().await?;
        for node in cluster.nodes() {
            node.exec(&["ip", "link", "set", "eth0", "mtu", &NARROW.to_string()]).await?;
            eventually("the bridge to be as narrow as its uplink", async || {
                let link = node.exec(&["ip", "link", "show", "breth0"]).await?;
                ensure!(link.contains(&format!("mtu {NARROW} ")), "{link}");
                Ok(())
            })
            .await?;
        }
        let mut site = Site::on(cluster, AgentOptions { mtu: None, ..AgentOptions::default() }).await?;
        let link = site.exec(&site.pod(1), &["ip", "link", "show", "eth0"]).await?;
        ensure!(link.contains("mtu 1302 "), "1380 less 78 for Geneve and IPv6: {link}");
        let [pod1, pod2] = [0, 1].map(|at: usize| addresses(&site.pods[at]));
        let probe = probe()?;
        for address in &pod2 {
            let full = 1302 - ANSWER - if address.is_ipv4() { 28 } else { 48 };
            let (target, bytes) = (at(*address), full.to_string());
            let argv = [&probe, "udp", &target, "--bytes", &bytes, "--tries", "10", "--timeout-ms", "1000"];
            site.exec(&site.pod(1), &argv).await.with_context(|| format!("{full} bytes, {pod1:?}"))?;
        }
        // One that was given and does not fit is refused, with what would.
        let node = site.stack.cluster().node(1).clone();
        let agents = site.stack.agents()?;
        agents.nodes[node.name()].terminate().await?;
        let mut program = agents.node_program(&node)?;
        program.argv.push("--mtu=1400".to_owned());
        program.log = None;
        let end = node.spawn(program).await?.wait().await?;
        ensure!(end.code == Some(1), "{end:?}");
        for part in ["1400", "1380", "1302", "breth0"] {
            ensure!(end.stderr.contains(part), "{part} is not in {}", end.stderr);
        }
        site.stack.stop().await
    })
}

#[test]
fn while_the_mtu_is_migrated_routes_keep_packets_small() -> Result<()> {
    run(async {
        let cluster = Cluster::builder().nodes(2).families(Families::Dual).start().await?;
        let extra = vec!["--routable-mtu=1290".to_owned()];
        let site = Site::on(cluster, AgentOptions { extra, ..AgentOptions::default() }).await?;
        let narrow = async |from: &Place, to: &[IpAddr]| {
            for address in to {
                let way = site.exec(from, &["ip", "route", "get", &address.to_string()]).await?;
                ensure!(way.contains("mtu 1290"), "{way}");
            }
            Ok::<_, anyhow::Error>(())
        };
        let pod2 = addresses(&site.pods[1]);
        narrow(&site.pod(1), &site.on_underlay(GATEWAY)).await?;
        narrow(&site.pod(1), &pod2).await?;
        narrow(&site.node(1), &pod2).await?;
        let link = site.exec(&site.pod(1), &["ip", "link", "show", "eth0"]).await?;
        ensure!(link.contains("mtu 1342 "), "what comes in may be larger: {link}");
        site.everything_is_reached("shared").await?;
        site.stack.stop().await
    })
}

/// Everything that follows from a node's address, once it has changed.
async fn follows(site: &Site, new: &str, old: &str) -> Result<()> {
    let node = site.stack.cluster().node(1).clone();
    eventually(&format!("{new} everywhere"), async || {
        let object = lab::get(&site.stack, "/api/v1/nodes/node1").await?;
        for key in ["l3-gateway-config", "host-cidrs", "node-primary-ifaddr", "node-encap-ips"] {
            let text = object["metadata"]["annotations"][format!("k8s.ovn.org/{key}")].to_string();
            ensure!(text.contains(new) && !text.contains(old), "{key} is {text}");
        }
        let nat = node.ovn(&["ovn-nbctl", "lr-nat-list", "GR_node1"]).await?;
        ensure!(nat.contains(new) && !nat.contains(old), "{nat}");
        let encap = ["ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:ovn-encap-ip"];
        let encap = node.ovn(&encap).await?;
        ensure!(encap.contains(new), "{encap}");
        let chassis = node
            .ovn(&[
                "ovn-sbctl",
                "--columns=ip",
                "find",
                "Encap",
                "chassis_name=00000000-0000-4000-8000-000000000001",
            ])
            .await?;
        ensure!(chassis.contains(new) && !chassis.contains(old), "{chassis}");
        let flows = node.ovn(&["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "breth0"]).await?;
        ensure!(flows.contains(new) && !flows.contains(&format!("{old},")), "{flows}");
        Ok(())
    })
    .await
}

/// A node gets another address: the Node object first or, in the long form, the interface; and the default route with it.
#[test]
fn a_node_that_gets_another_address_is_followed() -> Result<()> {
    run(async {
        let cluster = Cluster::builder().nodes(2).families(Families::V4).start().await?;
        let site = Site::on(cluster, AgentOptions { encap_ip: false, ..AgentOptions::default() }).await?;
        let node = site.stack.cluster().node(1).clone();
        let readdress = async |from: &str, to: &str| {
            let lines = format!(
                "address del {from}/24 dev breth0\naddress add {to}/24 dev breth0\n\
                 route replace default via 172.18.0.254 dev breth0\n"
            );
            node.ip_batch(&lines).await
        };
        let register = async |address: &str| {
            let object = devcluster::api::mk_node("node1", &[address.parse::<IpAddr>()?]);
            devcluster::api::apply_status(&site.stack.api().client(), &object).await
        };
        let reaches = async |address: &str| {
            let outside = at(site.on_underlay(GATEWAY)[0]);
            let probe = probe()?;
            eventually("the outside sees the new address", async || {
                let said =
                    site.exec(&site.pod(1), &[&probe, "tcp", &outside, "--timeout-ms", "1000"]).await?;
                ensure!(said.contains(&format!("peer={address}:")), "{said}");
                Ok(())
            })
            .await?;
            lab::all_talk(&site.pods).await
        };
        register("172.18.0.31").await?;
        readdress("172.18.0.1", "172.18.0.31").await?;
        follows(&site, "172.18.0.31", "172.18.0.1").await?;
        reaches("172.18.0.31").await?;
        // In the other order the watch of the Node is on a connection of the old address, and that takes time to be found.
        if std::env::var_os("GATEWAY_LONG").is_some() {
            readdress("172.18.0.31", "172.18.0.32").await?;
            register("172.18.0.32").await?;
            follows(&site, "172.18.0.32", "172.18.0.31").await?;
            reaches("172.18.0.32").await?;
        }
        site.stack.stop().await
    })
}

#[test]
fn shared_mode_over_ipv4() -> Result<()> {
    run(in_and_out("shared", Families::V4))
}

#[test]
fn shared_mode_over_ipv6() -> Result<()> {
    run(in_and_out("shared", Families::V6))
}

#[test]
fn local_mode_over_ipv4() -> Result<()> {
    run(in_and_out("local", Families::V4))
}

#[test]
fn local_mode_over_ipv6() -> Result<()> {
    run(in_and_out("local", Families::V6))
}

#[test]
fn both_families_in_both_modes() -> Result<()> {
    run(async {
        in_and_out("shared", Families::Dual).await.context("shared")?;
        in_and_out("local", Families::Dual).await.context("local")
    })
}

#[test]
fn plain_network_cards_become_uplinks_while_the_nodes_stay_reachable() -> Result<()> {
    run(async {
        let families = Families::Dual;
        let cluster = Cluster::builder().nodes(2).families(families).start().await?;
        for node in cluster.nodes() {
            without_bridge(node, families).await?;
        }
        let options = AgentOptions { gateway_interface: String::new(), ..AgentOptions::default() };
        let pings = Pings::on(cluster.underlay(), "172.18.0.1".parse()?).await?;
        pings.more(1).await?;
        let site = Site::on(cluster, options).await?;
        let count = pings.end().await?;
        // The moment the switch needs to take the card, and not again and again.
        ensure!(count.gaps <= 1, "the node came and went: {count:?}");
        site.everything_is_reached("shared").await?;
        let node = site.stack.cluster().node(1);
        ensure!(node.ovn(&["ovs-vsctl", "port-to-br", "eth0"]).await?.trim() == "breth0");
        let left = node.exec(&["ip", "-br", "addr", "show", "dev", "eth0", "scope", "global"]).await?;
        ensure!(!left.contains("172.18"), "{left}");
        site.stack.stop().await
    })
}

#[test]
fn a_thousand_connections_at_once() -> Result<()> {
    run(async {
        for mode in ["shared", "local"] {
            let site = Site::start(mode, Families::V4).await?;
            let probe = probe()?;
            let outside = at(site.on_underlay(GATEWAY)[0]);
            let argv = [&probe, "many", &outside, "--count", "1000", "--timeout-ms", "20000"];
            let answer = site.exec(&site.pod(1), &argv).await.with_context(|| mode.to_owned())?;
            ensure!(answer.contains("bytes=1000"), "{answer}");
            site.stack.stop().await?;
        }
        Ok(())
    })
}

/// A host behind a router whose link to it takes smaller packets than the rest of the way: the router tells the pod.
async fn far_away(mode: &str) -> Result<()> {
    let site = Site::start(mode, Families::Dual).await?;
    let underlay = site.stack.cluster().underlay();
    underlay.exec(&["ip", "netns", "add", "far"]).await?;
    let lines = "link add far type veth peer name eth0 netns far\n\
                 link set far mtu 1280 up\n\
                 address add 192.0.2.1/24 dev far\naddress add 2001:db8::1/64 dev far nodad\n";
    underlay.ip_batch(lines).await?;
    for line in [
        "link set eth0 mtu 1280 up",
        "address add 192.0.2.2/24 dev eth0",
        "address add 2001:db8::2/64 dev eth0 nodad",
        "route add default via 192.0.2.1",
        "route add default via 2001:db8::1",
    ] {
        let argv: Vec<&str> = ["ip", "-n", "far"].into_iter().chain(line.split(' ')).collect();
        underlay.exec(&argv).await?;
    }
    // Checksums must be in the packets that a switch in userspace takes as they are.
    underlay.exec(&["ip", "netns", "exec", "far", "ethtool", "-K", "eth0", "tx", "off"]).await?;
    for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
        underlay.exec(&["sysctl", "-qw", setting]).await?;
    }
    let argv = ["ip", "netns", "exec", "far", &probe()?, "serve"].map(str::to_owned).to_vec();
    let server = underlay.spawn(Program { argv, ..Program::default() }).await?;
    for target in ["192.0.2.2:8080", "[2001:db8::2]:8080"] {
        let probe = probe()?;
        let listens = [&probe, "tcp", target, "--timeout-ms", "1000"];
        eventually("the far server", async || underlay.exec(&listens).await).await?;
        // Open vSwitch's userspace connection tracking spoils the MTU in what ICMPv6 says of translated connections; TCP
        // finds its way all the same.
        let spoilt = target.starts_with('[') && Datapath::chosen() == Datapath::Userspace;
        let datagram = if spoilt { "1" } else { "1270" };
        for (protocol, bytes) in [("udp", "1"), ("tcp", "300000"), ("udp", datagram)] {
            let argv = [&probe, protocol, target, "--bytes", bytes, "--tries", "5", "--timeout-ms", "3000"];
            let asked = site.exec(&site.pod(1), &argv).await;
            asked.with_context(|| format!("{mode}: {protocol} {target}, {bytes} bytes"))?;
        }
    }
    ensure!(server.is_running());
    let learned = site.exec(&site.pod(1), &["ip", "route", "get", "192.0.2.2"]).await?;
    ensure!(learned.contains("mtu 1280"), "nobody told the pod: {learned}");
    site.stack.stop().await
}

#[test]
fn a_narrow_link_far_away_is_told_to_pods() -> Result<()> {
    run(async {
        far_away("shared").await?;
        far_away("local").await
    })
}

#[test]
fn flows_as_recorded_in_every_mode() -> Result<()> {
    run(async {
        let recorded = [
            ("shared", Families::V4, include_str!("../../node/tests/data/shared.flows.txt")),
            ("local", Families::V4, include_str!("../../node/tests/data/local.flows.txt")),
            ("shared", Families::Dual, include_str!("../../node/tests/data/dual.flows.txt")),
        ];
        for (mode, families, recorded) in recorded {
            let site = Site::start(mode, families).await?;
            let node = site.stack.cluster().node(1).clone();
            let [card, patch] = ["eth0", "patch-breth0_node1-to-br-int"];
            let mut ports = Vec::new();
            for (name, recorded) in [(card, "1"), (patch, "2")] {
                let number = node.ovn(&["ovs-vsctl", "get", "Interface", name, "ofport"]).await?;
                ports.push((number.trim().to_owned(), recorded));
            }
            ensure!(ports.iter().all(|(number, recorded)| number == recorded), "other numbers: {ports:?}");
            let dump = ["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "--no-names", "dump-flows", "breth0"];
            let flows = node.ovn(&dump).await?;
            let present: BTreeSet<&str> =
                flows.lines().map(str::trim).filter(|l| l.contains("actions=")).collect();
            // In userspace pieces of packets pass the reassembly once.
            let once = |line: &str| match Datapath::chosen() {
                Datapath::Kernel => line.to_owned(),
                Datapath::Userspace => line.replace("priority=110,ip", "priority=110,ct_state=-trk,ip"),
            };
            let recorded: BTreeSet<String> = recorded.lines().map(|line| once(line.trim())).collect();
            let recorded: BTreeSet<&str> = recorded.iter().map(String::as_str).collect();
            ensure!(
                present == recorded,
                "{mode}, {families:?}: missing {:#?}, more {:#?}",
                recorded.difference(&present).collect::<Vec<_>>(),
                present.difference(&recorded).collect::<Vec<_>>()
            );
            site.stack.stop().await?;
        }
        Ok(())
    })
}

/// A second network on node1, reached by `eth1`, with a host that has a server and knows the way back.
async fn second_network(node: &Node) -> Result<Process> {
    node.exec(&["ip", "netns", "add", "beyond"]).await?;
    node.ip_batch("link add eth1 type veth peer name far0 netns beyond\nlink set eth1 up\n").await?;
    node.ip_batch("address add 192.0.2.1/24 dev eth1\n").await?;
    for line in ["link set far0 up", "address add 192.0.2.9/24 dev far0", "route add default via 192.0.2.1"] {
        let argv: Vec<&str> = ["ip", "-n", "beyond"].into_iter().chain(line.split(' ')).collect();
        node.exec(&argv).await?;
    }
    node.exec(&["ip", "netns", "exec", "beyond", "ethtool", "-K", "far0", "tx", "off"]).await?;
    let argv = ["ip", "netns", "exec", "beyond", &probe()?, "serve"].map(str::to_owned).to_vec();
    node.spawn(Program { argv, ..Program::default() }).await
}

/// Where a second bridge leaves its marks.
async fn traces_of_second(stack: &Stack, node: &Node) -> Result<String> {
    let object = lab::get(stack, "/api/v1/nodes/node1").await?;
    let mut text = object["metadata"]["annotations"]["k8s.ovn.org/l3-gateway-config"].to_string();
    for rows in ["Logical_Switch", "Logical_Switch_Port", "Logical_Router_Port"] {
        text += &node.ovn(&["ovn-nbctl", "--columns=name", "list", rows]).await?;
    }
    let mapping = ["ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"];
    text += &node.ovn(&mapping).await?;
    text += &node.ovn(&["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "breth1"]).await?;
    Ok(text)
}

#[test]
fn a_second_bridge_leads_to_another_network_and_goes_when_it_is_not_wanted() -> Result<()> {
    run(async {
        let cluster = Cluster::builder().nodes(1).families(Families::V4).start().await?;
        let node = cluster.node(1).clone();
        let server = second_network(&node).await?;
        let mut stack = Stack::without_agents(cluster, ApiChoice::Any).await?;
        let extra = vec!["--exgw-interface=eth1".to_owned()];
        stack.start_agents(AgentOptions { extra, ..AgentOptions::default() }).await?;
        let pods = servers(&mut stack, 1).await?;
        ready(&node).await?;
        let probe = probe()?;
        let ask = [&probe, "tcp", "192.0.2.9:8080", "--bytes", "300000", "--timeout-ms", "1000"];
        let answer = eventually("an answer from the second network", async || pods[0].exec(&ask).await);
        let answer = answer.await?;
        ensure!(answer.contains("peer=172.18.0.1:"), "{answer}");
        node.exec(&["ping", "-c1", "-W5", "192.0.2.9"]).await?;
        let text = traces_of_second(&stack, &node).await?;
        let marks = [
            r#"exgw-interface-id\":\"breth1_node1"#,
            "exgw-ext_node1",
            "exgw-rtoe-GR_node1",
            "exgw-etor-GR_node1",
            "exgwphysnet:breth1",
            "cookie=0xdeff105",
        ];
        for mark in marks {
            ensure!(text.contains(mark), "{mark} is not in {text}");
        }
        ensure!(server.is_running());
        stack.restart_agents(AgentOptions::default()).await?;
        ready(&node).await?;
        eventually("nothing of the second bridge is left", async || {
            let text = traces_of_second(&stack, &node).await?;
            ensure!(marks.iter().all(|mark| !text.contains(mark)), "{text}");
            Ok(())
        })
        .await?;
        node.exec(&["ping", "-c1", "-W5", "192.0.2.9"]).await?;
        stack.stop().await
    })
}

#[test]
fn the_first_packets_to_the_outside_of_a_new_node_arrive() -> Result<()> {
    run(async {
        for (mode, families) in [("shared", Families::V4), ("shared", Families::V6), ("local", Families::V4)]
        {
            let cluster = Cluster::builder().nodes(1).families(families).start().await?;
            let options = AgentOptions { gateway_mode: mode.to_owned(), ..AgentOptions::default() };
            let mut stack = Stack::without_agents(cluster, ApiChoice::Any).await?;
            stack.start_agents(options).await?;
            let pods = servers(&mut stack, 1).await?;
            // OVN's own: an ovn-controller that comes before its bridge tries again after a second, and without its
            // four connections (one takes packets in) a router learns no neighbours.
            let log = stack.cluster().node(1).outside("/var/log/ovn/ovn-controller.log");
            eventually("ovn-controller's connections to the switch", async || {
                let text = std::fs::read_to_string(&log)?;
                let connected = text.lines().filter(|line| line.ends_with("br-int.mgmt: connected")).count();
                ensure!(connected >= 4, "{connected} of 4");
                Ok(())
            })
            .await?;
            for (outside, _) in families.on_underlay(GATEWAY) {
                let ping = ["ping", "-c1", "-W10", &outside.to_string()];
                let said = pods[0].exec(&ping).await;
                said.with_context(|| format!("{mode}: the first ping of all to {outside}"))?;
            }
            stack.stop().await?;
        }
        Ok(())
    })
}

#[test]
fn restarts_of_the_agent_lose_nothing() -> Result<()> {
    run(async {
        let mut site = Site::start("shared", Families::V4).await?;
        let outside = site.on_underlay(GATEWAY)[0];
        // OVN tells nobody when it has finished with a new node's gateway router.
        eventually("the way to the outside", async || {
            site.pods[0].exec(&["ping", "-c1", "-W1", &outside.to_string()]).await
        })
        .await?;
        let pings = Pings::start(&site.pods[0], outside).await?;
        for _ in 0..20 {
            site.stack.restart_agent(1).await?;
            ready(site.stack.cluster().node(1)).await?;
        }
        let count = pings.end().await?;
        ensure!(count.lost == 0, "pings were lost: {count:?}");
        site.stack.stop().await
    })
}

#[test]
fn a_restarted_switch_gets_its_flows_back() -> Result<()> {
    run(async {
        let site = Site::start("shared", Families::V4).await?;
        let node = site.stack.cluster().node(1).clone();
        let switch = node.daemon(devcluster::Daemon::Vswitchd).context("no switch")?;
        switch.kill9().await?;
        node.start_daemon(devcluster::Daemon::Vswitchd).await?;
        eventually("the flows", async || {
            let flows = node.ovn(&["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "breth0"]).await?;
            ensure!(flows.contains("cookie=0xdeff105"), "{flows}");
            Ok(())
        })
        .await?;
        site.stack.stop().await
    })
}
