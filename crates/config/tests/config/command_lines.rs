//! The two command lines by which the reference and we are measured, and the flags its start script passes.

use crate::start;
use config::{ApiAccess, GatewayMode, Origin};
use std::time::Duration;

const COMMON: &str = "--cluster-subnets 10.244.0.0/16/24 --k8s-service-cidr=10.96.0.0/16 \
    --host-network-namespace ovn-host-network --ovn-config-namespace ovn-kubernetes --gateway-mode=shared \
    --k8s-apiserver https://172.18.0.254:6443 --k8s-token TOKEN --k8s-cacert /ca.crt --loglevel=4 --enable-egress-ip \
    --enable-egress-firewall --enable-egress-qos --enable-multi-external-gateway --enable-network-qos";

fn command_line(first: &str, rest: &str) -> crate::Start {
    let words: Vec<&str> =
        first.split(' ').chain(COMMON.split_whitespace()).chain(rest.split_whitespace()).collect();
    start(&words).file("/ca.crt", "-----BEGIN CERTIFICATE-----\n")
}

#[test]
fn the_cluster_managers() {
    let start =
        command_line("--init-cluster-manager node1", "--metrics-bind-address 127.0.0.1:9411 --logfile /l");
    let config = start.config();
    assert_eq!(config.roles.cluster_manager.as_deref(), Some("node1"));
    assert_eq!((&config.roles.node, &config.roles.ovnkube_controller), (&None, &None));
    assert_eq!(config.default.cluster_subnets[0].to_string(), "10.244.0.0/16/24");
    assert_eq!(config.kubernetes.service_cidrs[0].to_string(), "10.96.0.0/16");
    assert_eq!(config.kubernetes.host_network_namespace.as_deref(), Some("ovn-host-network"));
    assert_eq!(config.kubernetes.ovn_config_namespace, "ovn-kubernetes");
    assert_eq!(config.metrics.bind_address.map(|a| a.to_string()).as_deref(), Some("127.0.0.1:9411"));
    assert_eq!(config.logging.logfile.as_deref(), Some("/l".as_ref()));
    assert_eq!(config.logging.loglevel, 4);
    assert!(config.features.egress_ip && config.features.egress_firewall && config.features.egress_qos);
    assert!(config.features.multi_external_gateway && config.features.network_qos);
    let ApiAccess::Server { url, ca_pem, token, token_file } = &config.api else {
        panic!("{:?}", config.api)
    };
    assert_eq!(url, "https://172.18.0.254:6443");
    assert_eq!(token.as_ref().map(config::Secret::expose), Some("TOKEN"));
    assert!(ca_pem.is_some() && token_file.is_none());
    assert_eq!(config.cluster_manager_ha.lease_duration, Duration::from_secs(137));
}

#[test]
fn a_nodes() {
    let start = command_line(
        "--init-ovnkube-controller node1 --init-node node1",
        "--gateway-interface=breth0 --mtu=1342 --nodeport --encap-ip=172.18.0.1 --metrics-bind-address 127.0.0.1:9410 \
         --ovn-metrics-bind-address 127.0.0.1:9476 --export-ovs-metrics --inactivity-probe=180000 \
         --pidfile /var/run/ovn/ovnkube.pid --logfile /l",
    );
    let config = start.config();
    assert_eq!(config.roles.node.as_deref(), Some("node1"));
    assert_eq!(config.roles.ovnkube_controller.as_deref(), Some("node1"));
    assert_eq!(config.gateway.mode, Some(GatewayMode::Shared));
    assert_eq!(config.gateway.interface.as_deref(), Some("breth0"));
    assert!(config.gateway.nodeport && config.metrics.export_ovs_metrics);
    assert_eq!(config.default.mtu, 1342);
    assert_eq!(config.default.encap_ip, ["172.18.0.1".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(config.default.inactivity_probe, Duration::from_secs(180));
    assert_eq!(config.metrics.ovn_bind_address.map(|a| a.port), Some(9476));
    assert_eq!(config.process.pidfile.as_deref(), Some("/var/run/ovn/ovnkube.pid".as_ref()));
    assert_eq!(config.origin("mtu"), Some(&Origin::Flag));
    assert_eq!(config.origin("encap-port"), Some(&Origin::Default));
    assert_eq!(config.origin("no-such"), None);
    // One warning for each feature, not for each flag.
    let warnings = start.warnings();
    let about = |feature: &str| warnings.iter().filter(|w| w.starts_with(feature)).count();
    assert!(about("EgressIP:") <= 1 && about("the gateway:") <= 1, "{warnings:?}");
}

#[test]
fn flags_of_the_start_script() {
    // As the script passes them: every variable, the unset ones empty.
    let config = start(&[
        "--init-ovnkube-controller=n1",
        "--cluster-subnets",
        "10.128.0.0/14/23,fd01::/48/64",
        "--k8s-service-cidrs",
        "172.30.0.0/16,fd02::/112",
        "--gateway-v4-masquerade-subnet=169.254.0.0/17",
        "--gateway-v6-masquerade-subnet=fd69::/112",
        "--logfile-maxsize=100",
        "--logfile-maxbackups=5",
        "--logfile-maxage=5",
        "--enable-lflow-cache=true",
        "--lflow-cache-limit=",
        "--ofctrl-wait-before-clear=",
        "--monitor-all=",
        "--netflow-targets=",
        "--k8s-token",
        "",
        "--gateway-interface=",
        "--metrics-bind-address=0.0.0.0:9409",
        "--metrics-enable-pprof",
        "--egressip-node-healthcheck-port=9107",
        "--advertised-udn-isolation-mode=strict",
        "--acl-logging-rate-limit=20",
        "--hybrid-overlay-cluster-subnets=",
        "--bootstrap-kubeconfig=/host-kubernetes/kubelet.conf",
        "--cert-dir=/var/run/ovn-kubernetes/certs",
        "--cert-duration=24h",
        "--cluster-default-nad=ovn-kubernetes/default",
        "--routable-mtu=",
    ])
    .config();
    assert_eq!(config.features.egressip_node_healthcheck_port, 9107);
    assert!(config.default.monitor_all && config.gateway.interface.is_none());
    assert_eq!(config.kubernetes.cert_duration, Duration::from_secs(86_400));
}

#[test]
fn defaults_are_the_references() {
    let config = start(&[]).config();
    assert_eq!(config.default.cluster_subnets[0].to_string(), "10.128.0.0/14/23");
    assert_eq!(
        (config.default.mtu, config.default.encap_port, config.default.conntrack_zone),
        (1400, 6081, 64000)
    );
    assert_eq!(config.default.inactivity_probe, Duration::from_secs(100));
    assert_eq!(config.default.db_txn_timeout, Duration::from_secs(100));
    assert!(config.default.monitor_all && config.default.enable_lflow_cache);
    assert_eq!(config.gateway.v4_join_subnet.to_string(), "100.64.0.0/16");
    assert_eq!(config.gateway.v6_masquerade_subnet.to_string(), "fd69::/125");
    assert_eq!(config.cluster_manager.v6_transit_subnet.to_string(), "fd97::/64");
    assert_eq!(config.cni.version.as_str(), "1.1.0");
    assert_eq!(config.default.cluster_default_nad[0].to_string(), "ovn-kubernetes/default");
    assert_eq!(config.default.udn_allowed_default_services.len(), 2);
    assert_eq!(config.gateway.mode, None);
    assert_eq!(config.features.udn_deletion_grace_period, Duration::from_secs(120));
}

/// A file as a distribution's operator writes it.
#[test]
fn a_distributions_file() {
    let start = start(&["--init-ovnkube-controller=n1", "--config-file=/run/ovnkube-config/ovnkube.conf"])
        .file(
            "/run/ovnkube-config/ovnkube.conf",
            "[default]
mtu=\"8901\"
cluster-subnets=\"10.128.0.0/14/23,fd01::/48/64\"
encap-port=\"6081\"
enable-lflow-cache=true
lflow-cache-limit-kb=1048576
enable-udp-aggregation=true
udn-allowed-default-services=\"default/kubernetes,openshift-dns/dns-default\"

[kubernetes]
service-cidrs=\"172.30.0.0/16,fd02::/112\"
ovn-config-namespace=\"openshift-ovn-kubernetes\"
apiserver=\"https://api-int.example.com:6443\"
host-network-namespace=\"openshift-host-network\"
platform-type=\"AWS\"
healthz-bind-address=\"0.0.0.0:10256\"
dns-service-namespace=\"openshift-dns\"
dns-service-name=\"dns-default\"

[ovnkubernetesfeature]
enable-egress-ip=true
egressip-reachability-total-timeout=1
egressip-node-healthcheck-port=9107
enable-multi-network=true
enable-network-segmentation=true
enable-admin-network-policy=true

[gateway]
mode=shared
nodeport=true
v4-join-subnet=\"100.68.0.0/16\"

[logging]
libovsdblogfile=/var/log/ovnkube/libovsdb.log
logfile-maxsize=100
acl-logging-rate-limit=20

[clustermgrha]
election-lease-duration=137
election-renew-deadline=107
election-retry-period=26
",
        );
    let config = start.config();
    assert_eq!((config.default.mtu, config.default.cluster_subnets.len()), (8901, 2));
    assert_eq!(config.kubernetes.platform_type.map(|p| p.assigns_egress_addresses()), Some(true));
    assert_eq!(
        config.kubernetes.healthz_bind_address.map(|a| a.to_string()).as_deref(),
        Some("0.0.0.0:10256")
    );
    assert_eq!(config.gateway.v4_join_subnet.to_string(), "100.68.0.0/16");
    assert!(start.warnings().iter().all(|w| w.contains("not built yet")), "{:?}", start.warnings());
}
