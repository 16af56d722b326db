//! `coordination.k8s.io/v1` Lease, as much of it as an election needs.

use kapi::{Meta, Object, Resource};
use serde::{Deserialize, Serialize};

/// A Lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// Metadata.
    pub metadata: Meta,
    /// Who holds it and for how long.
    pub spec: LeaseSpec,
}

/// Who holds a Lease and for how long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// Identity of the holder; absent or empty when it was given up.
    pub holder_identity: Option<String>,
    /// Seconds after a renewal during which nobody else may take it.
    pub lease_duration_seconds: Option<u64>,
    /// When the holder took it.
    pub acquire_time: Option<String>,
    /// When the holder last renewed it.
    pub renew_time: Option<String>,
    /// How often it changed hands.
    pub lease_transitions: Option<u64>,
}

impl Object for Lease {
    const RESOURCE: Resource = Resource {
        group: "coordination.k8s.io",
        version: "v1",
        plural: "leases",
        kind: "Lease",
        namespaced: true,
    };

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
