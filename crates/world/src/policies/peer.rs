//! Pods as policies see them.

use std::net::IpAddr;
use std::sync::Arc;

use kapi::NamedPort;

use crate::Labels;

/// What policies need to know of a pod, wherever it runs. Finished pods are not in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerPod {
    /// The pod's labels.
    pub labels: Labels,
    /// The pod's addresses as far as they are known; on the host's network those of its node.
    pub ips: Vec<IpAddr>,
    /// Whether the pod is on the host's network: never subject of a policy, seldom a peer.
    pub host: bool,
    /// Whether it runs on this zone's node.
    pub local: bool,
    /// The ports its containers name.
    pub ports: Arc<Vec<NamedPort>>,
}
