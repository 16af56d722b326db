//! The overlay, its databases, CNI and flow export.

use crate::codec::*;
use crate::spec::section;
use std::{net::IpAddr, path::PathBuf, time::Duration};

section! {
    /// `[default]`: the pod network and ovn-controller's settings.
    Default, "Pod network";
    /// Prefixes of the pod network and the length of each node's piece; IPv4 nodes get a /24 where no length is given, IPv6 nodes always a /64.
    cluster_subnets: Vec<ClusterSubnet> [ClusterSubnets] = "cluster-subnets", ["default.cluster-subnets"], "10.128.0.0/14/23" { aliases: &["cluster-subnet"], deprecated: &["cluster-subnet"] };
    /// MTU of pod interfaces.
    mtu: u32 [Number<0, 65535, u32>] = "mtu", ["default.mtu"], "1400" { placeholder: "BYTES" };
    /// MTU to put on routes of pods and the management port while the MTU is being changed; 0 for none.
    routable_mtu: u32 [Number<0, 65535, u32>] = "routable-mtu", ["default.routable-mtu"], "0" { placeholder: "BYTES" };
    /// First of the five conntrack zones of the gateway bridge.
    conntrack_zone: u16 [Number<0, 65531, u16>] = "conntrack-zone", ["default.conntrack-zone"], "64000" { placeholder: "ZONE", feature: Some("gateway") };
    /// Tunnel protocol between nodes.
    encap_type: EncapType [Choice<EncapType>] = "encap-type", ["default.encap-type"], "geneve";
    /// Tunnel addresses of this node; unset takes the node's address.
    encap_ip: Vec<IpAddr> [Addresses] = "encap-ip", ["default.encap-ip"], "";
    /// UDP port of the tunnels.
    encap_port: u16 [Number<1, 65535, u16>] = "encap-port", ["default.encap-port"], "6081" { placeholder: "PORT" };
    /// Probe interval from ovn-controller to the Southbound database; 0 disables.
    inactivity_probe: Duration [Millis] = "inactivity-probe", ["default.inactivity-probe"], "100000";
    /// Probe interval from ovn-controller to the integration bridge; 0 disables.
    openflow_probe: Duration [Seconds] = "openflow-probe", ["default.openflow-probe"], "0";
    /// Time ovn-controller waits before it clears old flows after a restart.
    ofctrl_wait_before_clear: Duration [Millis] = "ofctrl-wait-before-clear", ["default.ofctrl-wait-before-clear"], "0";
    /// Let ovn-controller watch the whole Southbound database.
    monitor_all: bool [Bool] = "monitor-all", ["default.monitor-all"], "true";
    /// Time after which a database transaction is given up.
    db_txn_timeout: Duration [GoDuration] = "db-txn-timeout", ["default.db-txn-timeout"], "100s";
    /// Let ovn-controller cache logical flows.
    enable_lflow_cache: bool [Bool] = "enable-lflow-cache", ["default.enable-lflow-cache"], "true";
    /// Logical flows in that cache; 0 for no limit.
    lflow_cache_limit: u64 [Number<0, 4_294_967_295, u64>] = "lflow-cache-limit", ["default.lflow-cache-limit"], "0";
    /// Size of that cache in kilobytes; 0 for no limit.
    lflow_cache_limit_kb: u64 [Number<0, 4_294_967_295, u64>] = "lflow-cache-limit-kb", ["default.lflow-cache-limit-kb"], "0" { placeholder: "KB" };
    /// How pod traffic crosses nodes: unset for the overlay, or no-overlay.
    transport: Option<Transport> [OptionalChoice<Transport>] = "transport", ["default.transport"], "" { feature: Some("no-overlay") };
    /// Network attachment that stands for the default network; unset is `default` in the namespace of ovn-config-namespace.
    cluster_default_nad: Vec<NamespacedName> [Names] = "cluster-default-nad", ["default.cluster-default-nad"], "" { placeholder: "NAMESPACE/NAME", feature: Some("multi-network") };
    /// Services of the default network that pods of user-defined networks may reach.
    udn_allowed_default_services: Vec<NamespacedName> [Names] = "udn-allowed-default-services", ["default.udn-allowed-default-services"], "default/kubernetes,kube-system/kube-dns" { feature: Some("network-segmentation") };
    /// Let the kernel join small UDP packets.
    enable_udp_aggregation: bool [Bool] = "enable-udp-aggregation", ["default.enable-udp-aggregation"], "false" { flag: false, feature: Some("udp-aggregation") };
    /// Support multicast between pods.
    enable_multicast: bool [Bool] = "enable-multicast", [], "false" { feature: Some("multicast") };
}

section! {
    /// `[ovnnorth]`: the local Northbound database.
    Northbound, "Databases";
    /// Directory of the Northbound database's socket.
    run_dir: PathBuf [Path] = "nb-run-dir", ["ovnnorth.run-dir"], "/var/run/ovn/";
    /// File of the Northbound database.
    db_location: PathBuf [Path] = "nb-db-location", ["ovnnorth.db-location"], "/etc/ovn/ovnnb_db.db";
}

section! {
    /// `[ovnsouth]`: the local Southbound database.
    Southbound, "Databases";
    /// Directory of the Southbound database's socket.
    run_dir: PathBuf [Path] = "sb-run-dir", ["ovnsouth.run-dir"], "/var/run/ovn/";
    /// File of the Southbound database.
    db_location: PathBuf [Path] = "sb-db-location", ["ovnsouth.db-location"], "/etc/ovn/ovnsb_db.db";
}

section! {
    /// `[ovspaths]`: Open vSwitch.
    OvsPaths, "Databases";
    /// Directory of Open vSwitch's sockets.
    run_dir: PathBuf [Path] = "ovs-run-dir", ["ovspaths.run-dir"], "/var/run/openvswitch/";
}

section! {
    /// `[cni]`
    Cni, "CNI";
    /// Directory of the CNI configuration.
    conf_dir: PathBuf [Path] = "cni-conf-dir", ["cni.conf-dir"], "/etc/cni/net.d";
    /// Name of the CNI plugin in that configuration.
    plugin: String [Text] = "cni-plugin", ["cni.plugin"], "ovn-k8s-cni-overlay";
    /// Version in that configuration; lower it for a container runtime that does not know 1.1.0.
    version: CniVersion [Choice<CniVersion>] = "cni-version", ["cni.version"], "1.1.0";
    /// How long attaching a pod may take before it fails and says what is missing; the kubelet gives up after 2 minutes.
    add_timeout: Duration [GoDuration] = "cni-add-timeout", ["cni.add-timeout"], "120s";
}

section! {
    /// `[monitoring]`: flow export.
    Monitoring, "Flow export";
    /// NetFlow collectors.
    netflow_targets: Vec<Listen> [Targets] = "netflow-targets", ["monitoring.netflow-targets"], "" { feature: Some("flow-export") };
    /// sFlow collectors.
    sflow_targets: Vec<Listen> [Targets] = "sflow-targets", ["monitoring.sflow-targets"], "" { feature: Some("flow-export") };
    /// IPFIX collectors.
    ipfix_targets: Vec<Listen> [Targets] = "ipfix-targets", ["monitoring.ipfix-targets"], "" { feature: Some("flow-export") };
}

section! {
    /// `[ipfix]`
    Ipfix, "Flow export";
    /// Sample one of this many packets.
    sampling: u32 [Number<0, 4_294_967_295, u32>] = "ipfix-sampling", ["ipfix.sampling"], "400" { feature: Some("flow-export") };
    /// Flows in the cache; 0 disables it.
    cache_max_flows: u32 [Number<0, 4_294_967_295, u32>] = "ipfix-cache-max-flows", ["ipfix.cache-max-flows"], "0" { feature: Some("flow-export") };
    /// Time a flow may stay in the cache; 0 disables it.
    cache_active_timeout: Duration [Seconds] = "ipfix-cache-active-timeout", ["ipfix.cache-active-timeout"], "60" { feature: Some("flow-export") };
}
