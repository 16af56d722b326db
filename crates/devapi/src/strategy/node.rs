//! Nodes.

use serde_json::{Value, json};

use super::{fill, items};
use crate::error::FieldError;

pub(super) fn default(node: &mut Value) {
    if node["spec"].is_null() {
        node["spec"] = json!({});
    }
    if node["status"].is_null() {
        node["status"] = json!({});
    }
    let status = &mut node["status"];
    if status.get("capacity").is_some() {
        let capacity = status["capacity"].clone();
        fill(status, "allocatable", capacity);
    }
    fill(status, "daemonEndpoints", json!({"kubeletEndpoint": {"Port": 0}}));
    let empty = [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ];
    fill(status, "nodeInfo", json!({}));
    for field in empty {
        fill(&mut status["nodeInfo"], field, "");
    }
}

pub(super) fn validate(node: &Value, errors: &mut Vec<FieldError>) {
    let cidrs = items(&node["spec"], "podCIDRs");
    for (at, cidr) in cidrs {
        if cidr.as_str().is_none_or(|c| c.parse::<ipnet::IpNet>().is_err()) {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(FieldError::invalid(format!("spec.podCIDRs[{at}]"), cidr, why));
        }
    }
    for (at, taint) in items(&node["spec"], "taints") {
        let effect = &taint["effect"];
        let allowed = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if !effect.as_str().is_some_and(|e| allowed.contains(&e)) {
            let at = format!("spec.taints[{at}].effect");
            errors.push(FieldError::unsupported(at, effect, &allowed.map(String::from)));
        }
    }
}

pub(super) fn validate_update(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    for field in ["podCIDRs", "providerID"] {
        let before = &old["spec"][field];
        if !before.is_null() && before != &new["spec"][field] {
            let why = "node updates may not change this field except from \"\" to valid";
            errors.push(FieldError::forbidden(format!("spec.{field}"), why));
        }
    }
}
