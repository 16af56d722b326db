//! ConfigMaps, Secrets, Events, Leases and RBAC objects.

use base64::Engine as _;
use serde_json::{Value, json};

use super::{fill, items_mut, text};
use crate::{error::FieldError, kind::Kind};

/// Bytes all values of a ConfigMap or Secret may have together.
const MAX_DATA: usize = 1024 * 1024;

pub(super) fn default_secret(secret: &mut Value) {
    fill(secret, "type", "Opaque");
    let plain = secret.as_object_mut().and_then(|m| m.remove("stringData"));
    if let Some(Value::Object(plain)) = plain {
        fill(secret, "data", json!({}));
        for (key, value) in plain {
            let encoded =
                base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
            secret["data"][key] = encoded.into();
        }
    }
}

pub(super) fn validate_data(object: &Value, errors: &mut Vec<FieldError>) {
    let mut total = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in object[field].as_object().into_iter().flatten() {
            total += value.as_str().map_or(0, str::len);
            let shape = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
            if key.is_empty() || key.len() > 253 || !shape || key == "." || key == ".." {
                let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
                           'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
                           '[-._a-zA-Z0-9]+')";
                errors.push(FieldError::invalid(format!("{field}[{key}]"), &key.as_str().into(), why));
            }
        }
    }
    if total > MAX_DATA {
        errors.push(FieldError {
            field: String::new(),
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {MAX_DATA} bytes"),
        });
    }
}

pub(super) fn validate_immutable(kind: &Kind, old: &Value, new: &Value, errors: &mut Vec<FieldError>) {
    if kind.plural == "secrets" && old["type"] != new["type"] {
        errors.push(FieldError::invalid("type", &new["type"], "field is immutable"));
    }
    if old["immutable"] != json!(true) {
        return;
    }
    for field in ["data", "binaryData", "immutable"] {
        if old[field] != new[field] {
            errors.push(FieldError::forbidden(field, "field is immutable when `immutable` is set"));
        }
    }
}

/// An event lies in the namespace of the object it is about (or `default` for cluster objects).
pub(super) fn validate_event(kind: &Kind, event: &Value, errors: &mut Vec<FieldError>) {
    // The newer form says more: what happened when, and who saw it.
    if kind.group == "events.k8s.io" {
        for field in ["eventTime", "reportingController", "reportingInstance", "action", "reason"] {
            if text(event, field).is_empty() {
                errors.push(FieldError::required(field, ""));
            }
        }
    }
    let about = if kind.group == "events.k8s.io" { &event["regarding"] } else { &event["involvedObject"] };
    let about = text(about, "namespace");
    let namespace = text(&event["metadata"], "namespace");
    let fits =
        if about.is_empty() { matches!(namespace, "default" | "kube-system") } else { about == namespace };
    if !fits {
        let why = if about.is_empty() {
            "does not match event.namespace for a cluster-scoped object"
        } else {
            "does not match event.namespace"
        };
        errors.push(FieldError::invalid("involvedObject.namespace", &about.into(), why));
    }
}

pub(super) fn validate_lease(lease: &Value, errors: &mut Vec<FieldError>) {
    let spec = &lease["spec"];
    for (field, least) in [("leaseDurationSeconds", 1), ("leaseTransitions", 0)] {
        if spec[field].as_i64().is_some_and(|n| n < least) {
            let why =
                if least == 1 { "must be greater than 0" } else { "must be greater than or equal to 0" };
            errors.push(FieldError::invalid(format!("spec.{field}"), &spec[field], why));
        }
    }
}

pub(super) fn default_role(kind: &Kind, object: &mut Value) {
    if kind.plural.ends_with("bindings") {
        if let Some(role) = object.get_mut("roleRef") {
            fill(role, "apiGroup", "rbac.authorization.k8s.io");
        }
        for subject in items_mut(object, "subjects") {
            let group =
                if text(subject, "kind") == "ServiceAccount" { "" } else { "rbac.authorization.k8s.io" };
            if !group.is_empty() {
                fill(subject, "apiGroup", group);
            }
        }
    } else {
        fill(object, "rules", Value::Array(Vec::new()));
    }
}
