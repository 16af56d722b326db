//! Which policy object.

use std::fmt;

/// The kinds of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// networking.k8s.io/v1.
    NetworkPolicy,
    /// policy.networking.k8s.io/v1alpha1.
    AdminNetworkPolicy,
    /// policy.networking.k8s.io/v1alpha1.
    BaselineAdminNetworkPolicy,
    /// policy.networking.k8s.io/v1alpha2.
    ClusterNetworkPolicy,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [
        Kind::NetworkPolicy,
        Kind::AdminNetworkPolicy,
        Kind::BaselineAdminNetworkPolicy,
        Kind::ClusterNetworkPolicy,
    ];

    /// The kind's name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NetworkPolicy => "NetworkPolicy",
            Kind::AdminNetworkPolicy => "AdminNetworkPolicy",
            Kind::BaselineAdminNetworkPolicy => "BaselineAdminNetworkPolicy",
            Kind::ClusterNetworkPolicy => "ClusterNetworkPolicy",
        }
    }

    /// The kind of that name.
    pub fn of(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A policy object by kind and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId {
    /// The kind.
    pub kind: Kind,
    /// Namespace; empty for the cluster's policies.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl PolicyId {
    /// The policy `namespace`/`name` of `kind`.
    pub fn new(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> PolicyId {
        PolicyId { kind, namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind.name(), self.name)
        } else {
            write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
        }
    }
}

impl fmt::Debug for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
