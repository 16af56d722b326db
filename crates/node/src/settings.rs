//! What the node agent is told at start. Every value is already validated by the caller.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use kapi::annotations::GatewayMode;

use crate::encap_port;
use crate::fault::{Job, KillPoint};

/// Settings of one node agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of our Node object. It also becomes `external_ids:hostname`, whatever the machine calls itself.
    pub node: String,
    /// The local Open_vSwitch database, e.g. `unix:/var/run/openvswitch/db.sock`.
    pub ovs_db: String,
    /// Where ovn-controller finds the Southbound database (`ovn-remote`).
    pub ovn_remote: String,
    /// The local Northbound database, asked only to explain why a port is not installed.
    pub ovn_nb: String,
    /// Directory of ovn-controller's control socket; at the start it is asked there whether it is connected. `None`
    /// where it cannot be asked.
    pub ovn_run_dir: Option<PathBuf>,
    /// The cluster's pod CIDRs; each is routed through the management port.
    pub cluster_subnets: Vec<IpNet>,
    /// The cluster's service CIDRs.
    pub service_cidrs: Vec<IpNet>,
    /// MTU of pod interfaces and of the management port.
    pub mtu: u32,
    /// MTU put on routes while the MTU is being migrated; 0 = none.
    pub routable_mtu: u32,
    /// Tunnels.
    pub encap: Encap,
    /// ovn-controller's tuning.
    pub ovn_controller: OvnController,
    /// Programs of others.
    pub programs: Programs,
    /// The way in and out of the cluster on this node.
    pub gateway: Gateway,
    /// The CNI configuration file.
    pub cni_conf: CniConf,
    /// Whether the agent watches its pods itself. Off when a controller in the same process feeds the board.
    pub watch_pods: bool,
    /// Whether the agent watches services itself. Off when a controller in the same process tells them.
    pub watch_services: bool,
    /// Pods plumb themselves in the shim; the agent's server only hands out the facts.
    pub unprivileged: bool,
    /// Directory of the CNI server's socket.
    pub cni_dir: PathBuf,
    /// Bound of one CNI ADD.
    pub cni_add_timeout: Duration,
    /// How long to wait for Open vSwitch before giving up with an error that says how to start it.
    pub ovs_wait: Duration,
    /// File in which the distribution's start scripts keep the system id.
    pub system_id_file: PathBuf,
    /// Where a test wants the process to die.
    pub kill_before: Option<KillPoint>,
}

/// Tunnel settings.
#[derive(Debug, Clone)]
pub struct Encap {
    /// `geneve`.
    pub kind: String,
    /// Local tunnel addresses; empty = the node's own address.
    pub ips: Vec<IpAddr>,
    /// UDP port of the tunnels.
    pub port: u16,
    /// Overlay packets are not tunnelled at all (`transport no-overlay`, or the only node of its cluster).
    pub none: bool,
}

/// Settings passed on to ovn-controller through the Open_vSwitch row.
#[derive(Debug, Clone)]
pub struct OvnController {
    /// Probe of the Southbound connection, milliseconds.
    pub inactivity_probe_ms: u64,
    /// Probe of the OpenFlow connection, seconds; 0 = off.
    pub openflow_probe_s: u64,
    /// Monitor the whole Southbound database instead of conditionally.
    pub monitor_all: bool,
    /// Milliseconds to wait after connecting before flows are cleared.
    pub ofctrl_wait_before_clear_ms: u64,
    /// Cache translated logical flows.
    pub lflow_cache: bool,
    /// Entries in that cache; 0 = unlimited.
    pub lflow_cache_limit: u64,
    /// KiB in that cache; 0 = unlimited.
    pub lflow_cache_limit_kb: u64,
}

impl Default for OvnController {
    fn default() -> Self {
        OvnController {
            inactivity_probe_ms: 100_000,
            openflow_probe_s: 0,
            monitor_all: true,
            ofctrl_wait_before_clear_ms: 0,
            lflow_cache: true,
            lflow_cache_limit: 0,
            lflow_cache_limit_kb: 0,
        }
    }
}

/// The gateway: what the agent sets up on the host and tells the other nodes.
#[derive(Debug, Clone)]
pub struct Gateway {
    /// Mode.
    pub mode: GatewayMode,
    /// Bridge or interface; empty = the interface of the default route.
    pub interface: String,
    /// Second bridge or interface, for external gateways; empty = none.
    pub external_interface: String,
    /// Next hops that replace those of the default routes.
    pub next_hops: Vec<IpAddr>,
    /// VLAN of the uplink; 0 = untagged.
    pub vlan_id: u16,
    /// NodePorts are served.
    pub node_port: bool,
    /// The check for too large packets on the way out is switched off.
    pub disable_packet_mtu_check: bool,
    /// The node is no router for others: it forwards only what is the cluster's.
    pub disable_forwarding: bool,
    /// Egress IPs are in use.
    pub egress_ip: bool,
    /// Egress services are in use.
    pub egress_service: bool,
    /// Pods keep their own address towards the outside unless a translation of their own says otherwise.
    pub snat_per_pod: bool,
    /// The bridge need not have a network card.
    pub allow_no_uplink: bool,
    /// First of the conntrack zones of the bridge.
    pub conntrack_zone: u16,
    /// IPv4 addresses internal to each node.
    pub masquerade_v4: Ipv4Net,
    /// IPv6 addresses internal to each node.
    pub masquerade_v6: Ipv6Net,
}

/// Programs that are started to change flows and firewall; names without a path are looked up in `PATH`.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `ovs-ofctl`.
    pub ovs_ofctl: PathBuf,
    /// `nft`.
    pub nft: PathBuf,
}

impl Default for Programs {
    fn default() -> Self {
        Programs { ovs_ofctl: PathBuf::from("ovs-ofctl"), nft: PathBuf::from("nft") }
    }
}

/// The file that tells the container runtime to use our plugin.
#[derive(Debug, Clone)]
pub struct CniConf {
    /// Directory, `/etc/cni/net.d`.
    pub dir: PathBuf,
    /// Version of the CNI specification the runtime is to speak; containerd 1.6 needs 1.0.0.
    pub version: String,
    /// Name of the plugin's binary.
    pub plugin: String,
    /// The shim's log file; empty = none.
    pub log_file: String,
    /// The shim's log level.
    pub log_level: String,
    /// MB after which its log is rotated.
    pub log_max_size: u32,
    /// Rotated files kept.
    pub log_max_backups: u32,
    /// Days they are kept.
    pub log_max_age: u32,
}

impl Default for CniConf {
    fn default() -> Self {
        CniConf {
            dir: PathBuf::from("/etc/cni/net.d"),
            version: "1.1.0".to_owned(),
            plugin: "ovn-k8s-cni-overlay".to_owned(),
            log_file: "/var/log/ovn-kubernetes/ovn-k8s-cni-overlay.log".to_owned(),
            log_level: "4".to_owned(),
            log_max_size: 100,
            log_max_backups: 5,
            log_max_age: 5,
        }
    }
}

impl Settings {
    /// Settings of a node in a cluster with these CIDRs; everything else has the documented default.
    pub fn new(node: impl Into<String>, cluster_subnets: Vec<IpNet>, service_cidrs: Vec<IpNet>) -> Self {
        Settings {
            node: node.into(),
            ovs_db: "unix:/var/run/openvswitch/db.sock".to_owned(),
            ovn_remote: "unix:/var/run/ovn/ovnsb_db.sock".to_owned(),
            ovn_run_dir: Some(PathBuf::from("/var/run/ovn")),
            ovn_nb: "unix:/var/run/ovn/ovnnb_db.sock".to_owned(),
            cluster_subnets,
            service_cidrs,
            mtu: 1400,
            routable_mtu: 0,
            encap: Encap {
                kind: "geneve".to_owned(),
                ips: Vec::new(),
                port: encap_port::DEFAULT,
                none: false,
            },
            ovn_controller: OvnController::default(),
            programs: Programs::default(),
            gateway: Gateway::default(),
            cni_conf: CniConf::default(),
            watch_pods: true,
            watch_services: true,
            unprivileged: false,
            cni_dir: PathBuf::from("/var/run/ovn-kubernetes/cni"),
            cni_add_timeout: Duration::from_secs(120),
            ovs_wait: Duration::from_secs(300),
            system_id_file: PathBuf::from("/etc/openvswitch/system-id.conf"),
            kill_before: None,
        }
    }

    /// Called before each step of a job that a test may want to break off.
    pub(crate) fn before_step_of(&self, job: Job) {
        if let Some(point) = &self.kill_before {
            point.before_step_of(job);
        }
    }

    /// Whether the cluster hands out addresses of the family of `ip`.
    pub fn has_family_of(&self, ip: IpAddr) -> bool {
        self.cluster_subnets.iter().any(|net| net.addr().is_ipv4() == ip.is_ipv4())
    }

    /// Whether pods have IPv6 addresses.
    pub fn has_v6(&self) -> bool {
        self.cluster_subnets.iter().any(|net| net.addr().is_ipv6())
    }
}

impl Default for Gateway {
    fn default() -> Self {
        Gateway {
            mode: GatewayMode::Shared,
            interface: String::new(),
            external_interface: String::new(),
            next_hops: Vec::new(),
            vlan_id: 0,
            node_port: false,
            disable_packet_mtu_check: false,
            disable_forwarding: false,
            egress_ip: false,
            egress_service: false,
            snat_per_pod: false,
            allow_no_uplink: false,
            conntrack_zone: 64_000,
            masquerade_v4: Ipv4Net::new_assert(std::net::Ipv4Addr::new(169, 254, 169, 0), 29),
            masquerade_v6: Ipv6Net::new_assert(std::net::Ipv6Addr::new(0xfd69, 0, 0, 0, 0, 0, 0, 0), 125),
        }
    }
}
