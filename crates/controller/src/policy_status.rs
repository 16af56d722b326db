//! Conditions of administrators' policies: what this zone says of them.

use kapi::{
    AdminNetworkPolicy, AdminPolicyStatus, BaselineAdminNetworkPolicy, ClusterNetworkPolicy, NetworkPolicy,
    Object, ObjectKey,
};
use kube_io::{Class, Kube, ObjectRef, Patch, Subresource};
use policy::{Kind, PolicyId};

use crate::io::{Input, PatchError, PolicyCondition};

/// The type of the zone's condition.
fn kind(node: &str) -> String {
    format!("Ready-In-Zone-{node}")
}

/// The zone's condition among those an object carries.
pub(crate) fn carried(node: &str, status: &AdminPolicyStatus) -> Option<PolicyCondition> {
    let kind = kind(node);
    let condition = status.conditions.iter().find(|condition| condition.kind == kind)?;
    Some(PolicyCondition {
        ready: condition.status == "True",
        message: condition.message.clone(),
        generation: condition.observed_generation,
    })
}

/// Writes the zone's condition.
pub(crate) async fn report(
    kube: Kube,
    node: String,
    id: PolicyId,
    uid: String,
    condition: PolicyCondition,
) -> Input {
    let mut entry = serde_json::json!({
        "type": kind(&node),
        "status": if condition.ready { "True" } else { "False" },
        "reason": if condition.ready { "SetupSucceeded" } else { "SetupFailed" },
        "message": condition.message,
        "lastTransitionTime": kube_io::now(),
    });
    if let Some(generation) = condition.generation {
        entry["observedGeneration"] = generation.into();
    }
    let value = serde_json::json!({"status": {"conditions": [entry]}});
    let patch = Patch::Apply { manager: format!("ovnkube-{node}"), value };
    let key = ObjectKey { namespace: id.namespace.clone(), name: id.name.clone(), uid: uid.clone() };
    let result = match id.kind {
        Kind::AdminNetworkPolicy => kube.patch::<AdminNetworkPolicy>(&key, Subresource::Status, patch).await,
        Kind::BaselineAdminNetworkPolicy => {
            kube.patch::<BaselineAdminNetworkPolicy>(&key, Subresource::Status, patch).await
        }
        Kind::ClusterNetworkPolicy => {
            kube.patch::<ClusterNetworkPolicy>(&key, Subresource::Status, patch).await
        }
        // It has no status.
        Kind::NetworkPolicy => return Input::Reported { id, uid, result: Ok(()) },
    };
    let result = result.map(drop).map_err(|error| match error.class() {
        Class::NotFound | Class::Conflict => PatchError::Gone,
        Class::Transient => PatchError::Transient(error.to_string()),
        Class::Rejected => PatchError::Refused(error.to_string()),
    });
    Input::Reported { id, uid, result }
}

/// The policy as Events refer to it.
pub(crate) fn reference(id: &PolicyId, uid: String) -> ObjectRef {
    let resource = match id.kind {
        Kind::NetworkPolicy => NetworkPolicy::RESOURCE,
        Kind::AdminNetworkPolicy => AdminNetworkPolicy::RESOURCE,
        Kind::BaselineAdminNetworkPolicy => BaselineAdminNetworkPolicy::RESOURCE,
        Kind::ClusterNetworkPolicy => ClusterNetworkPolicy::RESOURCE,
    };
    ObjectRef {
        api_version: resource.api_version(),
        kind: resource.kind.to_owned(),
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        uid,
    }
}
