//! Nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{addresses, fill, items};
use crate::error::FieldError;

pub(super) fn default(node: &mut Value) {
    if node["spec"].is_null() {
        node["spec"] = json!({});
    }
    // Either stands for the other.
    let spec = &mut node["spec"];
    match (spec["podCIDR"].clone(), spec["podCIDRs"][0].clone()) {
        (Value::String(one), Value::Null) => spec["podCIDRs"] = json!([one]),
        (Value::Null, Value::String(first)) => spec["podCIDR"] = json!(first),
        _ => {}
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
    let mut families = BTreeSet::new();
    let cidrs = items(&node["spec"], "podCIDRs");
    for (at, cidr) in cidrs {
        match addresses::cidr(cidr.as_str().unwrap_or_default()) {
            Err(why) => errors.push(FieldError::invalid(format!("spec.podCIDRs[{at}]"), cidr, why)),
            Ok(net) if !families.insert(net.addr().is_ipv4()) => {
                let why = "may specify no more than one CIDR for each IP family";
                errors.push(FieldError::invalid("spec.podCIDRs", &node["spec"]["podCIDRs"], why));
            }
            Ok(_) => {}
        }
    }
    let mut seen = BTreeSet::new();
    for (at, taint) in items(&node["spec"], "taints") {
        let effect = &taint["effect"];
        let allowed = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if !effect.as_str().is_some_and(|e| allowed.contains(&e)) {
            let at = format!("spec.taints[{at}].effect");
            errors.push(FieldError::unsupported(at, effect, &allowed.map(String::from)));
        }
        if !seen.insert((taint["key"].to_string(), effect.to_string())) {
            errors.push(FieldError::duplicate(format!("metadata.taints[{at}]"), taint));
        }
    }
}

pub(super) fn validate_update(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    for (field, name) in [("podCIDR", "podCIDR"), ("podCIDRs", "podCIDR"), ("providerID", "providerID")] {
        let before = &old["spec"][field];
        if !before.is_null() && before != &new["spec"][field] {
            let why = format!("node updates may not change {name} except from \"\" to valid");
            errors.push(FieldError::forbidden(format!("spec.{field}"), why));
        }
    }
}
