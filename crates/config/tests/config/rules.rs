//! Every rule of validation with the message an operator gets.

use crate::{DEFAULT_FILE, start};
use config::NamedRange;

#[test]
fn rules() {
    let cases: &[(&[&str], &str)] = &[
        // roles
        (
            &["--init-cluster-manager=a", "--init-node=n"],
            "--init-cluster-manager cannot be combined with --init-ovnkube-controller or --init-node",
        ),
        (&["--cleanup-node=n", "--init-node=n"], "--cleanup-node cannot be combined with another role"),
        (
            &["--init-ovnkube-controller=a", "--init-node=b"],
            "\"a\" and --init-node \"b\" name different nodes",
        ),
        (&["--init-node=Node_1"], "--init-node \"Node_1\" is not a node name"),
        (
            &["--cluster-manager-ha-election-renew-deadline=200"],
            "--cluster-manager-ha-election-lease-duration \"137\" (from default) must be longer than --cluster-manager-ha-election-renew-deadline \"200\" (from command line)",
        ),
        // ranges
        (
            &["--cluster-subnets=10.96.0.0/12/24", "--k8s-service-cidr=10.100.0.0/16"],
            "10.96.0.0/12 of the cluster range (--cluster-subnets, from command line) overlaps 10.100.0.0/16 of the service range (--k8s-service-cidrs, from command line); change --cluster-subnets or change --k8s-service-cidrs",
        ),
        (
            &["--cluster-subnets=100.64.0.0/10/24"],
            "overlaps 100.64.0.0/16 of the join range (--gateway-v4-join-subnet, from default)",
        ),
        (
            &["--cluster-manager-v4-transit-subnet=100.64.3.0/24"],
            "overlaps 100.64.3.0/24 of the transit range (--cluster-manager-v4-transit-subnet, from command line)",
        ),
        (
            &["--gateway-v4-masquerade-subnet=172.16.1.128/25"],
            "172.16.1.0/24 of the service range (--k8s-service-cidrs, from default) overlaps 172.16.1.128/25 of the masquerade range",
        ),
        (
            &["--cluster-subnets=10.0.0.0/16,10.0.128.0/17"],
            "10.0.0.0/16 of the cluster range (--cluster-subnets, from command line) overlaps 10.0.128.0/17 of the cluster range",
        ),
        (
            &["--enable-hybrid-overlay", "--hybrid-overlay-cluster-subnets=10.129.0.0/16/24"],
            "of the hybrid overlay range (--hybrid-overlay-cluster-subnets, from command line)",
        ),
        (
            &["--enable-multi-network", "--enable-network-segmentation", "--cluster-subnets=100.65.0.0/17"],
            "join range of user-defined networks (fixed)",
        ),
        // families
        (
            &["--cluster-subnets=fd01::/48"],
            "--cluster-subnets \"fd01::/48\" (from command line) is IPv6 but --k8s-service-cidrs \"172.16.1.0/24\" (from default) is IPv4; give both the same address families",
        ),
        (
            &["--k8s-service-cidr=10.96.0.0/16,fd02::/112"],
            "is IPv4 but --k8s-service-cidrs \"10.96.0.0/16,fd02::/112\" (from command line) is dual-stack",
        ),
        (
            &["--k8s-service-cidr=10.96.0.0/16,10.97.0.0/16"],
            "has 2 IPv4 prefixes; Kubernetes has at most one service prefix a family",
        ),
        (
            &["--cluster-subnets=10.1.0.0/16/24,10.2.0.0/16/25"],
            "gives nodes a /24 from 10.1.0.0/16 but a /25 from 10.2.0.0/16; use the same host prefix",
        ),
        (&["--cluster-subnets=fd01::/48/80"], "IPv6 nodes need exactly /64"),
        // gateway
        (
            &["--gateway-mode=local", "--gateway-vlanid=7"],
            "--gateway-vlanid \"7\" (from command line) works only with --gateway-mode=shared, not with --gateway-mode \"local\"",
        ),
        (&["--gateway-vlanid=7"], "works only with --gateway-mode=shared, not with no gateway"),
        (&["--gateway-vlanid=4095"], "is not a VLAN id"),
        (
            &["--gateway-interface=eth0"],
            "--gateway-interface \"eth0\" (from command line) is given but the gateway is disabled",
        ),
        (&["--gateway-nexthop=1.2.3.4"], "is given but the gateway is disabled"),
        (&["--ephemeral-port-range=1-2"], "is given but the gateway is disabled"),
        (
            &["--gateway-mode=shared", "--gateway-nexthop=1.2.3.4,1.2.3.5"],
            "has 2 IPv4 addresses; give at most one a family",
        ),
        (&["--gateway-mode=bridged"], "is not one of shared, local"),
        // node
        (
            &["--enable-hybrid-overlay", "--ovnkube-node-mode=dpu"],
            "--enable-hybrid-overlay \"true\" (from command line) does not work with --ovnkube-node-mode \"dpu\"",
        ),
        (
            &["--ovnkube-node-mode=dpu-host"],
            "needs --ovnkube-node-mgmt-port-netdev or --ovnkube-node-mgmt-port-dp-resource-name",
        ),
        (
            &[
                "--ovnkube-node-mode=dpu-host",
                "--ovnkube-node-mgmt-port-netdev=x",
                "--enable-multi-network",
                "--enable-network-segmentation",
            ],
            "needs --ovnkube-node-mgmt-port-dp-resource-name",
        ),
        (&["--ovnkube-node-mode=dpu", "--ovnkube-node-mgmt-port-netdev=x"], "belongs on the host"),
        (&["--dpu-node-lease-duration=10"], "must be longer than --dpu-node-lease-renew-interval"),
        (&["--ovnkube-node-routing-table-id-start=999"], "it must be 1000 to 2147483647"),
        (
            &["--node-server-cert=/c"],
            "--node-server-cert \"/c\" (from command line) needs --node-server-privkey beside it",
        ),
        (&["--node-server-privkey=/c"], "needs --node-server-cert beside it"),
        (&["--hybrid-overlay-vxlan-port=65536"], "it must be 1 to 65535"),
        // switches
        (
            &["--enable-network-segmentation"],
            "needs --enable-multi-network; set it or turn --enable-network-segmentation off",
        ),
        (
            &["--enable-uplink"],
            "--enable-uplink \"true\" (from command line) needs --enable-network-segmentation",
        ),
        (&["--enable-dynamic-udn-allocation"], "needs --enable-network-segmentation"),
        (&["--enable-evpn"], "needs --enable-route-advertisements"),
        (&["--transport=no-overlay"], "needs --enable-route-advertisements"),
        (&["--transport=no-overlay"], "needs outbound-snat in section [no-overlay] of the file"),
        (&["--transport=no-overlay"], "needs routing in section [no-overlay] of the file"),
        // single values
        (&["--platform-type=aws"], "is not one of AWS, Azure"),
        (&["--tls-min-version=1.2"], "is not one of VersionTLS10"),
        (&["--metrics-bind-address=host:1"], "is not an address; write IP:PORT"),
        (&["--nodeport=maybe"], "--nodeport \"maybe\" (from command line) is not a boolean"),
        (&["--cni-version=2.0.0"], "is not one of 0.3.1, 0.4.0, 1.0.0, 1.1.0"),
        (&["--encap-ip=1.2.3"], "has \"1.2.3\", which is not an IP address"),
    ];
    for (args, part) in cases {
        let error = start(args).error();
        assert!(error.contains(part), "{args:?}\n  expected {part}\n  got {error}");
    }
}

#[test]
fn what_the_rules_allow() {
    for args in [
        &["--enable-hybrid-overlay", "--hybrid-overlay-cluster-subnets=11.0.0.0/16/24"][..],
        &["--hybrid-overlay-cluster-subnets=10.129.0.0/16/24"],
        &["--dpu-node-lease-duration=0"],
        &["--ovnkube-node-mode=dpu-host", "--ovnkube-node-mgmt-port-netdev=x"],
        &[
            "--gateway-mode=shared",
            "--gateway-vlanid=7",
            "--gateway-nexthop=1.2.3.4,fe80::1",
            "--ephemeral-port-range=1-2",
        ],
        &["--cluster-subnets=fd01::/48", "--k8s-service-cidr=fd02::/112"],
        &["--enable-route-advertisements", "--enable-evpn"],
        &["--init-cluster-manager=any name"],
        &["--cluster-subnets=10.1.0.0/16,10.2.0.0/16/24"],
    ] {
        assert!(start(args).load().is_ok(), "{args:?}: {}", start(args).error());
    }
}

#[test]
fn no_overlay_is_managed_or_not() {
    let args = ["--transport=no-overlay", "--enable-route-advertisements"];
    let ini = |extra: &str| start(&args).ini(&format!("[no-overlay]\noutbound-snat=enabled\n{extra}"));
    assert!(ini("routing=unmanaged").load().is_ok());
    assert!(
        ini("routing=managed")
            .error()
            .contains(&format!("(from {DEFAULT_FILE}:3) needs frr-namespace in section [bgp-managed]"))
    );
    assert!(ini("routing=managed\n[bgp-managed]\nfrr-namespace=frr").load().is_ok());
}

#[test]
fn everything_wrong_is_reported_at_once() {
    let error = start(&["--mtu=x", "--encap-port=0", "--loglevel=77"]).error();
    assert!(error.starts_with("3 problems in the configuration:\n  - "), "{error}");
    let error = start(&["--enable-evpn", "--gateway-vlanid=7"]).error();
    assert!(error.contains("2 problems"), "{error}");
}

#[test]
fn a_range_from_the_file_is_named_with_its_line() {
    let error = start(&[]).ini("[default]\ncluster-subnets = 172.16.0.0/12/24").error();
    assert_eq!(
        error,
        format!(
            "172.16.0.0/12 of the cluster range (--cluster-subnets, from {DEFAULT_FILE}:2) overlaps 172.16.1.0/24 of the \
             service range (--k8s-service-cidrs, from default); change cluster range at {DEFAULT_FILE}:2 or change \
             --k8s-service-cidrs"
        )
    );
}

#[test]
fn node_addresses_are_checked_against_the_ranges() {
    let config = start(&[]).config();
    let node =
        |net: &str| NamedRange::new(net.parse().unwrap(), "addresses of node \"n1\"", "readdress the node");
    assert!(config.check_ranges(&[node("192.168.1.0/24")]).is_ok());
    let error =
        config.check_ranges(&[node("192.168.1.0/24"), node("10.130.0.7/24")]).unwrap_err().to_string();
    assert_eq!(
        error,
        "10.128.0.0/14 of the cluster range (--cluster-subnets, from default) overlaps 10.130.0.0/24 of the addresses of \
         node \"n1\"; change --cluster-subnets or readdress the node"
    );
}

#[test]
fn the_kernels_ports_are_used_where_none_are_given() {
    let proc = "/proc/sys/net/ipv4/ip_local_port_range";
    let s = start(&["--gateway-mode=shared"]).file(proc, "32768\t60999\n");
    assert_eq!(
        s.config().gateway.ephemeral_port_range.map(|r| r.to_string()).as_deref(),
        Some("32768-60999")
    );
    assert_eq!(
        s.config().origin("ephemeral-port-range").map(ToString::to_string).as_deref(),
        Some(&*format!("kernel {proc}"))
    );
    assert_eq!(
        start(&["--gateway-mode=shared"]).file(proc, "what").config().gateway.ephemeral_port_range,
        None
    );
    assert_eq!(start(&[]).file(proc, "1 2").config().gateway.ephemeral_port_range, None);
}

#[test]
fn a_small_mtu_warns() {
    assert!(start(&["--mtu=500"]).warnings()[0].contains("below 576"));
    let v6 = ["--mtu=1200", "--cluster-subnets=fd01::/48", "--k8s-service-cidr=fd02::/112"];
    assert!(start(&v6).warnings()[0].contains("below 1280"));
}
