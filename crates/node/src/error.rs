//! What can go wrong in the agent, in an operator's words.

use std::net::IpAddr;

/// Errors of the node agent. The agent ends on those [`NodeError::is_fatal`] names and retries the others.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Open vSwitch does not answer.
    #[error(
        "Open vSwitch does not answer at {endpoint} ({reason}); start it (systemctl start openvswitch-switch, or the \
         ovs-node pod), or name its socket directory with --ovs-run-dir"
    )]
    NoOpenVswitch {
        /// The database's address.
        endpoint: String,
        /// What the last attempt failed with.
        reason: String,
    },
    /// The Open_vSwitch schema lacks something.
    #[error(
        "the Open_vSwitch database at {endpoint} has no column {table}.{column}: this Open vSwitch is too old; install \
         Open vSwitch 3.1 or newer and OVN 24.03 or newer, then restart both"
    )]
    TooOld {
        /// The database's address.
        endpoint: String,
        /// Table.
        table: &'static str,
        /// Missing column.
        column: &'static str,
    },
    /// The database exists but has no Open_vSwitch row yet.
    #[error(
        "the Open_vSwitch database at {endpoint} is empty; initialise it with `ovs-vsctl --no-wait init` (the start \
         scripts of Open vSwitch do)"
    )]
    NotInitialised {
        /// The database's address.
        endpoint: String,
    },
    /// A transaction was refused.
    #[error("Open vSwitch refused to {what}: {reason}")]
    Ovs {
        /// What was to be done.
        what: &'static str,
        /// The server's reason.
        reason: String,
    },
    /// The host refused a change.
    #[error("cannot {what}: {reason}")]
    Host {
        /// What was to be done, with the object's name.
        what: String,
        /// The kernel's reason.
        reason: String,
    },
    /// Underlay MTU too small.
    #[error(
        "interface {interface}, which carries the tunnel address {encap_ip}, has MTU {mtu}, but an overlay MTU of \
         {overlay} needs {required}; raise the interface's MTU, or lower --mtu to {largest} or less"
    )]
    MtuTooSmall {
        /// The interface.
        interface: String,
        /// The tunnel address on it.
        encap_ip: IpAddr,
        /// Its MTU.
        mtu: u32,
        /// The overlay's MTU.
        overlay: u32,
        /// What it would need.
        required: u32,
        /// The largest overlay MTU it carries.
        largest: u32,
    },
    /// The node's subnets cannot be used.
    #[error(
        "node {node}: annotation k8s.ovn.org/node-subnets cannot be used: {reason}; correct or remove it"
    )]
    BadSubnets {
        /// The node.
        node: String,
        /// What is wrong.
        reason: String,
    },
    /// The Kubernetes API refused a patch.
    #[error("cannot write the annotations of node {node}: {reason}")]
    Annotate {
        /// The node.
        node: String,
        /// The API's reason.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The CNI server could not start.
    #[error("the CNI server cannot start: {0}")]
    CniServer(String),
}

impl NodeError {
    /// Whether trying again is pointless until somebody changes something outside.
    pub fn is_fatal(&self) -> bool {
        matches!(
            self,
            NodeError::NoOpenVswitch { .. }
                | NodeError::TooOld { .. }
                | NodeError::MtuTooSmall { .. }
                | NodeError::CniServer(_)
        )
    }
}
