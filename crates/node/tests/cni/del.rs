//! DEL with things already gone, GC, restarts and forgetful databases.

use serde_json::json;

use crate::rig::{Call, Rig, count, ip, until};

const SANDBOX: &str = "cccccccccccccccccccccccccccccccc";

async fn attached() -> (Rig, Call) {
    let mut rig = Rig::start().await;
    rig.install_ports();
    rig.pod_with("web", "uid", "10.244.0.5/24", &[("kubernetes.io/ingress-bandwidth", "10M")]);
    let netns = rig.netns("ns1");
    let call = Call::new("ADD", SANDBOX, &netns, "web", "uid");
    rig.call(&call).await.ok();
    (rig, call)
}

async fn gone(rig: &Rig, del: &Call) {
    let answer = rig.call(del).await;
    assert_eq!(answer.result(), json!({"cniVersion": "", "dns": null}));
    rig.assert_nothing_of(SANDBOX);
}

#[tokio::test]
async fn del_a_without_netns() {
    let (rig, call) = attached().await;
    gone(&rig, &Call { netns: String::new(), ..call.verb("DEL") }).await;
}

#[tokio::test]
async fn del_b_with_a_netns_that_is_gone() {
    let (mut rig, call) = attached().await;
    rig.remove_netns(&call.netns);
    gone(&rig, &call.verb("DEL")).await;
}

#[tokio::test]
async fn del_c_without_port_or_link() {
    let (rig, call) = attached().await;
    rig.vsctl("del-port ccccccccccccccc");
    gone(&rig, &call.verb("DEL")).await;
    rig.call(&call).await.ok();
    ip("link del ccccccccccccccc");
    gone(&rig, &call.verb("DEL")).await;
}

/// Connections of the node's own over loopback, tracked with addresses that pods have.
struct Connections(Vec<std::net::UdpSocket>);

impl Connections {
    fn track(addresses: &[&str]) -> Connections {
        ip("link set lo up");
        let rule = "add table inet tracked; add chain inet tracked out { type filter hook output priority 0; }; \
                    add rule inet tracked out ct state new counter";
        crate::rig::run(std::process::Command::new("nft").arg(rule));
        for address in addresses {
            ip(&format!("addr add {address} dev lo{}", if address.contains(':') { " nodad" } else { "" }));
        }
        Connections(Vec::new())
    }

    fn open(&mut self, address: &str) {
        let server = std::net::UdpSocket::bind((address, 5353)).unwrap();
        server.send_to(b"?", (address, 5353)).unwrap();
        self.0.push(server);
    }

    fn of(address: &str) -> usize {
        let address: std::net::IpAddr = address.parse().unwrap();
        let table = host::conntrack::Conntrack::open().unwrap();
        table.matching(|one| one.reply.src.ip() == address).unwrap().len()
    }
}

#[tokio::test]
async fn del_forgets_the_pods_connections_and_nobody_elses() {
    let mut rig = Rig::start().await;
    rig.install_ports();
    let netns = rig.netns("ns1");
    let mut connections =
        Connections::track(&["10.244.0.5/32", "10.244.0.6/32", "10.244.0.7/32", "fd00:10:244::5/128"]);
    rig.pod("web", "uid", "10.244.0.5/24,fd00:10:244::5/64");
    let call = Call::new("ADD", SANDBOX, &netns, "web", "uid");
    rig.call(&call).await.ok();
    for address in ["10.244.0.5", "fd00:10:244::5", "10.244.0.6"] {
        connections.open(address);
        assert_eq!(Connections::of(address), 1, "{address}");
    }
    gone(&rig, &call.verb("DEL")).await;
    assert_eq!(["10.244.0.5", "fd00:10:244::5", "10.244.0.6"].map(Connections::of), [0, 0, 1]);

    // Without a port the runtime's memory of the result tells; an address that another pod has meanwhile is left alone.
    let other = rig.netns("ns2");
    rig.pod("other", "uid-other", "10.244.0.6/24");
    rig.call(&Call::new("ADD", &"d".repeat(32), &other, "other", "uid-other")).await.ok();
    connections.open("10.244.0.7");
    let mut late = call.verb("DEL");
    late.conf["prevResult"] = json!({"ips": [{"address": "10.244.0.6/24"}, {"address": "10.244.0.7/24"}]});
    gone(&rig, &late).await;
    assert_eq!(["10.244.0.6", "10.244.0.7"].map(Connections::of), [1, 0]);
}

#[tokio::test]
async fn del_d_of_a_pod_that_is_gone_or_another() {
    let (rig, call) = attached().await;
    let key = rig.pod("web", "another", "10.244.0.9/24");
    gone(&rig, &call.verb("DEL")).await;
    rig.pod("web", "uid", "10.244.0.5/24");
    rig.call(&call).await.ok();
    rig.board.remove(&key);
    gone(&rig, &call.verb("DEL")).await;
    // CNI_ARGS without a pod still says which sandbox.
    gone(&rig, &Call { pod: String::new(), ..call.verb("DEL") }).await;
}

#[tokio::test]
async fn del_e_without_api_server() {
    let (rig, call) = attached().await;
    rig.board.set_problem(Some("the API server does not answer".into()));
    gone(&rig, &call.verb("DEL")).await;
}

#[tokio::test]
async fn del_f_twice_and_g_without_add() {
    let (rig, call) = attached().await;
    gone(&rig, &call.verb("DEL")).await;
    gone(&rig, &call.verb("DEL")).await;
    let other = Call { sandbox: "never-seen".into(), ..call.verb("DEL") };
    rig.call(&other).await.ok();
}

#[tokio::test]
async fn del_removes_only_its_own_sandbox() {
    let (mut rig, call) = attached().await;
    rig.pod("other", "uid-2", "10.244.0.6/24");
    let netns = rig.netns("ns2");
    rig.call(&Call::new("ADD", "dddddddddddddddddddd", &netns, "other", "uid-2")).await.ok();
    rig.vsctl("add-port br-int foreign -- set Interface foreign type=internal");
    gone(&rig, &call.verb("DEL")).await;
    assert_eq!(rig.vsctl("list-ports br-int"), "ddddddddddddddd\nforeign");
}

#[tokio::test]
async fn gc_removes_what_is_not_listed_and_nothing_else() {
    let (mut rig, call) = attached().await;
    rig.pod("other", "uid-2", "10.244.0.6/24");
    let netns = rig.netns("ns2");
    rig.call(&Call::new("ADD", "dddddddddddddddddddd", &netns, "other", "uid-2")).await.ok();
    rig.vsctl("add-port br-int foreign -- set Interface foreign type=internal");
    let gc = |list: serde_json::Value| {
        let mut gc = call.verb("GC");
        gc.conf["cni.dev/valid-attachments"] = list;
        gc
    };
    // Without a list, and with all of them, nothing goes.
    rig.call(&call.verb("GC")).await.ok();
    let all = json!([{"containerID": SANDBOX, "ifname": "eth0"}, {"containerID": "dddddddddddddddddddd", "ifname": "eth0"}]);
    rig.call(&gc(all)).await.ok();
    assert_eq!(rig.vsctl("list-ports br-int"), "ccccccccccccccc\nddddddddddddddd\nforeign");
    rig.call(&gc(json!([{"containerID": "dddddddddddddddddddd", "ifname": "eth0"}]))).await.ok();
    rig.assert_nothing_of(SANDBOX);
    assert_eq!(rig.vsctl("list-ports br-int"), "ddddddddddddddd\nforeign");
    rig.call(&gc(json!([]))).await.ok();
    assert_eq!(rig.vsctl("list-ports br-int"), "foreign");
}

#[tokio::test]
async fn a_start_removes_ports_without_link_and_keeps_the_living() {
    let (mut rig, call) = attached().await;
    rig.pod("other", "uid-2", "10.244.0.6/24");
    let netns = rig.netns("ns2");
    rig.call(&Call::new("ADD", "dddddddddddddddddddd", &netns, "other", "uid-2")).await.ok();
    rig.vsctl("add-port br-int foreign -- set Interface foreign type=internal");
    rig.vsctl("--no-wait add-port br-int not-there");
    rig.kill_daemon().await;
    // What a reboot does to a pod.
    ip("link del ccccccccccccccc");
    let before = rig.vsctl("get Interface ddddddddddddddd _uuid");
    rig.start_daemon().await;
    rig.see("the stale port goes", |cache| (count(cache, SANDBOX) == 0).then_some(())).await;
    rig.assert_nothing_of(SANDBOX);
    assert_eq!(rig.vsctl("list-ports br-int"), "ddddddddddddddd\nforeign\nnot-there");
    assert_eq!(rig.vsctl("get Interface ddddddddddddddd _uuid"), before, "the living port was not touched");
    rig.call(&call.verb("DEL")).await.ok();
}

#[tokio::test]
async fn ports_of_living_pods_come_back_after_open_vswitch_forgot_them() {
    let (mut rig, call) = attached().await;
    // A restart of the daemon in between: it knows the ports from the database then.
    rig.restart_daemon().await;
    rig.stop_ovs();
    rig.start_ovsdb(&[]);
    rig.vsctl("--no-wait del-port ccccccccccccccc");
    rig.vsctl("--no-wait --all destroy QoS -- --all destroy Queue");
    rig.stop_ovs();
    rig.start_ovsdb(&[]);
    rig.start_vswitchd();
    until("the port comes back", || rig.owners("web") == [SANDBOX]).await;
    assert_eq!(rig.vsctl("get Interface ccccccccccccccc external_ids:iface-id-ver"), "uid");
    assert_eq!(rig.vsctl("--bare --columns=other_config list QoS"), "max-rate=10000000");
    rig.call(&call.verb("CHECK")).await.ok();
    // A pod that was detached does not come back.
    rig.call(&call.verb("DEL")).await.ok();
    rig.stop_ovs();
    rig.start_ovsdb(&[]);
    rig.start_vswitchd();
    rig.restart_daemon().await;
    rig.assert_nothing_of(SANDBOX);
}

#[tokio::test]
async fn del_without_open_vswitch_succeeds_and_is_completed_later() {
    let (mut rig, call) = attached().await;
    rig.stop_ovs();
    rig.call(&call.verb("DEL")).await.ok();
    assert!(!ip("-o link").contains("ccccccccccccccc"));
    let status = rig.call(&call.verb("STATUS")).await;
    assert!(status.refused().contains("\"code\":50"), "{status:?}");
    rig.start_ovsdb(&[]);
    rig.start_vswitchd();
    until("the port goes", || rig.owners("web").is_empty()).await;
    rig.assert_nothing_of(SANDBOX);
}
