//! Unprivileged mode: a played server that only tells what to do, a real ovsdb-server, and the shim that does it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{Read, Write},
    os::unix::net::UnixListener,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use devcluster::prefix::Prefix;
use host::NetNs;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

const SANDBOX: &str = "0123456789abcdef0123";

struct Rig {
    dir: tempfile::TempDir,
    prefix: Prefix,
    ovsdb: Child,
}

impl Rig {
    fn start() -> Rig {
        unshare(CloneFlags::CLONE_NEWNET).expect("tests of plumbing need root");
        let dir = tempfile::tempdir().unwrap();
        let prefix = Prefix::find().expect("tests with a real ovsdb-server need its programs");
        let db = dir.path().join("conf.db");
        let schema = prefix.schema("vswitch.ovsschema").unwrap();
        run(prefix.command("ovsdb-tool").arg("create").arg(&db).arg(schema));
        let ovsdb = prefix
            .command("ovsdb-server")
            .arg(&db)
            .arg(format!("--remote=punix:{}", dir.path().join("db.sock").display()))
            .arg(format!("--unixctl={}", dir.path().join("ctl").display()))
            .arg("-vconsole:off")
            .spawn()
            .unwrap();
        let rig = Rig { dir, prefix, ovsdb };
        rig.vsctl("--retry init");
        rig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn vsctl(&self, args: &str) -> String {
        let db = format!("--db=unix:{}", self.path("db.sock").display());
        let mut command = self.prefix.command("ovs-vsctl");
        run(command.args(["--timeout=20", "--no-wait"]).arg(db).args(args.split_whitespace()))
    }

    /// Runs the shim against a server that answers with `body`.
    fn shim(&self, verb: &str, body: &Value) -> Output {
        let socket = self.path(&format!("{verb}.sock"));
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let body = body.to_string();
        let server = std::thread::spawn(move || {
            // The request, then the report of its duration.
            for answer in [body.as_str(), ""] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = vec![0; 1 << 16];
                assert_ne!(stream.read(&mut bytes).unwrap(), 0);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
                stream.write_all((head + answer).as_bytes()).unwrap();
            }
        });
        let mut child = Command::new(env!("CARGO_BIN_EXE_ovn-k8s-cni-overlay"))
            .env_clear()
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", SANDBOX)
            .env("CNI_NETNS", self.path("ns"))
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=uid")
            .env("OVN_CNI_SERVER_SOCKET", &socket)
            .env("OVN_CNI_OVS_SOCKET", self.path("db.sock"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let conf = json!({"cniVersion": "1.0.0", "name": "ovn-kubernetes", "type": "ovn-k8s-cni-overlay"});
        child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        server.join().unwrap();
        output
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.ovsdb.kill();
        let _ = self.ovsdb.wait();
        let _ = NetNs::unbind(self.path("ns"));
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn ip(args: &str) -> String {
    run(Command::new("ip").args(args.split_whitespace()))
}

fn instructions() -> Value {
    json!({"Result": null, "PodIFInfo": {
        "IPs": [{"IP": "10.244.0.5", "Mask": "////AA=="}], "MAC": "ClgK9AAF", "Gateways": ["10.244.0.1"],
        "GatewayIPv6LLA": "", "Routes": null, "TunnelID": 0, "Role": "primary",
        "mtu": 1342, "routable-mtu": 0, "ingress": 1_000_000, "egress": 20_000_000, "is-dpu-host-mode": false,
        "skip-ip-config": false, "pod-uid": "uid", "vf-netdev-name": "", "enable-udp-aggregation": false,
        "netName": "default", "nadKey": "default", "pod-if-names": ["eth0"], "disable-tx-checksum": true,
    }})
}

#[test]
fn the_shim_plumbs_plugs_waits_and_takes_down() {
    let rig = Rig::start();
    let pod = NetNs::bound(rig.path("ns")).unwrap();

    let no_bridge = rig.shim("ADD", &instructions());
    assert_eq!(no_bridge.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&no_bridge.stdout).contains("bridge br-int does not exist"));
    assert_eq!(ip("-o link").lines().count(), 1, "nothing is left of a failed ADD");

    // An older sandbox has the logical port; it must lose it.
    rig.vsctl("add-br br-int");
    rig.vsctl(
        "add-port br-int old -- set Interface old external_ids:iface-id=ns_web external_ids:sandbox=old",
    );
    let db = format!("--db=unix:{}", rig.path("db.sock").display());
    let mut controller = rig.prefix.command("ovs-vsctl");
    controller.args(["--timeout=20", "--no-wait", &db]);
    let mut controller = controller
        .args(["wait-until", "Interface", "0123456789abcde", "external_ids:iface-id=ns_web", "--"])
        .args(["set", "Interface", "0123456789abcde", "external_ids:ovn-installed=true"])
        .spawn()
        .unwrap();
    let added = rig.shim("ADD", &instructions());
    assert!(controller.wait().unwrap().success());
    assert!(added.status.success(), "{added:?}");
    let result: Value = serde_json::from_slice(&added.stdout).unwrap();
    assert_eq!(result["ips"], json!([{"interface": 1, "address": "10.244.0.5/24", "gateway": "10.244.0.1"}]));
    assert_eq!(result["interfaces"][0]["name"], "0123456789abcde");
    assert_eq!(rig.vsctl("list-ports br-int"), "0123456789abcde");
    let ids = rig.vsctl("get Interface 0123456789abcde external_ids");
    for part in ["iface-id=ns_web", "iface-id-ver=uid", "pod-if-name=eth0", "ip_addresses=\"10.244.0.5/24\""]
    {
        assert!(ids.contains(part), "{part} not in {ids}");
    }
    assert_eq!(rig.vsctl("get Interface 0123456789abcde ingress_policing_rate"), "20000");
    assert_eq!(rig.vsctl("--bare --columns=other_config list QoS"), "max-rate=1000000");
    let inside = pod.run(|| ip("addr show dev eth0")).unwrap();
    assert!(inside.contains("inet 10.244.0.5/24") && inside.contains("0a:58:0a:f4:00:05"), "{inside}");

    let nothing = json!({"Result": null, "PodIFInfo": {
        "IPs": null, "MAC": null, "Gateways": null, "GatewayIPv6LLA": "", "Routes": null, "TunnelID": 0, "Role": "", "mtu": 0,
    }});
    for _ in 0..2 {
        let gone = rig.shim("DEL", &nothing);
        assert!(gone.status.success() && gone.stdout.is_empty(), "{gone:?}");
        assert_eq!(rig.vsctl("list-ports br-int"), "");
        assert_eq!(rig.vsctl("list QoS") + &rig.vsctl("list Queue"), "");
        assert!(!ip("-o link").contains("0123456789abcde"));
    }
}
