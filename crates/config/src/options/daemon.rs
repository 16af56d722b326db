//! Roles of the process, its files, its log.

use crate::codec::*;
use crate::spec::section;
use std::path::PathBuf;

section! {
    /// What the process is to do. Controller and node may be combined.
    Roles, "Roles (at least one)";
    /// Run the cluster manager under this identity in the leader election.
    cluster_manager: Option<String> [OptionalText] = "init-cluster-manager", [], "" { placeholder: "NAME" };
    /// Run the network controller for this node.
    ovnkube_controller: Option<String> [OptionalText] = "init-ovnkube-controller", [], "" { placeholder: "NODE" };
    /// Run the node agent on this node.
    node: Option<String> [OptionalText] = "init-node", [], "" { placeholder: "NODE" };
    /// Remove from this node what the node agent set up, and exit.
    cleanup_node: Option<String> [OptionalText] = "cleanup-node", [], "" { placeholder: "NODE" };
}

section! {
    /// The process itself.
    Process, "Process";
    /// Configuration file. The default path is read only if it exists; a path given here must exist.
    config_file: PathBuf [Path] = "config-file", [], "/etc/openvswitch/ovn_k8s.conf";
    /// Write the process id here; the file is removed at exit.
    pidfile: Option<PathBuf> [OptionalPath] = "pidfile", [], "";
    /// Run without privileges; the CNI shim then sets up the pod's interface itself.
    unprivileged_mode: bool [Bool] = "unprivileged-mode", [], "false";
    /// Name of this pod, for events and the health server.
    pod_name: Option<String> [OptionalText] = "pod-name", [], "" { flag: false, env: Some("POD_NAME") };
    /// Name of the node this process runs on, where no role names one.
    k8s_node: Option<String> [OptionalText] = "k8s-node", [], "" { flag: false, env: Some("K8S_NODE") };
    /// Name of the node of the data processing unit.
    k8s_node_dpu: Option<String> [OptionalText] = "k8s-node-dpu", [], "" { flag: false, env: Some("K8S_NODE_DPU"), feature: Some("dpu") };
}

section! {
    /// `[logging]`
    Logging, "Logging";
    /// How much to log: 1 and 2 errors, 3 warnings, 4 information, 5 debugging, 6 and more everything.
    loglevel: u8 [Number<0, 10, u8>] = "loglevel", ["logging.loglevel"], "4" { placeholder: "LEVEL" };
    /// Log to this file instead of standard error.
    logfile: Option<PathBuf> [OptionalPath] = "logfile", ["logging.logfile"], "";
    /// Log file of the CNI shim.
    cnilogfile: PathBuf [Path] = "cnilogfile", ["logging.cnilogfile"], "/var/log/ovn-kubernetes/ovn-k8s-cni-overlay.log";
    /// Log database transactions to this file instead of the common log.
    libovsdblogfile: Option<PathBuf> [OptionalPath] = "libovsdblogfile", ["logging.libovsdblogfile"], "" { feature: Some("ovsdb-log") };
    /// Size at which the log file is rotated, in megabytes.
    logfile_maxsize: u64 [Number<1, 1_048_576, u64>] = "logfile-maxsize", ["logging.logfile-maxsize"], "100" { placeholder: "MB" };
    /// Rotated log files to keep; 0 keeps all.
    logfile_maxbackups: u32 [Number<0, 100_000, u32>] = "logfile-maxbackups", ["logging.logfile-maxbackups"], "5";
    /// Days to keep rotated log files; 0 keeps them for ever.
    logfile_maxage: u32 [Number<0, 36_500, u32>] = "logfile-maxage", ["logging.logfile-maxage"], "5" { placeholder: "DAYS" };
    /// Messages per second that each logged policy may write.
    acl_logging_rate_limit: u32 [Number<1, 1_000_000, u32>] = "acl-logging-rate-limit", ["logging.acl-logging-rate-limit"], "20" { feature: Some("acl-logging") };
}
