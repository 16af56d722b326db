//! Namespaces.

use serde::{Deserialize, Serialize};

use crate::{Meta, Object, Resource};

/// A namespace (core/v1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Metadata.
    #[serde(default)]
    pub metadata: Meta,
}

impl Object for Namespace {
    const RESOURCE: Resource =
        Resource { group: "", version: "v1", plural: "namespaces", kind: "Namespace", namespaced: false };

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
