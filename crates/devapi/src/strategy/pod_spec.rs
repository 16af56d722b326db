//! Pod specs, in pods and in templates: defaults and validation.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{addresses, fill, items, items_mut, text};
use crate::{error::FieldError, names};

/// Fills a pod spec as the API's defaulting does.
pub(super) fn default(spec: &mut Value) {
    fill(spec, "restartPolicy", "Always");
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill(spec, "schedulerName", "default-scheduler");
    fill(spec, "securityContext", json!({}));
    let host_network = spec["hostNetwork"] == json!(true);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items_mut(spec, list) {
            default_container(container, host_network, list == "ephemeralContainers");
        }
    }
    for volume in items_mut(spec, "volumes") {
        default_volume(volume);
    }
}

fn default_container(container: &mut Value, host_network: bool, ephemeral: bool) {
    let image = text(container, "image");
    let tag = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && tag.split_once(':').is_none_or(|(_, t)| t == "latest");
    fill(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    fill(container, "resources", json!({}));
    if ephemeral {
        return;
    }
    for port in items_mut(container, "ports") {
        fill(port, "protocol", "TCP");
        if host_network {
            let number = port["containerPort"].clone();
            fill(port, "hostPort", number);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe) else { continue };
        fill(probe, "timeoutSeconds", 1);
        fill(probe, "periodSeconds", 10);
        fill(probe, "successThreshold", 1);
        fill(probe, "failureThreshold", 3);
        if let Some(get) = probe.get_mut("httpGet") {
            fill(get, "path", "/");
            fill(get, "scheme", "HTTP");
        }
        if let Some(grpc) = probe.get_mut("grpc") {
            fill(grpc, "service", "");
        }
    }
    for variable in items_mut(container, "env") {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            fill(field, "apiVersion", "v1");
        }
    }
    default_requests(container);
}

/// Requests default to limits.
fn default_requests(container: &mut Value) {
    let limits = container.pointer("/resources/limits").and_then(Value::as_object).cloned();
    let Some(limits) = limits else { return };
    fill(&mut container["resources"], "requests", json!({}));
    for (name, value) in limits {
        fill(&mut container["resources"]["requests"], &name, value);
    }
}

fn default_volume(volume: &mut Value) {
    let sources = volume.as_object().map_or(0, |m| m.len());
    if sources == 1 {
        volume["emptyDir"] = json!({});
    }
    for (source, mode) in [("secret", 420), ("configMap", 420), ("downwardAPI", 420), ("projected", 420)] {
        if let Some(source) = volume.get_mut(source) {
            fill(source, "defaultMode", mode);
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        fill(path, "type", "");
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in items_mut(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                fill(token, "expirationSeconds", 3600);
            }
            for item in source.get_mut("downwardAPI").map(|d| items_mut(d, "items")).into_iter().flatten() {
                if let Some(field) = item.get_mut("fieldRef") {
                    fill(field, "apiVersion", "v1");
                }
            }
        }
    }
}

/// All mistakes of a pod spec at `path`.
pub(super) fn validate(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    one_of(spec, "restartPolicy", path, &["Always", "OnFailure", "Never"], errors);
    one_of(spec, "dnsPolicy", path, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], errors);
    let grace = &spec["terminationGracePeriodSeconds"];
    if grace.as_i64().is_some_and(|g| g < 0) {
        let at = format!("{path}.terminationGracePeriodSeconds");
        errors.push(FieldError::invalid(at, grace, "must be greater than or equal to 0"));
    }
    for field in ["nodeName", "serviceAccountName"] {
        let value = text(spec, field);
        if let Some(why) = names::dns_subdomain(value).filter(|_| !value.is_empty()) {
            errors.push(FieldError::invalid(format!("{path}.{field}"), &value.into(), why));
        }
    }
    if let Some(hostname) = spec.get("hostname").and_then(Value::as_str).filter(|h| !h.is_empty())
        && let Some(why) = names::dns_label(hostname)
    {
        errors.push(FieldError::invalid(format!("{path}.hostname"), &hostname.into(), why));
    }
    let volumes = validate_volumes(spec, path, errors);
    let mut seen = BTreeSet::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (at, container) in items(spec, list) {
            let here = format!("{path}.{list}[{at}]");
            let name = text(container, "name");
            if !name.is_empty() && !seen.insert(name.to_string()) {
                errors.push(FieldError::duplicate(format!("{here}.name"), &name.into()));
            }
            validate_container(container, &here, &volumes, errors);
            for (p, port) in items(container, "ports") {
                if let Some(why) = port["name"].as_str().and_then(addresses::port_name) {
                    errors.push(FieldError::invalid(format!("{here}.ports[{p}].name"), &port["name"], why));
                }
            }
            let host_network = spec["hostNetwork"] == json!(true);
            for (p, port) in items(container, "ports").filter(|_| host_network) {
                if port["hostPort"] != port["containerPort"] {
                    let why = "must match `containerPort` when `hostNetwork` is true";
                    errors.push(FieldError::invalid(
                        format!("{here}.ports[{p}].hostPort"),
                        &port["hostPort"],
                        why,
                    ));
                }
            }
        }
    }
}

fn one_of(object: &Value, field: &str, path: &str, allowed: &[&str], errors: &mut Vec<FieldError>) {
    let Some(value) = object.get(field) else { return };
    if !value.as_str().is_some_and(|v| allowed.contains(&v)) {
        let allowed: Vec<String> = allowed.iter().map(|a| a.to_string()).collect();
        errors.push(FieldError::unsupported(format!("{path}.{field}"), value, &allowed));
    }
}

fn validate_volumes(spec: &Value, path: &str, errors: &mut Vec<FieldError>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for (at, volume) in items(spec, "volumes") {
        let name = text(volume, "name");
        let here = format!("{path}.volumes[{at}]");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{here}.name"), ""));
        } else if let Some(why) = names::dns_label(name) {
            errors.push(FieldError::invalid(format!("{here}.name"), &name.into(), why));
        }
        if !seen.insert(name.to_string()) {
            errors.push(FieldError::duplicate(format!("{here}.name"), &name.into()));
        }
        if volume.as_object().is_some_and(|m| m.len() > 2) {
            errors.push(FieldError::forbidden(here, "may not specify more than 1 volume type"));
        }
    }
    seen
}

fn validate_container(
    container: &Value,
    path: &str,
    volumes: &BTreeSet<String>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(container, "name");
    if name.is_empty() {
        if container.get("name").is_some() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
    } else if let Some(why) = names::dns_label(name) {
        errors.push(FieldError::invalid(format!("{path}.name"), &name.into(), why));
    }
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    one_of(container, "imagePullPolicy", path, &["Always", "IfNotPresent", "Never"], errors);
    let mut ports = BTreeSet::new();
    for (at, port) in items(container, "ports") {
        let here = format!("{path}.ports[{at}]");
        one_of(port, "protocol", &here, &["SCTP", "TCP", "UDP"], errors);
        for field in ["containerPort", "hostPort"] {
            let Some(number) = port.get(field) else { continue };
            let unset = field == "hostPort" && number == &json!(0);
            if !unset && !number.as_i64().is_some_and(|n| (1..=65535).contains(&n)) {
                let at = format!("{here}.{field}");
                errors.push(FieldError::invalid(at, number, "must be between 1 and 65535, inclusive"));
            }
        }
        let name = text(port, "name");
        if !name.is_empty() && !ports.insert(name.to_string()) {
            errors.push(FieldError::duplicate(format!("{here}.name"), &name.into()));
        }
    }
    for (at, mount) in items(container, "volumeMounts") {
        let name = text(mount, "name");
        if !volumes.contains(name) {
            errors.push(FieldError {
                field: format!("{path}.volumeMounts[{at}].name"),
                reason: "FieldValueNotFound",
                message: format!("Not found: {name:?}"),
            });
        }
    }
    for (at, variable) in items(container, "env") {
        if text(variable, "name").is_empty() && variable.get("name").is_some() {
            errors.push(FieldError::required(format!("{path}.env[{at}].name"), ""));
        }
    }
}
