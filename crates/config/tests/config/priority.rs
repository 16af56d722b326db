//! Which source counts, and what the file may look like.

use crate::{DEFAULT_FILE, start};
use config::Origin;

/// Every combination of sources for one setting: the strongest one present must count.
#[test]
fn the_strongest_source_counts() {
    for bits in 0..16u8 {
        let [flag, file, env, account] = [0, 1, 2, 3].map(|b| bits & (1 << b) != 0);
        let mut s = start(&[]);
        if flag {
            s = s.args(&["--k8s-token-file=/flag"]);
        }
        if file {
            s = s.ini("[kubernetes]\ntokenFile = /file");
        }
        if env {
            s = s.env("K8S_TOKEN_FILE", "/env");
        }
        let account_path = "/var/run/secrets/kubernetes.io/serviceaccount/token";
        if account {
            s = s.file(account_path, "t");
        }
        for path in ["/flag", "/file", "/env"] {
            s = s.file(path, "t");
        }
        let config = s.config();
        let path = config.kubernetes.token_file.as_ref().map(|p| p.display().to_string());
        let (expected, origin) = match (flag, file, env, account) {
            (true, ..) => (Some("/flag"), Origin::Flag),
            (_, true, ..) => (Some("/file"), Origin::File { path: DEFAULT_FILE.into(), line: 2 }),
            (_, _, true, _) => (Some("/env"), Origin::Env { name: "K8S_TOKEN_FILE" }),
            (.., true) => (Some(account_path), Origin::ServiceAccount { path: account_path.into() }),
            _ => (None, Origin::Default),
        };
        assert_eq!(path.as_deref(), expected, "{bits:04b}");
        assert_eq!(config.origin("k8s-token-file"), Some(&origin), "{bits:04b}");
    }
}

#[test]
fn a_flag_that_repeats_the_default_does_not_override_the_file() {
    let s = start(&["--mtu=1400", "--enable-egress-ip=false"])
        .ini("[default]\nmtu=8900\n[ovnkubernetesfeature]\nenable-egress-ip");
    let config = s.config();
    assert_eq!(config.default.mtu, 8900);
    assert!(config.features.egress_ip);
    assert!(s.warnings().iter().any(|w| w.starts_with("--mtu=1400 repeats the default")
        && w.contains("8900 from /etc/openvswitch/ovn_k8s.conf:2")));
    // Any other value does, and so does text equal to its default.
    assert_eq!(start(&["--mtu=1500"]).ini("[default]\nmtu=8900").config().default.mtu, 1500);
    let s = start(&["--ovn-config-namespace=ovn-kubernetes"]).ini("[kubernetes]\novn-config-namespace=other");
    assert_eq!(s.config().kubernetes.ovn_config_namespace, "ovn-kubernetes");
}

#[test]
fn the_last_of_several_counts() {
    assert_eq!(start(&["--mtu=1300", "--mtu", "1350"]).config().default.mtu, 1350);
    let s = start(&[]).ini("[default]\nmtu=1300\n[gateway]\nnodeport\n[Default]\nMTU = 1350 ; later\n");
    assert_eq!(s.config().default.mtu, 1350);
    assert!(s.config().gateway.nodeport);
    assert!(
        s.warnings()
            .contains(&format!("{DEFAULT_FILE}:6: [Default] MTU is set again; this last value counts"))
    );
}

#[test]
fn the_file() {
    // The default place may be empty, a named one not.
    assert!(start(&[]).load().is_ok());
    let missing = start(&["--config-file=/x.conf"]).error();
    assert!(
        missing.starts_with("cannot read /x.conf: ") && missing.ends_with("; correct --config-file"),
        "{missing}"
    );
    let s =
        start(&["--config-file=/x.conf"]).ini("[default]\nmtu=1111").file("/x.conf", "[default]\nmtu=1222");
    assert_eq!(s.config().default.mtu, 1222);

    assert_eq!(
        start(&[]).ini("[default]\nmtu 1").error(),
        format!("{DEFAULT_FILE}:2:5: unexpected '1' after the key; write key = value")
    );
    assert_eq!(
        start(&[]).file(DEFAULT_FILE, b"[a]\n\xff").error(),
        format!("{DEFAULT_FILE}:2:1: this is not UTF-8")
    );
    assert_eq!(
        start(&[]).ini("[default]\nmtu = many").error(),
        format!("--mtu \"many\" (from {DEFAULT_FILE}:2) is not a whole number")
    );
    assert_eq!(
        start(&[]).ini("[default]\nmtu").error(),
        format!("[default] mtu (from {DEFAULT_FILE}:2) has no value; write mtu = BYTES")
    );
    assert_eq!(start(&[]).ini("[default]\nmtu =").config().default.mtu, 1400);
}

#[test]
fn unknown_names_in_the_file_only_warn() {
    let s = start(&[]).ini("[defualt]\nmtu=1\n[default]\ncluster-subnet = 1\nencap-prot = 1\n[ovnnorth]\naddress = x\nclient-privkey=/k\n");
    assert_eq!(
        s.warnings()[..4],
        [
            format!("{DEFAULT_FILE}:1: unknown section [defualt], ignored"),
            format!(
                "{DEFAULT_FILE}:4: unknown key \"cluster-subnet\" in section [default], ignored; did you mean \"cluster-subnets\"?"
            ),
            format!(
                "{DEFAULT_FILE}:5: unknown key \"encap-prot\" in section [default], ignored; did you mean \"encap-port\"?"
            ),
            format!("{DEFAULT_FILE}:7: unknown key \"address\" in section [ovnnorth], ignored"),
        ]
    );
    assert_eq!(s.config().egressip_healthcheck_tls.client_privkey.as_deref(), Some("/k".as_ref()));
}

#[test]
fn other_names() {
    assert_eq!(
        start(&["--cluster-subnet=10.1.0.0/16"]).warnings(),
        ["--cluster-subnet is deprecated; use --cluster-subnets"]
    );
    let s = start(&[]).ini("[kubernetes]\nmetrics-bind-address=:9410\nservice-cidr=10.96.0.0/16");
    assert_eq!(s.config().metrics.bind_address.map(|a| a.port), Some(9410));
    assert_eq!(s.config().kubernetes.service_cidrs[0].to_string(), "10.96.0.0/16");
    let s = start(&[]).env("K8S_NODE", "n1").env("POD_NAME", "p").env("K8S_NODE_DPU", "");
    assert_eq!(
        (s.config().process.k8s_node.as_deref(), s.config().process.pod_name.as_deref()),
        (Some("n1"), Some("p"))
    );
    assert_eq!(s.config().origin("k8s-node-dpu"), Some(&Origin::Default));
}

#[test]
fn features_not_built_are_named_once_with_all_their_settings() {
    let s = start(&[
        "--enable-multicast",
        "--netflow-targets=1.2.3.4:99,:7",
        "--ipfix-sampling=1",
        "--ipfix-cache-max-flows=0",
    ]);
    let unbuilt = |name: &str| config::features::feature(name).is_some_and(|f| !f.built);
    let mut expected = Vec::new();
    if unbuilt("flow-export") {
        expected.push("NetFlow, sFlow and IPFIX: not built yet, so this has no effect: --netflow-targets, --ipfix-sampling".to_owned());
    }
    if unbuilt("multicast") {
        expected.push("multicast: not built yet, so this has no effect: --enable-multicast".to_owned());
    }
    assert_eq!(s.warnings(), expected);
}
