//! Objects as people and API servers write them.

use kapi::{
    AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy, Namespace, NetworkPolicy, Node, Pod,
};
use policy::{Kind, Policy, PolicyId};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cluster::Cluster;

/// What became of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// It is part of the cluster now.
    Added,
    /// Policies have nothing to do with its kind.
    Passed,
}

/// Why an object cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It is no object of the API.
    #[error("no Kubernetes object: it has no {field}")]
    NoObject {
        /// What it lacks.
        field: &'static str,
    },
    /// It does not decode.
    #[error("{kind} {name}: {problem}")]
    Malformed {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
}

impl Cluster {
    /// Adds or replaces an object; lists are taken apart. Without a namespace it belongs to `namespace`.
    ///
    /// # Errors
    /// When it is no object, or one that does not decode.
    pub fn add_object(&mut self, mut object: Value, namespace: &str) -> Result<Loaded, LoadError> {
        let kind = object["kind"].as_str().ok_or(LoadError::NoObject { field: "kind" })?.to_owned();
        if kind.ends_with("List")
            && let Some(Value::Array(items)) = object.get_mut("items").map(Value::take)
        {
            let item_kind = kind.trim_end_matches("List").to_owned();
            let mut added = Loaded::Passed;
            for mut item in items {
                if item.get("kind").is_none() && !item_kind.is_empty() {
                    item["kind"] = item_kind.as_str().into();
                }
                if self.add_object(item, namespace)? == Loaded::Added {
                    added = Loaded::Added;
                }
            }
            return Ok(added);
        }
        match kind.as_str() {
            "Namespace" => self.add_namespace(&decode::<Namespace>(object, &kind)?),
            "Node" => self.add_node(&decode::<Node>(object, &kind)?),
            "Pod" => {
                default_namespace(&mut object, namespace);
                self.add_pod(&decode::<Pod>(object, &kind)?);
            }
            _ => match policy(object, &kind, namespace)? {
                Some(policy) => self.add_policy(policy),
                None => return Ok(Loaded::Passed),
            },
        }
        Ok(Loaded::Added)
    }

    /// The policy an object names, whatever it says; none for other kinds.
    pub fn policy_id(object: &Value, namespace: &str) -> Option<PolicyId> {
        let kind = Kind::of(object["kind"].as_str()?)?;
        let name = object["metadata"]["name"].as_str()?;
        let own = object["metadata"]["namespace"].as_str().unwrap_or(namespace);
        Some(PolicyId::new(kind, if kind == Kind::NetworkPolicy { own } else { "" }, name))
    }
}

fn policy(mut object: Value, kind: &str, namespace: &str) -> Result<Option<Policy>, LoadError> {
    Ok(Some(match Kind::of(kind) {
        None => return Ok(None),
        Some(Kind::NetworkPolicy) => {
            default_namespace(&mut object, namespace);
            Policy::from(&decode::<NetworkPolicy>(object, kind)?)
        }
        Some(Kind::AdminNetworkPolicy) => Policy::from(&decode::<AdminNetworkPolicy>(object, kind)?),
        Some(Kind::BaselineAdminNetworkPolicy) => {
            Policy::from(&decode::<BaselineAdminNetworkPolicy>(object, kind)?)
        }
        Some(Kind::ClusterNetworkPolicy) => Policy::from(&decode::<ClusterNetworkPolicy>(object, kind)?),
    }))
}

fn default_namespace(object: &mut Value, namespace: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if metadata.get("namespace").and_then(Value::as_str).is_none_or(str::is_empty) {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
}

fn decode<T: DeserializeOwned>(object: Value, kind: &str) -> Result<T, LoadError> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(LoadError::NoObject { field: "metadata.name" });
    }
    serde_json::from_value(object).map_err(|error| LoadError::Malformed {
        kind: kind.to_owned(),
        name,
        problem: error.to_string(),
    })
}
