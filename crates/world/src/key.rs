//! The units desired state is computed for.

use std::fmt;

use kapi::{PodKey, ServiceKey};
use policy::PolicyId;

use crate::RuleKey;

/// A unit of desired state, and the owner of the rows that come out of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// What exists once in every zone: cluster router, join and transit switch, groups, meters.
    Cluster,
    /// This zone's own node.
    LocalNode,
    /// The way out of the cluster on this zone's node.
    Gateway,
    /// A node of another zone.
    RemoteNode(String),
    /// A namespace.
    Namespace(String),
    /// An address set shared by rules, by the text of what it selects.
    PeerSet(String),
    /// The address set of one rule of an administrator's policy.
    RuleSet(RuleKey),
    /// What denies traffic of a namespace's isolated pods.
    Isolation(String),
    /// A policy. Its sets come before it and its pods after it, so that nothing names what is not there yet.
    Policy(PolicyId),
    /// A pod on this zone's node.
    Pod(PodKey),
    /// A service.
    Service(ServiceKey),
    /// Variables in which services find this node's addresses. After the services: what they no longer use goes last.
    Templates,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Cluster => f.write_str("cluster"),
            Key::LocalNode => f.write_str("local node"),
            Key::Gateway => f.write_str("gateway"),
            Key::RemoteNode(name) => write!(f, "node {name}"),
            Key::Namespace(name) => write!(f, "namespace {name}"),
            Key::PeerSet(text) => write!(f, "address set {text}"),
            Key::RuleSet(rule) => {
                write!(f, "address set of {} rule {} of {}", rule.direction.name(), rule.index, rule.policy)
            }
            Key::Isolation(namespace) => write!(f, "isolation of namespace {namespace}"),
            Key::Policy(id) => write!(f, "{id}"),
            Key::Pod(key) => write!(f, "pod {key}"),
            Key::Service(key) => write!(f, "service {key}"),
            Key::Templates => f.write_str("templates"),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
