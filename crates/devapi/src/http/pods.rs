//! Subresources only pods have.

use serde_json::json;

use super::{Api, Input, Reply, Target, delete};
use crate::{error::ApiError, store::read_as};

fn success() -> Reply {
    Reply::json(
        201,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    )
}

pub(super) fn bind(api: &Api, input: &Input, target: &Target) -> Result<Reply, ApiError> {
    let mut binding = input.json()?;
    read_as("io.k8s.api.core.v1.Binding", &mut binding)?;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let kind = binding["target"]["kind"].as_str().unwrap_or_default();
    if node.is_empty() || !matches!(kind, "" | "Node") {
        let why = "Binding \"\" is invalid: target.name: Required value";
        return Err(ApiError::new(422, "Invalid", why).with(json!({})));
    }
    api.store.bind(&target.namespace, &target.name, node, &binding)?;
    Ok(success())
}

pub(super) fn evict(api: &Api, input: &Input, target: &Target) -> Result<Reply, ApiError> {
    let mut eviction = input.json()?;
    read_as("io.k8s.api.policy.v1.Eviction", &mut eviction)?;
    let options = delete::from_body(&eviction["deleteOptions"], input)?;
    api.store.delete_object(&target.kind, &target.namespace, &target.name, &options)?;
    Ok(success())
}
