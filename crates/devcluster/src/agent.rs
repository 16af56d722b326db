//! Our own programs on the nodes, started with the command lines an operator uses.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, sync::Arc};

use anyhow::{Context, Result};

use crate::{
    api::{Api, Role},
    binaries,
    cluster::Cluster,
    node::{GATEWAY_BRIDGE, Node},
    prefix::Prefix,
    sandbox,
    space::Process,
    wire::Program,
};

/// The daemon's binary.
pub const DAEMON: &str = "ovnkube";
/// The CNI plugin's binary.
pub const SHIM: &str = "ovn-k8s-cni-overlay";

/// What differs from the usual command lines.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// `--gateway-mode`.
    pub gateway_mode: String,
    /// `--cluster-subnets`, where the families' usual ones do not do.
    pub cluster_subnets: Option<String>,
    /// `--gateway-interface`.
    pub gateway_interface: String,
    /// `--mtu`; none leaves it to the program.
    pub mtu: Option<u32>,
    /// `--encap-ip` with the node's address; otherwise the program finds it.
    pub encap_ip: bool,
    /// `--loglevel`.
    pub log_level: u8,
    /// More flags for every process.
    pub extra: Vec<String>,
}

/// The cluster manager and a process a node.
pub struct Agents {
    options: AgentOptions,
    /// Flags of a node's process that lead to the API.
    access: Vec<String>,
    prefix: Prefix,
    cluster_flags: Vec<String>,
    /// The cluster manager, on node1.
    pub manager: Process,
    /// Network controller and node agent in one, by node name.
    pub nodes: BTreeMap<String, Process>,
}

// === impl AgentOptions ===

impl Default for AgentOptions {
    fn default() -> Self {
        let gateway_interface = GATEWAY_BRIDGE.to_owned();
        Self {
            gateway_mode: "shared".to_owned(),
            gateway_interface,
            cluster_subnets: None,
            mtu: Some(1342),
            encap_ip: true,
            log_level: 4,
            extra: Vec::new(),
        }
    }
}

// === impl Agents ===

impl Agents {
    /// Starts everything; returns when the processes run, not when they are ready.
    pub async fn start(cluster: &Cluster, api: &Api, options: AgentOptions) -> Result<Self> {
        let first = cluster.nodes().first().context("a cluster without nodes")?;
        let families = cluster.families();
        let cluster_flags = vec![
            "--cluster-subnets".to_owned(),
            options.cluster_subnets.clone().unwrap_or_else(|| families.cluster_subnets().to_owned()),
            format!("--k8s-service-cidr={}", families.service_cidrs()),
        ];
        for node in cluster.nodes() {
            api.give_access(node)?;
            install_shim(node)?;
        }
        let access = api.flags(Role::Node);
        let prefix = cluster.prefix().clone();
        let common = common(&options, &cluster_flags, &api.flags(Role::Manager));
        let manager = first.spawn(manager(&prefix, first, &common)?).await?;
        let mut agents = Self { options, access, prefix, cluster_flags, manager, nodes: BTreeMap::new() };
        for node in cluster.nodes() {
            agents.start_node(node).await?;
        }
        Ok(agents)
    }

    /// Starts the process of one node, or starts it again with the same flags.
    pub async fn start_node(&mut self, node: &Arc<Node>) -> Result<Process> {
        let program = self.node_program(node)?;
        let process = node.spawn(program).await?;
        self.nodes.insert(node.name().to_owned(), process.clone());
        Ok(process)
    }

    /// What would be started on a node: to be changed by a test and started by itself.
    pub fn node_program(&self, node: &Node) -> Result<Program> {
        let name = node.name();
        let mut args: Vec<String> =
            ["--init-ovnkube-controller", name, "--init-node", name].map(str::to_owned).to_vec();
        args.extend(common(&self.options, &self.cluster_flags, &self.access));
        args.extend([
            format!("--gateway-interface={}", self.options.gateway_interface),
            "--nodeport".to_owned(),
            "--metrics-bind-address".to_owned(),
            "127.0.0.1:9410".to_owned(),
            "--ovn-metrics-bind-address".to_owned(),
            "127.0.0.1:9476".to_owned(),
            "--export-ovs-metrics".to_owned(),
            "--inactivity-probe=180000".to_owned(),
            "--pidfile".to_owned(),
            "/var/run/ovn/ovnkube.pid".to_owned(),
            "--logfile".to_owned(),
            "/var/log/ovn-kubernetes/ovnkube.log".to_owned(),
        ]);
        args.extend(self.options.mtu.map(|mtu| format!("--mtu={mtu}")));
        args.extend(self.options.encap_ip.then(|| format!("--encap-ip={}", node.address())));
        program(&self.prefix, node, args, "ovnkube")
    }

    /// `--cleanup-node` for a node whose process has ended, with the flags that process had.
    pub fn cleanup_program(&self, node: &Node) -> Result<Program> {
        let mut program = self.node_program(node)?;
        let roles = ["--init-ovnkube-controller", "--init-node", node.name()];
        program.argv.retain(|arg| !roles.contains(&arg.as_str()));
        program.argv.extend(["--cleanup-node".to_owned(), node.name().to_owned()]);
        Ok(program)
    }

    /// The last lines that a node's process wrote: to be shown when something did not come up.
    pub fn log_tail(node: &Node, lines: usize) -> String {
        ["/var/log/ovn-kubernetes/ovnkube.log", "/var/log/ovnkube.out"]
            .iter()
            .filter_map(|file| fs::read_to_string(node.outside(file)).ok())
            .map(|text| {
                let all: Vec<&str> = text.lines().collect();
                all[all.len().saturating_sub(lines)..].join("\n")
            })
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

fn common(options: &AgentOptions, cluster: &[String], access: &[String]) -> Vec<String> {
    let mut args = cluster.to_vec();
    args.extend([
        "--host-network-namespace".to_owned(),
        "ovn-host-network".to_owned(),
        "--ovn-config-namespace".to_owned(),
        "ovn-kubernetes".to_owned(),
        format!("--gateway-mode={}", options.gateway_mode),
    ]);
    args.extend_from_slice(access);
    args.extend([
        format!("--loglevel={}", options.log_level),
        "--enable-egress-ip".to_owned(),
        "--enable-egress-firewall".to_owned(),
        "--enable-egress-qos".to_owned(),
        "--enable-multi-external-gateway".to_owned(),
        "--enable-network-qos".to_owned(),
    ]);
    args.extend_from_slice(&options.extra);
    args
}

fn manager(prefix: &Prefix, node: &Node, common: &[String]) -> Result<Program> {
    let mut args = vec!["--init-cluster-manager".to_owned(), node.name().to_owned()];
    args.extend_from_slice(common);
    args.extend([
        "--metrics-bind-address".to_owned(),
        "127.0.0.1:9411".to_owned(),
        "--logfile".to_owned(),
        "/var/log/ovn-kubernetes/ovnkube-cluster-manager.log".to_owned(),
    ]);
    program(prefix, node, args, "ovnkube-cluster-manager")
}

fn program(prefix: &Prefix, node: &Node, args: Vec<String>, log: &str) -> Result<Program> {
    let mut argv = vec![binaries::find(DAEMON)?.display().to_string()];
    argv.extend(args);
    // Where they call OVS's programs, they find the ones that run here.
    let path = std::env::var("PATH").unwrap_or_default();
    Ok(Program {
        argv,
        env: vec![("PATH".to_owned(), format!("{}:{path}", prefix.bin_dir().display()))],
        log: Some(node.outside(format!("/var/log/{log}.out"))),
        ..Program::default()
    })
}

/// Puts the plugin where the node's runtime looks for it.
pub fn install_shim(node: &Node) -> Result<()> {
    let from = binaries::find(SHIM)?;
    let to = node.outside(sandbox::PLUGIN_DIR).join(SHIM);
    // A link would do where both are on one file system; they seldom are.
    fs::copy(&from, &to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
