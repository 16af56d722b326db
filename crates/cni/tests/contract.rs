//! The contract's texts: configurations, result shapes, protocol bodies, errors.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cni::{
    CniError, CniResult, Command, ConfError, Interface, Invocation, IpConfig, NetConf, PodIfInfo, Request,
    Response, Version, code, http, valid_attachments, version_reply,
};
use serde_json::{Value, json};

const DEFAULT: &str = r#"{"cniVersion":"1.1.0","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay","ipam":{},"dns":{},
 "logFile":"/var/log/ovn-kubernetes/ovn-k8s-cni-overlay.log","logLevel":"4",
 "logfile-maxsize":100,"logfile-maxbackups":5,"logfile-maxage":5,"runtimeConfig":{}}"#;

fn conf(value: Value) -> Result<NetConf, ConfError> {
    NetConf::parse(value.to_string().as_bytes())
}

#[test]
fn the_default_configuration_is_the_cluster_network() {
    let conf = NetConf::parse(DEFAULT.as_bytes()).unwrap();
    assert!(conf.is_default());
    assert_eq!((conf.name.as_str(), conf.mtu, conf.logfile_maxsize), ("default", 0, 100));
    assert_eq!(conf.version(), Ok(Version::V110));
}

#[test]
fn user_networks_and_lists() {
    let blue = json!({
        "cniVersion": "1.0.0", "name": "blue", "type": "ovn-k8s-cni-overlay", "role": "primary", "topology": "layer2",
        "netAttachDefName": "shop/blue", "mtu": 1300, "subnets": "10.77.0.0/16", "excludeSubnets": "10.77.0.0/30",
        "reservedSubnets": "10.77.1.0/30", "infrastructureSubnets": "10.77.2.0/30", "joinSubnet": "100.65.0.0/16",
        "transitSubnet": "100.88.0.0/16", "defaultGatewayIPs": "10.77.0.2", "vlanID": 7, "allowPersistentIPs": true,
        "physicalNetworkName": "phys", "transport": "geneve", "outboundSNAT": "enabled",
        "evpn": {"vtep": "v", "macVRF": {"vni": 5, "routeTarget": "65000:5"}}, "uplink": "eth1",
        "deviceID": "0000:03:00.2", "runtimeConfig": {"CNIDeviceInfoFile": "/var/run/x"}, "unknown": [1],
    });
    let parsed = conf(blue.clone()).unwrap();
    assert_eq!((parsed.name.as_str(), parsed.vlan_id, parsed.mtu), ("blue", 7, 1300));
    assert_eq!(parsed.default_gateway_ips, "10.77.0.2");
    assert_eq!(parsed.outbound_snat, "enabled");
    assert_eq!(parsed.runtime_config.device_info_file, "/var/run/x");
    assert!(parsed.allow_persistent_ips && !parsed.is_default());

    let mut plugin = blue.clone();
    let name = plugin.as_object_mut().unwrap().remove("name").unwrap();
    let list = json!({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]});
    assert_eq!(conf(list.clone()).unwrap().name, "blue");
    let mut chained = list.clone();
    chained["plugins"].as_array_mut().unwrap().push(json!({"type": "tuning"}));
    assert!(matches!(conf(chained), Err(ConfError::Chained(n)) if n == "blue"));
    let mut both = list.clone();
    both["type"] = "ovn-k8s-cni-overlay".into();
    assert!(matches!(conf(both), Err(ConfError::ListAndSingle(_))));
    let mut other = list;
    other["plugins"][0]["type"] = "bridge".into();
    assert!(matches!(conf(other), Err(ConfError::OtherPlugin(t)) if t == "bridge"));

    for (key, value) in [
        ("name", json!("default")),
        ("name", json!("ovn-kubernetes")),
        ("name", json!("")),
        ("netAttachDefName", json!("blue")),
        ("topology", json!("ring")),
        ("mtu", json!("large")),
    ] {
        let mut bad = blue.clone();
        bad[key] = value.clone();
        let error = CniError::from(conf(bad).unwrap_err());
        let wanted = if key == "mtu" { code::DECODE } else { code::INVALID_CONFIG };
        assert_eq!(error.code, wanted, "{key}={value}: {error}");
    }
}

#[test]
fn garbage_collection_lists() {
    let mut value: Value = serde_json::from_str(DEFAULT).unwrap();
    assert!(valid_attachments(&conf(value.clone()).unwrap()).is_none(), "no list is not an empty list");
    value["cni.dev/valid-attachments"] = json!([{"containerID": "a", "ifname": "eth0"}]);
    let parsed = conf(value).unwrap();
    assert!(valid_attachments(&parsed).unwrap().contains(&("a", "eth0")));
}

fn result() -> CniResult {
    CniResult {
        interfaces: vec![
            Interface {
                name: "0123456789abcde".into(),
                mac: "02:00:00:00:00:01".into(),
                ..Interface::default()
            },
            Interface {
                name: "eth0".into(),
                mac: "0a:58:0a:f4:00:05".into(),
                mtu: Some(1400),
                sandbox: "/var/run/netns/x".into(),
            },
        ],
        ips: vec![
            IpConfig {
                interface: Some(1),
                address: "10.244.0.5/24".parse().unwrap(),
                gateway: Some("10.244.0.1".parse().unwrap()),
            },
            IpConfig { interface: Some(1), address: "fd00::5/64".parse().unwrap(), gateway: None },
        ],
        ..CniResult::default()
    }
}

#[test]
fn results_have_the_shape_of_their_version() {
    for version in [Version::V010, Version::V020] {
        assert_eq!(
            result().to_version(version),
            json!({
                "cniVersion": version.as_str(),
                "ip4": {"ip": "10.244.0.5/24", "gateway": "10.244.0.1"},
                "ip6": {"ip": "fd00::5/64"},
                "dns": {},
            })
        );
    }
    for version in [Version::V030, Version::V031, Version::V040, Version::V100, Version::V110] {
        let mut pod = json!({"name": "eth0", "mac": "0a:58:0a:f4:00:05", "sandbox": "/var/run/netns/x"});
        let mut four = json!({"interface": 1, "address": "10.244.0.5/24", "gateway": "10.244.0.1"});
        let mut six = json!({"interface": 1, "address": "fd00::5/64"});
        if version < Version::V100 {
            four["version"] = "4".into();
            six["version"] = "6".into();
        }
        if version == Version::V110 {
            pod["mtu"] = 1400.into();
        }
        assert_eq!(
            result().to_version(version),
            json!({
                "cniVersion": version.as_str(),
                "interfaces": [{"name": "0123456789abcde", "mac": "02:00:00:00:00:01"}, pod],
                "ips": [four, six],
                "dns": {},
            })
        );
    }
    // A result made by another server of the protocol (1.0 and later shapes, nulls for what is empty).
    let foreign =
        json!({"cniVersion": "1.1.0", "interfaces": null, "ips": [{"address": "10.0.0.1/8"}], "dns": {}});
    let parsed: CniResult = serde_json::from_value(foreign).unwrap();
    assert_eq!(parsed.to_version(Version::V020)["ip4"]["ip"], "10.0.0.1/8");
}

#[test]
fn requests_carry_environment_and_base64() {
    let text = r#"{"env":{"CNI_COMMAND":"ADD"},"config":"eyJuYW1lIjoieCJ9","type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.2"}}"#;
    let request: Request = serde_json::from_str(text).unwrap();
    assert_eq!(request.config, br#"{"name":"x"}"#);
    assert_eq!(request.device_info["type"], "pci");
    assert_eq!(serde_json::to_value(&request).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    let empty: Request = serde_json::from_str(r#"{"env":{},"config":null}"#).unwrap();
    assert!(empty.config.is_empty() && empty.device_info.is_empty());
}

#[test]
fn unprivileged_answers_are_in_go_s_encoding() {
    let text = json!({
        "Result": null,
        "PodIFInfo": {
            "IPs": [{"IP": "10.244.0.5", "Mask": "////AA=="}, {"IP": "fd00::5", "Mask": "//////////8AAAAAAAAAAA=="}],
            "MAC": "ClgK9AAF",
            "Gateways": ["10.244.0.1"],
            "GatewayIPv6LLA": "",
            "Routes": [{"Dest": {"IP": "10.244.0.0", "Mask": "//8AAA=="}, "NextHop": "10.244.0.1"},
                       {"Dest": {"IP": "169.254.169.5", "Mask": "/////w=="}, "NextHop": ""}],
            "TunnelID": 0, "Role": "primary",
            "mtu": 1400, "routable-mtu": 0, "ingress": 1000000, "egress": 0, "is-dpu-host-mode": false,
            "skip-ip-config": false, "pod-uid": "uid", "vf-netdev-name": "", "enable-udp-aggregation": false,
            "netName": "default", "nadKey": "default", "pod-if-names": ["eth0"],
        },
        "PrimaryUDNPodInfo": null, "PrimaryUDNPodReq": null,
        "KubeAuth": {"kube-api-server": "https://172.18.0.254:6443", "kube-api-token": "secret", "kube-ca-data": "Y2E="},
    });
    let response: Response = serde_json::from_value(text.clone()).unwrap();
    let info: &PodIfInfo = response.pod_if_info.as_ref().unwrap();
    assert_eq!(info.network.ips[1].to_string(), "fd00::5/64");
    assert_eq!(info.network.mac.to_string(), "0a:58:0a:f4:00:05");
    assert_eq!(info.network.routes[1].next_hop, None);
    let auth = response.kube_auth.as_ref().unwrap();
    assert_eq!(auth.ca_data, b"ca");
    assert!(!format!("{auth:?}").contains("secret"));
    let mut again = serde_json::to_value(&response).unwrap();
    // A field of ours that other readers ignore.
    again["PodIFInfo"].as_object_mut().unwrap().remove("disable-tx-checksum");
    assert_eq!(again, text);
}

#[test]
fn errors_are_objects_or_texts() {
    let typed = CniError::from_body(400, br#"{"code":50,"msg":"DPU Not Ready: lease","details":"d"}"#);
    assert_eq!((typed.code, typed.msg.as_str(), typed.details.as_str()), (50, "DPU Not Ready: lease", "d"));
    let plain = CniError::from_body(400, b"pod is gone\n");
    assert_eq!(plain.code, code::INTERNAL);
    assert_eq!(plain.msg, "CNI request failed with status 400: 'pod is gone'");
    let printed: Value = serde_json::from_str(&plain.print("0.4.0")).unwrap();
    assert_eq!(printed["cniVersion"], "0.4.0");
    assert_eq!(printed["code"], 999);
}

#[test]
fn the_environment_is_checked() {
    let full = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "abc"),
        ("CNI_NETNS", "/var/run/netns/x"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-7;K8S_POD_UID=9c"),
    ];
    let with = |key: &str, value: Option<&'static str>| {
        let vars: Vec<_> = full
            .iter()
            .filter(|(k, _)| *k != key)
            .map(|(k, v)| (*k, *v))
            .chain(value.map(|v| (full.iter().find(|(k, _)| *k == key).unwrap().0, v)))
            .collect();
        Invocation::from_env(|k| vars.iter().find(|(key, _)| *key == k).map(|(_, v)| *v))
    };
    let good = with("CNI_IFNAME", None).unwrap();
    assert_eq!((good.command, good.ifname.as_str()), (Command::Add, "eth0"));
    assert_eq!(good.pod.uid.as_deref(), Some("9c"));
    good.require_pod().unwrap();
    assert_eq!(with("CNI_ARGS", Some("X=1")).unwrap().require_pod().unwrap_err().code, code::INVALID_ENV);
    for (key, value) in [
        ("CNI_COMMAND", None),
        ("CNI_COMMAND", Some("UPDATE")),
        ("CNI_CONTAINERID", None),
        ("CNI_CONTAINERID", Some("../etc")),
        ("CNI_NETNS", None),
        ("CNI_IFNAME", Some("sixteen-letters-")),
        ("CNI_IFNAME", Some("a/b")),
        ("CNI_IFNAME", Some("..")),
    ] {
        let error = with(key, value).unwrap_err();
        assert_eq!(error.code, code::INVALID_ENV, "{key}={value:?}");
        assert!(error.to_string().contains(if value == Some("UPDATE") { "UPDATE" } else { key }), "{error}");
    }
}

#[test]
fn versions() {
    let reply: Value = serde_json::from_str(&version_reply("0.4.0")).unwrap();
    assert_eq!(reply["cniVersion"], "0.4.0");
    assert_eq!(
        reply["supportedVersions"],
        json!(["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
    );
    assert_eq!(Version::parse(""), Ok(Version::V010));
    assert_eq!(Version::parse("9.9").unwrap_err().code, code::INCOMPATIBLE_VERSION);
    assert!(Command::Check.check_version(Version::V031).is_err());
    assert!(Command::Check.check_version(Version::V040).is_ok());
    assert!(Command::Gc.check_version(Version::V100).is_err());
    assert!(Command::Status.check_version(Version::V110).is_ok());
}

#[test]
fn http_answers_come_in_any_pieces() {
    let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec();
    let chunked =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n".to_vec();
    let until_close = b"HTTP/1.0 200 OK\r\n\r\nhello".to_vec();
    let continued = [b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), plain.clone()].concat();
    for answer in [plain, chunked, until_close, continued] {
        for cut in 0..answer.len() {
            assert!(http::parse(&answer[..cut], false).is_ok(), "a part is no error");
        }
        let whole = http::parse(&answer, true).unwrap().unwrap();
        assert_eq!((whole.status, whole.body.as_slice()), (200, b"hello".as_slice()));
    }
    for broken in
        ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel", "SMTP\r\n\r\n", "HTTP/1.1 OK\r\n\r\n"]
    {
        assert!(http::parse(broken.as_bytes(), true).is_err(), "{broken:?}");
    }
    assert!(
        http::parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n", false)
            .is_err()
    );
}
