//! What all kinds have in common.

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::Meta;

/// Where objects of a kind live in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version, such as `v1`.
    pub version: &'static str,
    /// Plural name in URLs, such as `pods`.
    pub plural: &'static str,
    /// Kind, such as `Pod`.
    pub kind: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl Resource {
    /// `apiVersion` of objects: `v1`, or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// A Kubernetes object in our slim form.
pub trait Object: DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static {
    /// Where the kind lives in the API.
    const RESOURCE: Resource;

    /// The object's metadata.
    fn meta(&self) -> &Meta;

    /// Name and identity of the object.
    fn key(&self) -> ObjectKey {
        let meta = self.meta();
        ObjectKey { namespace: meta.namespace.clone(), name: meta.name.clone(), uid: meta.uid.clone() }
    }
}

/// Name and identity of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID; empty when unknown.
    pub uid: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}
