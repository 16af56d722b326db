//! `metadata`: what the server sets, what may change, what is valid.

use serde_json::{Map, Value, json};

use crate::{
    error::{ApiError, FieldError},
    identity,
    kind::Kind,
    names, strategy,
};

/// Bytes all annotations of an object may have together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Runs a change on an object's metadata, made if it is missing.
fn with_meta<R>(object: &mut Value, change: impl FnOnce(&mut Map<String, Value>) -> R) -> R {
    let mut meta = match object["metadata"].take() {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let result = change(&mut meta);
    object["metadata"] = Value::Object(meta);
    result
}

/// Fills the metadata of a new object.
pub(super) fn for_create(kind: &Kind, namespace: &str, object: &mut Value) -> Result<(), ApiError> {
    with_meta(object, |meta| fill(kind, namespace, meta))
}

fn fill(kind: &Kind, namespace: &str, meta: &mut Map<String, Value>) -> Result<(), ApiError> {
    if meta.get("resourceVersion").and_then(Value::as_str).is_some_and(|v| !v.is_empty() && v != "0") {
        return Err(ApiError::internal("resourceVersion should not be set on objects to be created"));
    }
    for field in
        ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"]
    {
        meta.remove(field);
    }
    if kind.namespaced {
        let given = meta.get("namespace").and_then(Value::as_str).unwrap_or_default();
        if !given.is_empty() && given != namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        meta.insert("namespace".into(), namespace.into());
    } else {
        meta.remove("namespace");
    }
    let name = meta.get("name").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty()
        && let Some(prefix) = meta.get("generateName").and_then(Value::as_str).filter(|p| !p.is_empty())
    {
        let prefix: String = prefix.chars().take(58).collect();
        meta.insert("name".into(), format!("{prefix}{}", identity::random_suffix()).into());
    }
    meta.insert("uid".into(), identity::random_uid().into());
    meta.insert("creationTimestamp".into(), identity::now().into());
    if strategy::has_generation(kind) {
        meta.insert("generation".into(), 1.into());
    } else {
        meta.remove("generation");
    }
    Ok(())
}

/// Gives an updated object the metadata that only the server changes.
pub(super) fn merge_metadata(old: &Value, new: &mut Value) {
    let before = old["metadata"].as_object().cloned().unwrap_or_default();
    with_meta(new, |meta| keep(&before, meta));
}

fn keep(before: &Map<String, Value>, meta: &mut Map<String, Value>) {
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generateName",
        "selfLink",
    ] {
        match before.get(field) {
            Some(value) => meta.insert(field.into(), value.clone()),
            None => meta.remove(field),
        };
    }
    // Managers are kept by the server; a client may only rewrite the list as a whole.
    match meta.get("managedFields").and_then(Value::as_array) {
        None => {
            if let Some(value) = before.get("managedFields") {
                meta.insert("managedFields".into(), value.clone());
            }
        }
        Some(list) if list.iter().all(|e| e.as_object().is_none_or(Map::is_empty)) && !list.is_empty() => {
            meta.remove("managedFields");
        }
        Some(_) => {}
    }
}

/// All mistakes in the metadata of a new or changed object.
pub(super) fn validate(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if let Some(why) = wrong_name(kind, name) {
        errors.push(FieldError::invalid("metadata.name", &meta["name"], why));
    }
    for (key, value) in meta["labels"].as_object().into_iter().flatten() {
        if let Some(why) = names::qualified_name(key) {
            errors.push(FieldError::invalid("metadata.labels", &key.as_str().into(), why));
        }
        if let Some(why) = names::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid("metadata.labels", value, why));
        }
    }
    let mut size = 0;
    for (key, value) in meta["annotations"].as_object().into_iter().flatten() {
        if let Some(why) = names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &key.as_str().into(), why));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_ANNOTATIONS {
        errors.push(FieldError {
            field: "metadata.annotations".into(),
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {MAX_ANNOTATIONS} bytes"),
        });
    }
    let generic = kind.is_custom() || kind.group == "apiextensions.k8s.io";
    for (at, finalizer) in meta["finalizers"].as_array().into_iter().flatten().enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        let standard = text.contains('/') || matches!(text, "orphan" | "foregroundDeletion" | "kubernetes");
        if let Some(why) = names::qualified_name(text) {
            errors.push(FieldError::invalid("metadata.finalizers", finalizer, why));
        } else if !generic && !standard {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("metadata.finalizers[{at}]"), finalizer, why));
        }
    }
    for (at, owner) in meta["ownerReferences"].as_array().into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                let why = format!("{field} must not be empty");
                let at = format!("metadata.ownerReferences[{at}].{field}");
                errors.push(FieldError::invalid(at, &"".into(), why));
            }
        }
    }
    errors
}

fn wrong_name(kind: &Kind, name: &str) -> Option<String> {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "namespaces") => names::dns_label(name),
        ("", "services") => names::dns_label(name),
        ("rbac.authorization.k8s.io", _) => names::path_segment(name),
        ("networking.k8s.io", "ipaddresses") => name.parse::<std::net::IpAddr>().err().map(|e| e.to_string()),
        _ => names::dns_subdomain(name),
    }
}

/// Mistakes of a metadata change.
pub(super) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old["metadata"].get("deletionTimestamp").is_some() {
        let list = |v: &Value| v["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let before = list(old);
        let added: Vec<String> =
            list(new).iter().filter(|f| !before.contains(f)).map(|f| f.to_string()).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", why));
        }
    }
    errors
}

/// Whether an object waits for finalizers.
pub(super) fn has_finalizers(object: &Value) -> bool {
    let any = |v: &Value| v.as_array().is_some_and(|l| !l.is_empty());
    any(&object["metadata"]["finalizers"])
        || (object["kind"] == json!("Namespace")
            && object["apiVersion"] == json!("v1")
            && any(&object["spec"]["finalizers"]))
}

pub(super) fn is_deleting(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

pub(super) fn bump_generation(object: &mut Value) {
    let now = object["metadata"]["generation"].as_i64().unwrap_or(0);
    if now > 0 {
        object["metadata"]["generation"] = (now + 1).into();
    }
}
