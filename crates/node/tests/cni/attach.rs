//! One pod attached and detached: what it looks like from outside.

use serde_json::json;

use crate::rig::{Call, Rig, ip};

const SANDBOX: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn add_plumbs_plugs_and_answers_as_the_reference_does() {
    let mut rig = Rig::start().await;
    rig.install_ports();
    let netns = rig.netns("ns1");
    rig.pod("web", "uid-1", "10.244.0.5/24,fd00:10:244::5/64");
    let call = Call::new("ADD", SANDBOX, &netns, "web", "uid-1");
    let result = rig.call(&call).await.result();

    let host_mac =
        ip("-o link show dev 0123456789abcde").split("link/ether ").nth(1).unwrap()[..17].to_owned();
    assert_eq!(
        result,
        json!({
            "cniVersion": "",
            "interfaces": [
                {"name": "0123456789abcde", "mac": host_mac},
                {"name": "eth0", "mac": "0a:58:0a:f4:00:05", "sandbox": netns},
            ],
            "ips": [
                {"interface": 1, "address": "10.244.0.5/24", "gateway": "10.244.0.1"},
                {"interface": 1, "address": "fd00:10:244::5/64", "gateway": "fd00:10:244::1"},
            ],
            "dns": null,
        })
    );
    let ids = |key: &str| rig.vsctl(&format!("get Interface 0123456789abcde external_ids:{key}"));
    assert_eq!(ids("iface-id"), "ns_web");
    assert_eq!(ids("attached_mac"), "\"0a:58:0a:f4:00:05\"");
    assert_eq!(ids("iface-id-ver"), "uid-1");
    assert_eq!(ids("sandbox"), format!("\"{SANDBOX}\""));
    assert_eq!(ids("pod-if-name"), "eth0");
    assert_eq!(ids("ip_addresses"), "\"10.244.0.5/24,fd00:10:244::5/64\"");
    assert_eq!(rig.vsctl("get Port 0123456789abcde other_config:transient"), "\"true\"");
    assert_eq!(rig.vsctl("port-to-br 0123456789abcde"), "br-int");
    assert_eq!(rig.vsctl("get Interface 0123456789abcde error"), "[]");

    let addresses = rig.ip_in(&netns, "addr show dev eth0");
    for part in ["mtu 1342", "link/ether 0a:58:0a:f4:00:05", "inet 10.244.0.5/24", "inet6 fd00:10:244::5/64"]
    {
        assert!(addresses.contains(part), "{part} not in {addresses}");
    }
    assert!(addresses.contains("inet6 fe80::858:aff:fef4:5/64"), "{addresses}");
    assert!(!addresses.contains("tentative"), "{addresses}");
    let routes = rig.ip_in(&netns, "route");
    assert!(routes.contains("default via 10.244.0.1 dev eth0"), "{routes}");
    assert!(routes.contains("10.244.0.0/16 via 10.244.0.1 dev eth0"), "{routes}");

    rig.call(&call.verb("CHECK")).await.ok();
    rig.ip_in(&netns, "addr del 10.244.0.5/24 dev eth0");
    let broken = rig.call(&call.verb("CHECK")).await;
    assert!(broken.refused().contains("eth0 does not have address 10.244.0.5/24"), "{broken:?}");

    let gone = rig.call(&call.verb("DEL")).await;
    assert_eq!(gone.result(), json!({"cniVersion": "", "dns": null}));
    rig.assert_nothing_of(SANDBOX);
    assert!(rig.call(&call.verb("CHECK")).await.refused().contains("\"code\":3"));
}

#[tokio::test]
async fn an_unprivileged_server_says_what_to_do_and_does_nothing() {
    let rig = Rig::start_with(|s| node::cni::CniSettings { unprivileged: true, ..s }, |server| server).await;
    let limit = [("kubernetes.io/egress-bandwidth", "20M")];
    rig.pod_with("web", "uid-1", "10.244.0.5/24", &limit);
    let call = Call::new("ADD", SANDBOX, "/nowhere", "web", "uid-1");
    let answer: serde_json::Value = serde_json::from_str(&rig.call(&call).await.text).unwrap();
    assert_eq!(answer["Result"], json!(null));
    let info = &answer["PodIFInfo"];
    assert_eq!(
        (&info["MAC"], &info["mtu"], &info["egress"]),
        (&json!("ClgK9AAF"), &json!(1342), &json!(20_000_000))
    );
    assert_eq!(info["IPs"], json!([{"IP": "10.244.0.5", "Mask": "////AA=="}]));
    assert_eq!(info["disable-tx-checksum"], true);
    let answer: serde_json::Value = serde_json::from_str(&rig.call(&call.verb("DEL")).await.text).unwrap();
    assert!(answer["PodIFInfo"].is_object() && answer["Result"].is_null());
    assert!(
        rig.call(&Call { uid: "other".into(), ..call }).await.refused().contains("sandbox is for UID other")
    );
    rig.assert_nothing_of(SANDBOX);
}
