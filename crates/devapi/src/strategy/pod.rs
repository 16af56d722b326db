//! Pods.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{addresses, fill, items, pod_spec, text};
use crate::error::FieldError;

pub(super) fn prepare_create(pod: &mut Value) {
    let qos = qos_class(&pod["spec"]);
    pod["status"] = json!({"phase": "Pending", "qosClass": qos});
}

pub(super) fn default(pod: &mut Value) {
    agree_on_addresses(&mut pod["status"]);
    if !pod["spec"].is_object() {
        return;
    }
    let spec = &mut pod["spec"];
    pod_spec::default(spec);
    fill(spec, "enableServiceLinks", true);
    // What the always-on admission plugins add: service account, priority, tolerations.
    fill(spec, "serviceAccountName", "default");
    let account = spec["serviceAccountName"].clone();
    spec["serviceAccount"] = account;
    fill(spec, "priority", 0);
    fill(spec, "preemptionPolicy", "PreemptLowerPriority");
    fill(spec, "tolerations", json!([]));
    let Some(tolerations) = spec["tolerations"].as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |t: &Value| {
            let same = t["key"] == json!(key) || (t.get("key").is_none() && t["operator"] == json!("Exists"));
            same && matches!(t["effect"].as_str(), None | Some("NoExecute"))
        };
        if !tolerations.iter().any(covers) {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
}

/// The one address and the list of them say the same; where they do not, the one decides.
fn agree_on_addresses(status: &mut Value) {
    let (one, first) = (text(status, "podIP").to_string(), status["podIPs"][0]["ip"].clone());
    if one.is_empty() {
        if first.is_string() {
            status["podIP"] = first;
        }
    } else if first != json!(one) {
        status["podIPs"] = json!([{ "ip": one }]);
    }
}

/// Guaranteed, Burstable or BestEffort, from requests and limits of cpu and memory.
fn qos_class(spec: &Value) -> &'static str {
    let (mut any, mut all) = (false, true);
    let containers = items(spec, "containers").chain(items(spec, "initContainers"));
    for (_, container) in containers {
        for resource in ["cpu", "memory"] {
            let amount = |kind: &str| {
                container.pointer(&format!("/resources/{kind}/{resource}")).filter(|v| *v != &json!("0"))
            };
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            all &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        _ => "Burstable",
    }
}

pub(super) fn validate(pod: &Value, errors: &mut Vec<FieldError>) {
    if !pod["spec"].is_object() {
        errors.push(FieldError::required("spec", ""));
        return;
    }
    pod_spec::validate(&pod["spec"], "spec", errors);
}

/// Addresses of a pod: at most one of each family.
pub(super) fn validate_status(pod: &Value, errors: &mut Vec<FieldError>) {
    let mut families = BTreeSet::new();
    for (at, ip) in items(&pod["status"], "podIPs") {
        match addresses::ip(text(ip, "ip")) {
            Err(why) => errors.push(FieldError::invalid(format!("status.podIPs[{at}]"), &ip["ip"], why)),
            Ok(ip) if !families.insert(ip.is_ipv4()) => {
                let why = "may specify no more than one IP for each IP family";
                errors.push(FieldError::invalid("status.podIPs", &pod["status"]["podIPs"], why));
            }
            Ok(_) => {}
        }
    }
}

/// Keeps everything but the named fields of the spec from `old`.
pub(super) fn only(old: &Value, new: &mut Value, fields: &[&str]) {
    let mut kept = old.clone();
    for field in fields {
        super::move_field(&mut new["spec"], &mut kept["spec"], field);
    }
    super::move_field(new, &mut kept, "metadata");
    *new = kept;
}

/// A resize may change resources and resize policies of containers only.
pub(super) fn prepare_resize(old: &Value, new: &mut Value) {
    let mut kept = old.clone();
    for list in ["containers", "initContainers"] {
        for container in super::items_mut(&mut kept["spec"], list) {
            let same = |c: &&Value| c["name"] == container["name"];
            let wanted = new["spec"][list].as_array().into_iter().flatten().find(same);
            if let Some(resources) = wanted.and_then(|w| w.get("resources")) {
                container["resources"] = resources.clone();
            }
        }
    }
    super::move_field(new, &mut kept, "metadata");
    *new = kept;
}

/// A pod's spec is fixed but for images, deadlines, added tolerations and lifted scheduling gates.
pub(super) fn validate_update(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let (before, after) = (&old["spec"], &new["spec"]);
    if before == after {
        return;
    }
    let mut allowed = after.clone();
    for list in ["containers", "initContainers"] {
        let count = |spec: &Value| spec[list].as_array().map_or(0, Vec::len);
        if count(before) != count(after) {
            errors.push(FieldError::forbidden(
                format!("spec.{list}"),
                "pod updates may not add or remove containers",
            ));
            return;
        }
        for at in 0..count(after) {
            allowed[list][at]["image"] = before[list][at]["image"].clone();
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        super::copy(before, &mut allowed, field);
    }
    let gone = items(before, "tolerations").any(|(_, t)| !items(after, "tolerations").any(|(_, x)| x == t));
    let gate =
        items(after, "schedulingGates").any(|(_, g)| !items(before, "schedulingGates").any(|(_, x)| x == g));
    if &allowed != before || gone || gate {
        errors.push(FieldError::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
             existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
             previously negative)",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: Value) -> Value {
        let mut pod = json!({"metadata": {"name": "a"}, "spec": spec});
        prepare_create(&mut pod);
        default(&mut pod);
        pod
    }

    #[test]
    fn defaults_are_those_of_the_api() {
        let pod =
            pod(json!({"containers": [{"name": "c", "image": "busybox", "ports": [{"containerPort": 1}]},
            {"name": "d", "image": "r/x:1"}]}));
        let spec = &pod["spec"];
        assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
        assert_eq!(spec["containers"][1]["imagePullPolicy"], "IfNotPresent");
        assert_eq!(spec["containers"][0]["ports"][0]["protocol"], "TCP");
        assert_eq!(spec["terminationGracePeriodSeconds"], 30);
        assert_eq!(spec["tolerations"].as_array().map(Vec::len), Some(2));
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    }

    #[test]
    fn wrong_specs() {
        let cases = [
            (json!({}), "spec.containers"),
            (json!({"containers": [{"name": "A", "image": "i"}]}), "spec.containers[0].name"),
            (json!({"containers": [{"name": "a"}]}), "spec.containers[0].image"),
            (
                json!({"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]}),
                "spec.containers[1].name",
            ),
            (
                json!({"restartPolicy": "Maybe", "containers": [{"name": "a", "image": "i"}]}),
                "spec.restartPolicy",
            ),
            (
                json!({"containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/"}]}]}),
                "spec.containers[0].volumeMounts[0].name",
            ),
        ];
        for (spec, field) in cases {
            let mut errors = Vec::new();
            validate(&pod(spec), &mut errors);
            assert_eq!(errors.iter().map(|e| e.field.as_str()).collect::<Vec<_>>(), [field]);
        }
    }

    #[test]
    fn only_some_fields_may_change() {
        let old = pod(json!({"containers": [{"name": "c", "image": "1"}]}));
        let change = |pointer: &str, value: Value| {
            let mut new = old.clone();
            *new.pointer_mut(pointer).expect("field") = value;
            let mut errors = Vec::new();
            validate_update(&old, &new, &mut errors);
            errors.len()
        };
        assert_eq!(change("/spec/containers/0/image", json!("2")), 0);
        assert_eq!(change("/spec/containers/0/name", json!("d")), 1);
        assert_eq!(change("/spec/restartPolicy", json!("Never")), 1);
        assert_eq!(change("/spec/tolerations", json!([])), 1);
        let mut bound = old.clone();
        bound["spec"]["nodeName"] = json!("n");
        let mut errors = Vec::new();
        validate_update(&old, &bound, &mut errors);
        assert_eq!(errors.len(), 1);
    }
}
