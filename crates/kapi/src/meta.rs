//! Object metadata.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// Annotations written by clients for themselves that can be as large as the object; nobody here reads them.
const DROPPED: &[&str] = &["kubectl.kubernetes.io/last-applied-configuration"];

/// The metadata fields we use (`metav1.ObjectMeta`). Managed fields and clients' private annotations are
/// dropped on decoding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Name, unique in the namespace.
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub namespace: String,
    /// Identity over time: a re-created object of the same name has another one.
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    /// Opaque version for optimistic concurrency and watches.
    #[serde(deserialize_with = "or_default")]
    pub resource_version: String,
    /// Counts the changes of the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// RFC 3339 time of creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// RFC 3339 time at which graceful deletion ends; set once deletion was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "annotations")]
    pub annotations: BTreeMap<String, String>,
}

impl Meta {
    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Whether deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// Decodes an explicit null as the default, as the API server itself does.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let mut map: BTreeMap<String, String> = or_default(deserializer)?;
    for key in DROPPED {
        map.remove(*key);
    }
    Ok(map)
}
