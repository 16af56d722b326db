//! What the API server does to objects of a kind besides storing them: defaults, field ownership of the
//! subresources, validation, immutable fields.

mod addresses;
mod config;
mod crd;
mod labels;
mod network;
mod node;
mod pod;
mod pod_spec;
mod service;
mod workload;

use serde_json::{Map, Value, json};

use crate::{
    error::FieldError,
    kind::Kind,
    schema::{Schema, Type, apply_defaults, check, check_rules},
    store::Sub,
};

/// Fills an object that is being created, before its defaults are.
pub(crate) fn prepare_create(kind: &Kind, object: &mut Value) {
    if kind.is_custom() {
        if kind.status {
            remove(object, "status");
        }
        return;
    }
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => pod::prepare_create(object),
        ("", "namespaces") => {
            object["status"] = json!({"phase": "Active"});
            let finalizers = json!(["kubernetes"]);
            object["spec"] = json!({"finalizers": finalizers});
        }
        ("", "nodes") => {}
        ("", "services") | ("networking.k8s.io", "ingresses") => {
            object["status"] = json!({"loadBalancer": {}})
        }
        ("", "persistentvolumeclaims") => object["status"] = json!({"phase": "Pending"}),
        ("apps", "daemonsets") => {
            object["status"] = json!({"currentNumberScheduled": 0, "numberMisscheduled": 0,
                "desiredNumberScheduled": 0, "numberReady": 0});
        }
        ("apps", "replicasets" | "statefulsets") => object["status"] = json!({"replicas": 0}),
        _ if kind.status => object["status"] = json!({}),
        _ => {}
    }
}

/// Undoes what a write to `sub` may not change.
pub(crate) fn prepare_update(kind: &Kind, sub: Sub, old: &Value, new: &mut Value) {
    match sub {
        Sub::None => {
            if kind.status {
                copy(old, new, "status");
            }
            if kind.is("", "namespaces") {
                copy(old, new, "spec");
            }
        }
        Sub::Status => {
            let mut kept = old.clone();
            move_field(new, &mut kept, "status");
            move_field(new, &mut kept, "metadata");
            move_field(new, &mut kept, "apiVersion");
            *new = kept;
        }
        Sub::Finalize => copy(old, new, "status"),
        Sub::Scale => {}
        Sub::Ephemeral => pod::only(old, new, &["ephemeralContainers"]),
        Sub::Resize => pod::prepare_resize(old, new),
    }
}

fn copy(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => remove(to, field),
    }
}

fn move_field(from: &mut Value, to: &mut Value, field: &str) {
    match from.as_object_mut().and_then(|m| m.remove(field)) {
        Some(value) => to[field] = value,
        None => remove(to, field),
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(field);
    }
}

/// Fills what the author left out.
pub(crate) fn default(kind: &Kind, object: &mut Value) {
    if kind.is_custom() {
        apply_defaults(object, kind.schema());
        return;
    }
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => pod::default(object),
        ("", "services") => service::default(object),
        ("", "namespaces") => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
        ("", "nodes") => node::default(object),
        ("", "secrets") => config::default_secret(object),
        ("", "endpoints") | ("discovery.k8s.io", "endpointslices") => network::default_endpoints(object),
        ("networking.k8s.io", "networkpolicies") => network::default_policy(object),
        ("apps", _) => workload::default(kind, object),
        ("apiextensions.k8s.io", _) => crd::default(object),
        ("rbac.authorization.k8s.io", _) => config::default_role(kind, object),
        _ => {}
    }
}

/// All mistakes of an object that is being created or has been changed.
pub(crate) fn validate(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if kind.is_custom() {
        check(object, kind.schema(), "", &mut errors);
        return errors;
    }
    required(object, kind.schema(), "", &mut errors);
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => pod::validate(object, &mut errors),
        ("", "services") => service::validate(object, &mut errors),
        ("", "nodes") => node::validate(object, &mut errors),
        ("", "configmaps" | "secrets") => config::validate_data(object, &mut errors),
        ("" | "events.k8s.io", "events") => config::validate_event(kind, object, &mut errors),
        ("networking.k8s.io", "networkpolicies") => network::validate_policy(object, &mut errors),
        ("discovery.k8s.io", "endpointslices") => network::validate_slice(object, &mut errors),
        ("coordination.k8s.io", "leases") => config::validate_lease(object, &mut errors),
        ("apps", _) => workload::validate(kind, object, &mut errors),
        ("apiextensions.k8s.io", _) => crd::validate(object, &mut errors),
        _ => {}
    }
    errors
}

/// Violations of a custom resource's own rules; to be asked about objects that fit their schema.
pub(crate) fn validate_rules(kind: &Kind, old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if kind.is_custom() {
        check_rules(new, old, kind.schema(), "", &mut errors);
    }
    errors
}

/// Mistakes of a change: immutable fields.
pub(crate) fn validate_update(kind: &Kind, sub: Sub, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if kind.is_custom() {
        return errors;
    }
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") if sub == Sub::None => pod::validate_update(old, new, &mut errors),
        ("", "pods") if sub == Sub::Status => pod::validate_status(new, &mut errors),
        ("", "services") if sub == Sub::Status => service::validate_status(new, &mut errors),
        ("", "services") => service::validate_update(old, new, &mut errors),
        ("", "nodes") => node::validate_update(old, new, &mut errors),
        ("", "configmaps" | "secrets") => config::validate_immutable(kind, old, new, &mut errors),
        ("discovery.k8s.io", "endpointslices") => same(old, new, "/addressType", "addressType", &mut errors),
        ("apps", "statefulsets" | "deployments" | "replicasets" | "daemonsets") => {
            same(old, new, "/spec/selector", "spec.selector", &mut errors);
        }
        ("apiextensions.k8s.io", _) => {
            same(old, new, "/spec/scope", "spec.scope", &mut errors);
            same(old, new, "/spec/group", "spec.group", &mut errors);
            same(old, new, "/spec/names/plural", "spec.names.plural", &mut errors);
            same(old, new, "/spec/names/kind", "spec.names.kind", &mut errors);
        }
        ("rbac.authorization.k8s.io", _) if old["roleRef"] != new["roleRef"] => {
            errors.push(FieldError::invalid("roleRef", &new["roleRef"], "cannot change roleRef"));
        }
        _ => {}
    }
    errors
}

fn same(old: &Value, new: &Value, pointer: &str, field: &str, errors: &mut Vec<FieldError>) {
    if old.pointer(pointer) != new.pointer(pointer) {
        let value = new.pointer(pointer).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(field, &value, "field is immutable"));
    }
}

/// Required scalars and objects the author left out; statuses are not looked at, as clients fill them in steps.
fn required(value: &Value, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for name in &schema.required {
                let list = schema.child(name).is_some_and(|c| c.ty == Type::Array);
                if !list && !map.contains_key(name) {
                    errors.push(FieldError::required(join(path, name), ""));
                }
            }
            for (name, field) in map {
                if path.is_empty() && name == "status" || schema.is_open() {
                    continue;
                }
                if let Some(child) = schema.child(name) {
                    required(field, child, &join(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return };
            for (at, item) in items.iter().enumerate() {
                required(item, child.get(), &format!("{path}[{at}]"), errors);
            }
        }
        _ => {}
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

/// Whether the kind counts generations, and whether this change makes a new one.
pub(crate) fn generation_changes(kind: &Kind, old: &Value, new: &Value) -> bool {
    let rest = |value: &Value| -> Map<String, Value> {
        let mut map = value.as_object().cloned().unwrap_or_default();
        map.remove("metadata");
        if kind.status || !kind.is_custom() {
            map.remove("status");
        }
        map
    };
    has_generation(kind) && rest(old) != rest(new)
}

/// Whether objects of this kind carry `metadata.generation`.
pub(crate) fn has_generation(kind: &Kind) -> bool {
    kind.is_custom()
        || matches!(
            (kind.group.as_str(), kind.plural.as_str()),
            ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
                | ("", "pods" | "replicationcontrollers")
                | ("batch", _)
                | ("networking.k8s.io", "networkpolicies" | "ingresses" | "ingressclasses")
                | ("policy", _)
                | ("discovery.k8s.io", _)
                | ("apiextensions.k8s.io" | "admissionregistration.k8s.io", _)
        )
}

/// Sets a field that is missing.
fn fill(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && !map.contains_key(field)
    {
        map.insert(field.into(), value.into());
    }
}

fn items_mut<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn items<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    object.get(field).and_then(Value::as_array).into_iter().flatten().enumerate()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}
