//! The whole agent against real Open vSwitch and a real kernel, verified with the text of `ip` and `ovs-vsctl`. What
//! OVN would do is done by the test; the CNI server has tests of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod gateway;
mod identity;
mod machine;
mod ovn;
mod services;
mod takeover;

use std::time::Duration;

use node::{Awaited, NodeError, Settings, Status};
use serde_json::json;
use tokio::task::{JoinHandle, LocalSet};
use tokio_util::sync::CancellationToken;

use api::Api;
use machine::{Machine, eventually};
use ovn::Ovn;

const SUBNETS: &str = "k8s.ovn.org/node-subnets";

/// An agent that runs until it is stopped.
struct Agent {
    status: Status,
    cancel: CancellationToken,
    task: JoinHandle<Result<(), NodeError>>,
}

impl Agent {
    fn start(settings: Settings, api: &Api) -> Agent {
        let (status, cancel) = (Status::new(), CancellationToken::new());
        let conf = node::conf_file::path(&settings.cni_conf);
        let before = conf.exists();
        let run = node::run_with(
            settings,
            api.kube(),
            node::Boards::default(),
            status.clone(),
            cancel.clone(),
            move |_shared| async move {
                assert_eq!(conf.exists(), before, "the file comes after the server");
                Ok(std::future::pending::<NodeError>())
            },
        );
        Agent { status, cancel, task: tokio::task::spawn_local(run) }
    }

    async fn ready(&self) {
        let waited = tokio::time::timeout(Duration::from_secs(30), self.status.wait_ready()).await;
        assert!(waited.is_ok(), "not ready: {:?}", self.status.ready());
    }

    async fn awaiting(&self, wanted: impl Fn(&Awaited) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(30), self.status.wait_awaiting(wanted)).await;
        assert!(waited.is_ok(), "not waiting for that: {:?}", self.status.ready());
    }

    async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap().unwrap();
    }

    async fn end(self) -> NodeError {
        tokio::time::timeout(Duration::from_secs(30), self.task).await.unwrap().unwrap().unwrap_err()
    }
}

/// Runs a test on the thread that is in the machine's namespace.
fn on<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

fn registered() -> Api {
    let api = Api::default();
    api.register("uid-1", "172.18.0.1", json!({ SUBNETS: r#"{"default":["10.244.0.0/24"]}"# }));
    api
}

/// A machine whose agent is ready.
async fn ready_node(machine: &Machine, api: &Api) -> Agent {
    let agent = Agent::start(machine.settings(), api);
    agent.awaiting(|awaited| matches!(awaited, Awaited::Installed { .. })).await;
    machine.install_port();
    agent.ready().await;
    agent
}

/// Lines of `ip` about our interface and table, without what differs between kernels.
fn host_state(machine: &Machine) -> String {
    let routes = machine.ip("route show table all");
    let ours: Vec<&str> = routes
        .lines()
        .filter(|line| {
            line.contains("ovn-k8s-mp0") && !line.contains("table local") && !line.contains("fe80")
        })
        .map(str::trim)
        .collect();
    let rules = machine.ip("rule show");
    let rules: Vec<&str> = rules.lines().filter(|line| line.contains("0x1745ec")).collect();
    let neighbours = machine.ip("neigh show dev ovn-k8s-mp0 nud permanent");
    format!("{}\n{}\n{}", ours.join("\n"), rules.join("\n"), neighbours.trim())
}

#[test]
fn a_node_is_set_up_as_recorded_and_a_second_run_writes_nothing() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        let agent = ready_node(&machine, &api).await;

        let state = host_state(&machine);
        assert_eq!(
            state.lines().map(str::trim).collect::<Vec<_>>(),
            [
                "10.96.0.0/16 via 10.244.0.1 dev ovn-k8s-mp0 table 7",
                "10.244.0.0/24 dev ovn-k8s-mp0 proto kernel scope link src 10.244.0.2",
                "10.244.0.0/16 via 10.244.0.1 dev ovn-k8s-mp0",
                "169.254.169.3 via 10.244.0.1 dev ovn-k8s-mp0",
                "30:\tfrom all fwmark 0x1745ec lookup 7",
                "10.244.0.1 lladdr 0a:58:0a:f4:00:01 PERMANENT",
            ]
        );
        let link = machine.ip("link show ovn-k8s-mp0");
        assert!(link.contains("0a:58:0a:f4:00:02") && link.contains("mtu 1342"), "{link}");
        assert!(machine.ip("-br addr show ovn-k8s-mp0").contains("10.244.0.2/24"));
        assert!(
            machine.offloads("ovn-k8s-mp0").contains("tx-checksumming: off"),
            "the datapath is in userspace"
        );
        assert_eq!(machine.vsctl("get Interface ovn-k8s-mp0 external_ids:iface-id"), "k8s-node1");
        assert_eq!(machine.vsctl("port-to-br ovn-k8s-mp0"), "br-int");
        assert_eq!(machine.vsctl("get Bridge br-int fail_mode datapath_type"), "secure\nnetdev");
        let recorded = [
            ("hostname", "node1"),
            ("ovn-encap-ip", "\"172.18.0.1\""),
            ("ovn-encap-type", "geneve"),
            ("ovn-is-interconn", "\"true\""),
            ("ovn-monitor-all", "\"true\""),
            ("ovn-remote-probe-interval", "\"180000\""),
            ("ovn-bridge-datapath-type", "netdev"),
        ];
        for (key, value) in recorded {
            assert_eq!(machine.vsctl(&format!("get Open_vSwitch . external_ids:{key}")), value, "{key}");
        }
        let remote = machine.vsctl("get Open_vSwitch . external_ids:ovn-remote");
        assert_eq!(remote, format!("{:?}", machine.settings().ovn_remote));
        let system_id = machine.vsctl("get Open_vSwitch . external_ids:system-id").replace('"', "");
        assert_eq!(std::fs::read_to_string(machine.path("system-id.conf")).unwrap().trim(), system_id);
        let annotations = [
            ("host-cidrs", r#"["172.18.0.1/24"]"#),
            ("node-primary-ifaddr", r#"{"ipv4":"172.18.0.1/24"}"#),
            ("node-encap-ips", r#"["172.18.0.1"]"#),
            ("node-masquerade-subnet", r#"{"ipv4":"169.254.169.0/29","ipv6":"fd69::/125"}"#),
            ("layer2-topology-version", "2.0"),
            ("node-chassis-id", system_id.as_str()),
            (
                "l3-gateway-config",
                r#"{"default":{"mode":"shared","bridge-id":"breth0","interface-id":"breth0_node1","mac-address":"02:42:ac:12:00:01","ip-addresses":["172.18.0.1/24"],"ip-address":"172.18.0.1/24","next-hops":["172.18.0.254"],"next-hop":"172.18.0.254","node-port-enable":"true","vlan-id":"0"}}"#,
            ),
        ];
        for (key, value) in annotations {
            assert_eq!(api.annotation(&format!("k8s.ovn.org/{key}")).as_deref(), Some(value), "{key}");
        }
        assert_eq!(api.annotation("k8s.ovn.org/gateway-mtu-support"), None);
        assert_eq!(api.patches(), 1, "all annotations in one patch");
        assert!(machine.path("net.d/10-ovn-kubernetes.conf").exists());

        agent.stop().await;
        assert!(
            machine.path("net.d/10-ovn-kubernetes.conf").exists(),
            "a restart must not take the node away"
        );
        let (transactions, patches) = (machine.transactions(), api.patches());
        let monitor = machine.monitor_host();
        let agent = Agent::start(machine.settings(), &api);
        agent.ready().await;
        agent.stop().await;
        assert_eq!(machine.transactions(), transactions, "a second run writes nothing to the database");
        assert_eq!(api.patches(), patches, "nor to the API");
        assert_eq!(monitor.stop(), "", "nor to the kernel");
    });
}

#[test]
fn whatever_somebody_removes_comes_back() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        let agent = ready_node(&machine, &api).await;
        let state = host_state(&machine);
        for damage in [
            "addr flush dev ovn-k8s-mp0",
            "route del 10.244.0.0/16",
            "route flush table 7",
            "link set ovn-k8s-mp0 down",
            "addr add 192.0.2.1/24 dev ovn-k8s-mp0",
        ] {
            machine.ip(damage);
            eventually(damage, || {
                host_state(&machine) == state && machine.ip("link show ovn-k8s-mp0").contains("UP")
            })
            .await;
        }
        machine.vsctl("set Open_vSwitch . external_ids:ovn-monitor-all=false external_ids:mine=1");
        eventually("our key is corrected", || {
            machine.vsctl("get Open_vSwitch . external_ids:ovn-monitor-all") == "\"true\""
        })
        .await;
        assert_eq!(machine.vsctl("get Open_vSwitch . external_ids:mine"), "\"1\"");
        machine.vsctl("del-port ovn-k8s-mp0");
        agent.awaiting(|awaited| matches!(awaited, Awaited::Installed { .. })).await;
        machine.install_port();
        eventually("the port is made again", || {
            machine.ip("-br link").contains("ovn-k8s-mp0") && host_state(&machine) == state
        })
        .await;
        agent.stop().await;
    });
}

#[test]
fn each_wait_is_named_and_ends_by_itself() {
    let mut machine = Machine::start().with_gateway_bridge();
    machine.stop_ovsdb();
    on(async {
        let api = Api::default();
        let agent = Agent::start(machine.settings(), &api);
        agent.awaiting(|awaited| matches!(awaited, Awaited::OpenVswitch { .. })).await;
        assert!(agent.status.ready().unwrap_err().contains("db.sock"));
        machine.start_ovsdb();
        agent.awaiting(|awaited| *awaited == Awaited::NodeObject).await;
        machine.stop_vswitchd();
        api.register("uid-1", "172.18.0.1", json!({}));
        agent.awaiting(|awaited| *awaited == Awaited::NodeSubnets).await;
        eventually("annotations do not wait for subnets", || {
            api.annotation("k8s.ovn.org/node-chassis-id").is_some()
        })
        .await;
        api.annotate(SUBNETS, r#"{"default":["10.244.0.0/24"]}"#);
        agent.awaiting(|awaited| matches!(awaited, Awaited::Interface { .. })).await;
        machine.start_vswitchd();
        agent.awaiting(|awaited| matches!(awaited, Awaited::Installed { .. })).await;
        assert!(!machine.path("net.d/10-ovn-kubernetes.conf").exists());
        machine.install_port();
        agent.ready().await;
        agent.stop().await;
    });
}

#[test]
fn a_moved_and_a_recreated_node_are_followed() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        let agent = ready_node(&machine, &api).await;
        machine.ip("addr add 172.18.0.9/24 dev breth0");
        api.move_to("172.18.0.9");
        eventually("the tunnel address follows", || {
            machine.vsctl("get Open_vSwitch . external_ids:ovn-encap-ip") == "\"172.18.0.9\""
                && api.annotation("k8s.ovn.org/node-encap-ips").as_deref() == Some(r#"["172.18.0.9"]"#)
                && api.annotation("k8s.ovn.org/node-primary-ifaddr").as_deref()
                    == Some(r#"{"ipv4":"172.18.0.9/24"}"#)
                && api.annotation("k8s.ovn.org/host-cidrs").as_deref()
                    == Some(r#"["172.18.0.1/24","172.18.0.9/24"]"#)
        })
        .await;
        let chassis = api.annotation("k8s.ovn.org/node-chassis-id");
        api.delete();
        agent.awaiting(|awaited| *awaited == Awaited::NodeObject).await;
        api.register("uid-2", "172.18.0.9", json!({ SUBNETS: r#"{"default":["10.244.7.0/24"]}"# }));
        eventually("the new Node is annotated and its subnet used", || {
            api.annotation("k8s.ovn.org/node-chassis-id") == chassis
                && machine.ip("-br addr show ovn-k8s-mp0").contains("10.244.7.2/24")
        })
        .await;
        eventually("nothing of the old subnet is left", || !host_state(&machine).contains("10.244.0.1"))
            .await;
        agent.ready().await;
        agent.stop().await;
    });
}

#[test]
fn what_cannot_work_is_refused_with_a_cure() {
    let mut machine = Machine::start().with_gateway_bridge();
    on(async {
        let mut settings = machine.settings();
        settings.mtu = 1500;
        let error = Agent::start(settings, &registered()).end().await.to_string();
        assert!(error.contains("breth0") && error.contains("1558") && error.contains("1442"), "{error}");
    });
    machine.stop_ovsdb();
    on(async {
        let mut settings = machine.settings();
        settings.ovs_wait = Duration::from_millis(300);
        let error = Agent::start(settings, &registered()).end().await.to_string();
        assert!(error.contains("db.sock") && error.contains("start it"), "{error}");
    });
    machine.downgrade_schema("mtu_request");
    on(async {
        let error = Agent::start(machine.settings(), &registered()).end().await.to_string();
        assert!(error.contains("Interface.mtu_request") && error.contains("too old"), "{error}");
    });
}

#[test]
fn a_dual_stack_node_is_set_up_as_recorded() {
    let machine = Machine::start().with_gateway_bridge();
    machine.ip("addr add fd00:172:18::1/64 dev breth0 nodad");
    machine.ip("-6 route add default via fd00:172:18::254");
    let mut settings = machine.settings();
    settings.cluster_subnets.push("fd00:10:244::/48".parse().unwrap());
    settings.service_cidrs.push("fd00:10:96::/112".parse().unwrap());
    on(async {
        let api = Api::default();
        let subnets = r#"{"default":["10.244.0.0/24","fd00:10:244:1::/64"]}"#;
        api.register("uid-1", "172.18.0.1", json!({ SUBNETS: subnets }));
        let agent = Agent::start(settings, &api);
        agent.awaiting(|awaited| matches!(awaited, Awaited::Installed { .. })).await;
        machine.install_port();
        agent.ready().await;
        let routes = machine.ip("-6 route show table all");
        for route in [
            "fd00:10:96::/112 via fd00:10:244:1::1 dev ovn-k8s-mp0 table 7 metric 1024",
            "fd00:10:244:1::/64 dev ovn-k8s-mp0 proto kernel metric 256",
            "fd00:10:244::/48 via fd00:10:244:1::1 dev ovn-k8s-mp0 metric 1024",
            "fd69::3 via fd00:10:244:1::1 dev ovn-k8s-mp0 metric 1024",
        ] {
            assert!(routes.contains(route), "{route} is not in\n{routes}");
        }
        let neighbours = machine.ip("neigh show dev ovn-k8s-mp0 nud permanent");
        assert!(neighbours.contains("fd00:10:244:1::1 lladdr 0a:58:0a:f4:00:01 PERMANENT"), "{neighbours}");
        assert!(machine.ip("-6 rule show").contains("30:\tfrom all fwmark 0x1745ec lookup 7"));
        let addresses = machine.ip("-6 addr show dev ovn-k8s-mp0");
        assert!(addresses.contains("fd00:10:244:1::2/64 scope global nodad"), "{addresses}");
        assert!(addresses.contains("fe80::858:aff:fef4:2"), "{addresses}");
        assert_eq!(
            api.annotation("k8s.ovn.org/node-primary-ifaddr").as_deref(),
            Some(r#"{"ipv4":"172.18.0.1/24","ipv6":"fd00:172:18::1/64"}"#)
        );
        let gateway = api.annotation("k8s.ovn.org/l3-gateway-config").unwrap();
        assert!(gateway.contains(r#""next-hops":["172.18.0.254","fd00:172:18::254"]"#), "{gateway}");
        let monitor = machine.monitor_host();
        // Going down takes all IPv6 addresses and routes along.
        machine.ip("link set ovn-k8s-mp0 down");
        let whole = ["10.244.0.2/24", "fd00:10:244:1::2/64"];
        eventually("the addresses are back", || {
            let now = machine.ip("addr show dev ovn-k8s-mp0");
            whole.iter().all(|address| now.contains(address))
                && machine.ip("-6 route show").contains("fd00:10:244::/48 via fd00:10:244:1::1")
        })
        .await;
        assert!(!monitor.stop().is_empty());
        agent.stop().await;
    });
}

#[test]
fn with_its_cni_server_the_agent_listens_before_it_says_so_and_ends_cleanly() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        let (status, cancel) = (Status::new(), CancellationToken::new());
        let run = node::run(
            machine.settings(),
            api.kube(),
            node::Boards::default(),
            node::Hooks::default(),
            status.clone(),
            cancel.clone(),
        );
        let agent = Agent { status, cancel, task: tokio::task::spawn_local(run) };
        agent.awaiting(|awaited| matches!(awaited, Awaited::Installed { .. })).await;
        assert!(!machine.path("cni/ovn-cni-server.sock").exists());
        machine.install_port();
        agent.ready().await;
        assert!(machine.path("net.d/10-ovn-kubernetes.conf").exists());
        std::os::unix::net::UnixStream::connect(machine.path("cni/ovn-cni-server.sock")).unwrap();
        agent.stop().await;
        assert!(std::os::unix::net::UnixStream::connect(machine.path("cni/ovn-cni-server.sock")).is_err());
        assert!(machine.path("net.d/10-ovn-kubernetes.conf").exists());

        // A restart while nobody answers at the API server: the runtime must be able to take pods down.
        let silent = Api::default();
        let (status, cancel) = (Status::new(), CancellationToken::new());
        let run = node::run(
            machine.settings(),
            silent.kube(),
            node::Boards::default(),
            node::Hooks::default(),
            status.clone(),
            cancel.clone(),
        );
        let agent = Agent { status, cancel, task: tokio::task::spawn_local(run) };
        eventually("the server listens", || {
            std::os::unix::net::UnixStream::connect(machine.path("cni/ovn-cni-server.sock")).is_ok()
        })
        .await;
        assert!(agent.status.ready().unwrap_err().contains("Node object"));
        agent.stop().await;
    });
}

#[test]
fn an_identity_that_admission_refuses_does_not_keep_the_rest_back() {
    let machine = Machine::start().with_gateway_bridge();
    machine.vsctl("set Open_vSwitch . external_ids:system-id=changed");
    on(async {
        let api = Api::default();
        api.register(
            "uid-1",
            "172.18.0.1",
            json!({ SUBNETS: r#"{"default":["10.244.0.0/24"]}"#, "k8s.ovn.org/node-chassis-id": "known" }),
        );
        api.refuse_chassis_id();
        let agent = ready_node(&machine, &api).await;
        assert_eq!(api.annotation("k8s.ovn.org/node-chassis-id").as_deref(), Some("known"));
        assert_eq!(api.annotation("k8s.ovn.org/node-encap-ips").as_deref(), Some(r#"["172.18.0.1"]"#));
        assert_eq!(machine.vsctl("get Open_vSwitch . external_ids:system-id"), "changed");
        agent.stop().await;
    });
}

#[test]
fn a_lost_database_gets_the_known_identity_and_everything_else_back() {
    let mut machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        let agent = ready_node(&machine, &api).await;
        let chassis = api.annotation("k8s.ovn.org/node-chassis-id").unwrap();
        machine.lose_database();
        agent.awaiting(|awaited| matches!(awaited, Awaited::Installed { .. })).await;
        machine.install_port();
        agent.ready().await;
        assert_eq!(machine.vsctl("get Open_vSwitch . external_ids:system-id").replace('"', ""), chassis);
        assert_eq!(machine.vsctl("port-to-br ovn-k8s-mp0"), "br-int");
        agent.stop().await;
    });
}

#[test]
fn clean_up_takes_ours_and_leaves_the_rest() {
    let machine = Machine::start().with_gateway_bridge();
    on(async {
        let api = registered();
        ready_node(&machine, &api).await.stop().await;
        machine.vsctl("set Open_vSwitch . external_ids:ovn-bridge-mappings=\"other:br9,physnet:breth0\"");
        assert!(machine.flows().contains("0xdeff105") && !machine.firewall().is_empty());
        machine.ip("rule add prio 30 fwmark 0x99 lookup 9");
        node::cleanup(&machine.settings()).await.unwrap();
        eventually("the interface is gone", || !machine.ip("-br link").contains("ovn-k8s-mp0")).await;
        assert!(!machine.path("net.d/10-ovn-kubernetes.conf").exists());
        let rules = machine.ip("rule show");
        assert!(!rules.contains("0x1745ec") && rules.contains("0x99"), "{rules}");
        let ids = machine.vsctl("get Open_vSwitch . external_ids");
        assert!(!ids.contains("ovn-remote") && !ids.contains("ovn-encap-ip"), "{ids}");
        assert!(ids.contains("system-id") && ids.contains("ovn-bridge-mappings=\"other:br9\""), "{ids}");
        assert_eq!(machine.flows().lines().filter(|line| line.contains("actions")).count(), 1);
        assert_eq!(machine.firewall(), "");
        let bridge = machine.ip("addr show breth0") + &machine.ip("route show") + &machine.ip("neigh show");
        assert!(bridge.contains("172.18.0.1/24") && !bridge.contains("169.254.169."), "{bridge}");
        let transactions = machine.transactions();
        node::cleanup(&machine.settings()).await.unwrap();
        assert_eq!(machine.transactions(), transactions);
    });
}

#[test]
fn with_real_ovn_the_node_becomes_ready_and_the_chassis_follows_it() {
    let machine = Machine::start().with_gateway_bridge();
    let mut ovn = Ovn::start(&machine);
    on(async {
        let api = registered();
        let mut settings = machine.settings();
        settings.encap.port = 7000;
        settings.ovn_run_dir = Some(machine.path("."));
        let agent = Agent::start(settings, &api);
        agent.awaiting(|awaited| matches!(awaited, Awaited::Installed { .. })).await;
        // As the database shows it after a restart of the machine.
        machine.install_port();
        agent.awaiting(|awaited| matches!(awaited, Awaited::OvnController { .. })).await;
        machine.vsctl("remove Interface ovn-k8s-mp0 external_ids ovn-installed");
        ovn.start_controller(&machine);
        eventually("the chassis and its tunnel port", || {
            Ovn::sbctl(&machine, "--bare --columns=hostname find Chassis hostname=node1") == "node1"
                && Ovn::sbctl(&machine, "--bare --columns=options list Encap").contains("dst_port=7000")
        })
        .await;
        assert!(agent.status.ready().is_err(), "nobody has made the logical port");
        Ovn::nbctl(&machine, "ls-add node1");
        Ovn::nbctl(&machine, "lsp-add node1 k8s-node1 -- lsp-set-addresses k8s-node1 dynamic");
        agent.ready().await;

        machine.ip("addr add 172.18.0.9/24 dev breth0");
        api.move_to("172.18.0.9");
        eventually("the chassis has the new address, and still the port", || {
            let encap = Ovn::sbctl(&machine, "--bare --columns=ip,options list Encap");
            encap.contains("172.18.0.9") && !encap.contains("172.18.0.1\n") && encap.contains("dst_port=7000")
        })
        .await;
        agent.stop().await;
    });
}
