//! Binding pods to nodes, and namespaces' last step.

use serde_json::{Value, json};

use super::{Store, meta};
use crate::{error::ApiError, identity};

impl Store {
    /// Binds a pod to a node: once, and only while it is not being deleted.
    pub(crate) fn bind(
        &self,
        namespace: &str,
        name: &str,
        node: &str,
        binding: &Value,
    ) -> Result<(), ApiError> {
        let mut state = self.lock();
        let stored = state.object("pods", namespace, name).cloned();
        let stored = stored.ok_or_else(|| ApiError::not_found("pods", name))?;
        let uid = binding["metadata"]["uid"].as_str().unwrap_or_default();
        if !uid.is_empty() && stored.value["metadata"]["uid"].as_str() != Some(uid) {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                stored.value["metadata"]["uid"].as_str().unwrap_or_default()
            );
            return Err(ApiError::conflict("pods/binding", name, &why));
        }
        if meta::is_deleting(&stored.value) {
            let why = format!("pod {name} is being deleted, cannot be assigned to a host");
            return Err(ApiError::conflict("pods/binding", name, &why));
        }
        if let Some(bound) = stored.value["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
            let why = format!("pod {name} is already assigned to node {bound:?}");
            return Err(ApiError::conflict("pods/binding", name, &why));
        }
        if stored.value["spec"]["schedulingGates"].as_array().is_some_and(|g| !g.is_empty()) {
            let why = format!("pod {name} has non-empty .spec.schedulingGates");
            return Err(ApiError::conflict("pods/binding", name, &why));
        }
        let mut pod = stored.value.clone();
        pod["spec"]["nodeName"] = node.into();
        for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
            pod["metadata"]["annotations"][key] = value.clone();
        }
        set_condition(&mut pod, json!({"type": "PodScheduled", "status": "True"}));
        meta::bump_generation(&mut pod);
        state.put("pods", pod);
        Ok(())
    }
}

fn set_condition(pod: &mut Value, mut condition: Value) {
    condition["lastProbeTime"] = Value::Null;
    condition["lastTransitionTime"] = identity::now().into();
    let list = &mut pod["status"]["conditions"];
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(at) => *at = condition,
        None => list.push(condition),
    }
}
