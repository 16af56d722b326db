//! From the configuration to the settings of each role.

use std::time::Duration;

use anyhow::Context;
use config::{ApiAccess, Config, GatewayMode, Transport};
use kapi::LabelSelector;
use net::{ClusterCidr, Dual, IpNet};
use ovsdb::Endpoint;

/// How to reach the API server.
pub(crate) fn kube(config: &Config, component: &str, host: &str) -> kube_io::Settings {
    let mut settings =
        kube_io::Settings { component: component.to_owned(), host: host.to_owned(), ..Default::default() };
    match &config.api {
        ApiAccess::Kubeconfig(path) => settings.kubeconfig = Some(path.clone()),
        ApiAccess::Server { url, ca_pem, token, token_file } => {
            settings.apiserver = Some(url.clone());
            settings.ca_data = ca_pem.clone();
            settings.token = token.as_ref().map(|token| token.expose().to_owned());
            settings.token_file = token_file.clone();
        }
    }
    settings
}

/// The cluster CIDRs with the prefix length of node subnets.
pub(crate) fn cluster(config: &Config) -> Vec<ClusterCidr> {
    let subnets = config.default.cluster_subnets.iter();
    subnets.map(|subnet| ClusterCidr { cidr: subnet.cidr, host_prefix: subnet.host_prefix }).collect()
}

fn pair(v4: impl Into<IpNet>, v6: impl Into<IpNet>) -> Dual<IpNet> {
    Dual { v4: Some(v4.into()), v6: Some(v6.into()) }
}

fn join(config: &Config) -> Dual<IpNet> {
    pair(config.gateway.v4_join_subnet, config.gateway.v6_join_subnet)
}

fn transit(config: &Config) -> Dual<IpNet> {
    pair(config.cluster_manager.v4_transit_subnet, config.cluster_manager.v6_transit_subnet)
}

fn masquerade(config: &Config) -> Dual<IpNet> {
    pair(config.gateway.v4_masquerade_subnet, config.gateway.v6_masquerade_subnet)
}

/// The cluster manager's.
pub(crate) fn cluster_manager(config: &Config, identity: &str) -> anyhow::Result<cluster_manager::Settings> {
    let selector = config.kubernetes.no_hostsubnet_nodes.as_deref().filter(|text| !text.is_empty());
    let no_subnet_nodes = selector
        .map(str::parse::<LabelSelector>)
        .transpose()
        .with_context(|| format!("{} is not a label selector", config.described("no-hostsubnet-nodes")))?;
    let ha = &config.cluster_manager_ha;
    let mut election = kube_io::ElectionSettings::new(&*config.kubernetes.ovn_config_namespace, identity);
    election.lease_duration = ha.lease_duration;
    election.renew_deadline = ha.renew_deadline;
    election.retry_period = ha.retry_period;
    let plan = cluster_manager::NetworkPlan {
        cluster: cluster(config),
        services: config.kubernetes.service_cidrs.clone(),
        join: join(config),
        transit: transit(config),
        masquerade: masquerade(config),
        no_subnet_nodes,
    };
    Ok(cluster_manager::Settings { election, plan })
}

/// The network controller's.
pub(crate) fn controller(config: &Config, node: &str) -> controller::Options {
    let settings = controller::Settings {
        node: node.to_owned(),
        cluster_cidrs: config.default.cluster_subnets.iter().map(|subnet| subnet.cidr).collect(),
        service_cidrs: config.kubernetes.service_cidrs.clone(),
        join: join(config),
        transit: transit(config),
        masquerade: masquerade(config),
        nat_ports: config.gateway.ephemeral_port_range.map(|range| (range.min, range.max)),
        snat_per_pod: config.gateway.disable_snat_multiple_gws,
        mtu: config.default.mtu,
        encap_port: config.default.encap_port,
        encap_type: config.default.encap_type.to_string(),
        requested_chassis: !config.kubernetes.disable_requestedchassis,
        acl_logging_rate: config.logging.acl_logging_rate_limit,
        multicast: config.default.enable_multicast,
        namespace_groups: config.features.egress_firewall || config.default.enable_multicast,
        service_templates: config.features.svc_template_support,
        empty_lb_events: config.kubernetes.ovn_empty_lb_events,
        hybrid_overlay: config.hybrid_overlay.enabled,
        policies: controller::PolicySettings {
            admin: config.features.admin_network_policy,
            stateless: config.features.stateless_netpol,
            allow_icmp: config.features.allow_icmp_network_policy,
            host_namespace: config.kubernetes.host_network_namespace.clone().unwrap_or_default(),
        },
    };
    controller::Options {
        settings,
        cluster: cluster(config),
        northbound: northbound(config),
        southbound: southbound(config),
    }
}

/// The Northbound database of this node.
pub(crate) fn northbound(config: &Config) -> ovsdb::Options {
    let socket = config.northbound.run_dir.join("ovnnb_db.sock");
    database(config, socket, "OVN_Northbound")
}

/// The Southbound database of this node.
pub(crate) fn southbound(config: &Config) -> ovsdb::Options {
    let socket = config.southbound.run_dir.join("ovnsb_db.sock");
    database(config, socket, "OVN_Southbound")
}

fn database(config: &Config, socket: std::path::PathBuf, name: &str) -> ovsdb::Options {
    let mut options = ovsdb::Options::new([Endpoint::Unix(socket)], name);
    options.rpc_timeout = config.default.db_txn_timeout;
    // The servers are started at the same time as we are: look again soon.
    options.backoff_max = Duration::from_secs(1);
    options
}

/// The node agent's.
pub(crate) fn node(config: &Config, name: &str) -> anyhow::Result<node::Settings> {
    let default = &config.default;
    let cluster_subnets: Vec<IpNet> = default.cluster_subnets.iter().map(|subnet| subnet.cidr).collect();
    let mut settings = node::Settings::new(name, cluster_subnets, config.kubernetes.service_cidrs.clone());
    settings.ovs_db = format!("unix:{}", config.ovs.run_dir.join("db.sock").display());
    settings.ovn_remote = format!("unix:{}", config.southbound.run_dir.join("ovnsb_db.sock").display());
    settings.ovn_run_dir = Some(config.southbound.run_dir.clone());
    settings.ovn_nb = format!("unix:{}", config.northbound.run_dir.join("ovnnb_db.sock").display());
    settings.mtu = default.mtu;
    settings.routable_mtu = default.routable_mtu;
    settings.encap = node::Encap {
        kind: default.encap_type.to_string(),
        ips: default.encap_ip.clone(),
        port: default.encap_port,
        none: config.gateway.single_node || default.transport == Some(Transport::NoOverlay),
    };
    settings.ovn_controller = node::OvnController {
        inactivity_probe_ms: default.inactivity_probe.as_millis() as u64,
        openflow_probe_s: default.openflow_probe.as_secs(),
        monitor_all: default.monitor_all,
        ofctrl_wait_before_clear_ms: default.ofctrl_wait_before_clear.as_millis() as u64,
        lflow_cache: default.enable_lflow_cache,
        lflow_cache_limit: default.lflow_cache_limit,
        lflow_cache_limit_kb: default.lflow_cache_limit_kb,
    };
    settings.gateway = gateway(config);
    settings.cni_conf = node::CniConf {
        dir: config.cni.conf_dir.clone(),
        version: config.cni.version.to_string(),
        plugin: config.cni.plugin.clone(),
        log_file: config.logging.cnilogfile.display().to_string(),
        log_level: config.logging.loglevel.to_string(),
        log_max_size: config.logging.logfile_maxsize as u32,
        log_max_backups: config.logging.logfile_maxbackups,
        log_max_age: config.logging.logfile_maxage,
    };
    settings.unprivileged = config.process.unprivileged_mode;
    settings.cni_add_timeout = config.cni.add_timeout;
    settings.watch_pods = config.roles.ovnkube_controller.is_none();
    settings.watch_services = settings.watch_pods;
    let kill_before = std::env::var(node::fault::VARIABLE).ok();
    settings.kill_before = kill_before.map(|text| text.parse().map_err(anyhow::Error::msg)).transpose()?;
    Ok(settings)
}

fn gateway(config: &Config) -> node::Gateway {
    let gateway = &config.gateway;
    node::Gateway {
        mode: match gateway.mode {
            None => kapi::annotations::GatewayMode::Disabled,
            Some(GatewayMode::Shared) => kapi::annotations::GatewayMode::Shared,
            Some(GatewayMode::Local) => kapi::annotations::GatewayMode::Local,
        },
        interface: gateway.interface.clone().unwrap_or_default(),
        external_interface: gateway.egw_interface.clone().unwrap_or_default(),
        next_hops: gateway.next_hop.clone(),
        vlan_id: gateway.vlan_id.unwrap_or_default(),
        node_port: gateway.nodeport,
        disable_packet_mtu_check: gateway.disable_pkt_mtu_check,
        disable_forwarding: gateway.disable_forwarding,
        egress_ip: config.features.egress_ip,
        egress_service: config.features.egress_service,
        snat_per_pod: gateway.disable_snat_multiple_gws,
        allow_no_uplink: gateway.allow_no_uplink,
        conntrack_zone: config.default.conntrack_zone,
        masquerade_v4: gateway.v4_masquerade_subnet,
        masquerade_v6: gateway.v6_masquerade_subnet,
    }
}

/// Credentials for a shim that sets up interfaces itself.
pub(crate) fn kube_auth(config: &Config) -> Option<cni::KubeAuth> {
    if !config.process.unprivileged_mode {
        return None;
    }
    let text = |path: &std::path::Path| path.display().to_string();
    Some(match &config.api {
        ApiAccess::Kubeconfig(path) => cni::KubeAuth { kubeconfig: text(path), ..Default::default() },
        ApiAccess::Server { url, ca_pem, token, token_file } => cni::KubeAuth {
            api_server: url.clone(),
            token: token.as_ref().map(|token| token.expose().to_owned()).unwrap_or_default(),
            token_file: token_file.as_deref().map(text).unwrap_or_default(),
            ca_data: ca_pem.clone().unwrap_or_default(),
            ..Default::default()
        },
    })
}
