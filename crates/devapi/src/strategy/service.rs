//! Services; addresses and ports are allocated in `services.rs`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{addresses, fill, items, items_mut, text};
use crate::{error::FieldError, names};

pub(super) fn default(service: &mut Value) {
    let spec = &mut service["spec"];
    if spec.is_null() {
        *spec = json!({});
    }
    fill(spec, "type", "ClusterIP");
    fill(spec, "sessionAffinity", "None");
    let ty = text(spec, "type").to_string();
    if ty != "ExternalName" {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    let outside = ty == "ClusterIP" && items(spec, "externalIPs").next().is_some();
    if outside || matches!(ty.as_str(), "NodePort" | "LoadBalancer") {
        fill(spec, "externalTrafficPolicy", "Cluster");
    } else if let Some(map) = spec.as_object_mut() {
        // Left over from another type; what an author asks for beyond the default is refused.
        if map.get("externalTrafficPolicy") == Some(&json!("Cluster")) {
            map.remove("externalTrafficPolicy");
        }
        map.remove("healthCheckNodePort");
    }
    if ty == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
    } else if let Some(map) = spec.as_object_mut() {
        map.remove("allocateLoadBalancerNodePorts");
    }
    if text(spec, "sessionAffinity") == "ClientIP" {
        fill(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
    } else if let Some(map) = spec.as_object_mut() {
        map.remove("sessionAffinityConfig");
    }
    for port in items_mut(spec, "ports") {
        fill(port, "protocol", "TCP");
        let number = port["port"].clone();
        fill(port, "targetPort", number);
    }
    if service["status"].is_null() {
        service["status"] = json!({"loadBalancer": {}});
    }
}

pub(super) fn validate(service: &Value, errors: &mut Vec<FieldError>) {
    let spec = &service["spec"];
    let ty = text(spec, "type");
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !types.contains(&ty) {
        errors.push(FieldError::unsupported("spec.type", &spec["type"], &types.map(String::from)));
    }
    let headless = text(spec, "clusterIP") == "None";
    if ty == "ExternalName" {
        if text(spec, "externalName").is_empty() {
            errors.push(FieldError::required("spec.externalName", ""));
        }
    } else if !headless && spec["ports"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.ports", ""));
    }
    if !["None", "ClientIP"].contains(&text(spec, "sessionAffinity")) {
        let allowed = ["ClientIP", "None"].map(String::from);
        errors.push(FieldError::unsupported("spec.sessionAffinity", &spec["sessionAffinity"], &allowed));
    }
    let count = spec["ports"].as_array().map_or(0, Vec::len);
    let (mut names_seen, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (at, port) in items(spec, "ports") {
        let here = format!("spec.ports[{at}]");
        let number = &port["port"];
        if !number.is_null() && !number.as_i64().is_some_and(|n| (1..=65535).contains(&n)) {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{here}.port"), number, why));
        }
        if !["TCP", "UDP", "SCTP"].contains(&text(port, "protocol")) {
            let allowed = ["SCTP", "TCP", "UDP"].map(String::from);
            errors.push(FieldError::unsupported(format!("{here}.protocol"), &port["protocol"], &allowed));
        }
        let name = text(port, "name");
        if name.is_empty() {
            if count > 1 {
                errors.push(FieldError::required(format!("{here}.name"), ""));
            }
        } else {
            if let Some(why) = names::dns_label(name) {
                errors.push(FieldError::invalid(format!("{here}.name"), &name.into(), why));
            }
            if !names_seen.insert(name.to_string()) {
                errors.push(FieldError::duplicate(format!("{here}.name"), &name.into()));
            }
        }
        if let Some(why) = port["targetPort"].as_str().and_then(addresses::port_name) {
            errors.push(FieldError::invalid(format!("{here}.targetPort"), &port["targetPort"], why));
        }
        if !seen.insert((number.to_string(), text(port, "protocol").to_string())) {
            errors.push(FieldError::duplicate(here, port));
        }
    }
    for (at, address) in items(spec, "externalIPs") {
        let ip = addresses::ip(address.as_str().unwrap_or_default());
        if let Err(why) = ip.and_then(addresses::reachable) {
            errors.push(FieldError::invalid(format!("spec.externalIPs[{at}]"), address, why));
        }
    }
    validate_traffic(spec, errors);
    for key in spec["selector"].as_object().into_iter().flat_map(|labels| labels.keys()) {
        if let Some(why) = names::qualified_name(key) {
            errors.push(FieldError::invalid("spec.selector", &key.as_str().into(), why));
        }
    }
}

fn validate_traffic(spec: &Value, errors: &mut Vec<FieldError>) {
    for (field, allowed) in [
        ("trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"][..]),
        ("externalTrafficPolicy", &["Cluster", "Local"]),
        ("internalTrafficPolicy", &["Cluster", "Local"]),
    ] {
        if let Some(value) = spec.get(field).filter(|v| !allowed.contains(&v.as_str().unwrap_or_default())) {
            let allowed: Vec<String> = allowed.iter().map(|a| (*a).to_string()).collect();
            errors.push(FieldError::unsupported(format!("spec.{field}"), value, &allowed));
        }
    }
    let outside = matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
        || items(spec, "externalIPs").next().is_some();
    if spec.get("externalTrafficPolicy").is_some() && !outside {
        let why = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid("spec.externalTrafficPolicy", &spec["externalTrafficPolicy"], why));
    }
    let seconds = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    if seconds.as_i64().is_some_and(|s| !(1..=86_400).contains(&s)) {
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        errors.push(FieldError::invalid(field, seconds, "must be greater than 0 and less than 86400"));
    }
    for (at, range) in items(spec, "loadBalancerSourceRanges") {
        if let Err(why) = addresses::cidr(range.as_str().unwrap_or_default().trim()) {
            errors.push(FieldError::invalid(format!("spec.LoadBalancerSourceRanges[{at}]"), range, why));
        }
    }
}

/// Addresses a load balancer was given.
pub(super) fn validate_status(service: &Value, errors: &mut Vec<FieldError>) {
    let balancer = &service["status"]["loadBalancer"];
    let field = "status.loadBalancer.ingress";
    if items(balancer, "ingress").next().is_some() && text(&service["spec"], "type") != "LoadBalancer" {
        errors.push(FieldError::forbidden(field, "may only be used when `spec.type` is 'LoadBalancer'"));
    }
    for (at, ingress) in items(balancer, "ingress") {
        if let Some(ip) = ingress.get("ip")
            && let Err(why) = addresses::ip(ip.as_str().unwrap_or_default())
        {
            errors.push(FieldError::invalid(format!("{field}[{at}].ip"), ip, why));
        }
        if let Some(mode) = ingress.get("ipMode").filter(|m| **m != json!("VIP") && **m != json!("Proxy")) {
            let allowed = ["Proxy", "VIP"].map(String::from);
            errors.push(FieldError::unsupported(format!("{field}[{at}].ipMode"), mode, &allowed));
        }
    }
}

pub(super) fn validate_update(old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    let external = |s: &Value| text(&s["spec"], "type") == "ExternalName";
    if external(old) || external(new) {
        return;
    }
    let (before, after) = (&old["spec"]["clusterIPs"], &new["spec"]["clusterIPs"]);
    if before[0] != after[0] && !before[0].is_null() {
        errors.push(FieldError::invalid("spec.clusterIPs[0]", after, "may not change once set"));
    }
}
