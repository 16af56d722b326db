//! Schemas of custom resources: which are acceptable (structural), and their compiled form.

use std::sync::Arc;

use serde_json::Value;

use super::{Schema, SchemaRef, named, parse::parse};
use crate::error::FieldError;

/// The schema a version of a custom resource is served with: the author's, with apiVersion, kind and metadata.
pub(crate) fn compile_custom(source: &Value) -> Result<Schema, String> {
    let mut schema = parse(source)?;
    let text = SchemaRef::Here(Arc::new(Schema { ty: super::Type::String, ..Schema::default() }));
    schema.properties.insert("apiVersion".into(), text.clone());
    schema.properties.insert("kind".into(), text);
    let metadata = named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").clone();
    schema.properties.insert("metadata".into(), SchemaRef::Here(Arc::new(metadata)));
    Ok(schema)
}

/// Violations of the rules for structural schemas, as a CRD is refused for.
pub(crate) fn admit(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Err(why) = parse(source) {
        errors.push(FieldError::invalid(path, &Value::Null, why));
    }
    if source.get("type").and_then(Value::as_str) != Some("object") {
        let ty = source.get("type").cloned().unwrap_or_else(|| "".into());
        errors.push(FieldError::invalid(format!("{path}.type"), &ty, "must be object at the root"));
    }
    node(source, path, true, errors);
}

const UNSUPPORTED: &[&str] = &["$ref", "definitions", "dependencies", "patternProperties", "additionalItems"];

fn node(source: &Value, path: &str, root: bool, errors: &mut Vec<FieldError>) {
    for name in UNSUPPORTED.iter().filter(|n| source.get(**n).is_some()) {
        errors.push(FieldError::forbidden(format!("{path}.{name}"), format!("{name} is not supported")));
    }
    let flag = |name: &str| source.get(name).and_then(Value::as_bool).unwrap_or(false);
    let untyped = flag("x-kubernetes-int-or-string") || flag("x-kubernetes-preserve-unknown-fields");
    let ty = source.get("type").and_then(Value::as_str).unwrap_or_default();
    if ty.is_empty() && !untyped && !root {
        errors.push(FieldError::required(
            format!("{path}.type"),
            "must not be empty for specified object fields",
        ));
    }
    if flag("uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), why));
    }
    if source.get("properties").is_some()
        && source.get("additionalProperties").is_some_and(|a| a != &Value::Bool(false))
    {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), why));
    }
    if source.get("additionalProperties") == Some(&Value::Bool(false)) {
        let why = "additionalProperties cannot be set to false";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), why));
    }
    if ty == "array" && source.get("items").is_none() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    list_type(source, path, errors);
    for name in ["allOf", "anyOf", "oneOf"] {
        let list = source.get(name).and_then(Value::as_array);
        for (at, part) in list.into_iter().flatten().enumerate() {
            let int_or_string = flag("x-kubernetes-int-or-string");
            junctor(part, &format!("{path}.{name}[{at}]"), int_or_string, errors);
        }
    }
    if let Some(part) = source.get("not") {
        junctor(part, &format!("{path}.not"), false, errors);
    }
    for (name, child) in source.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if root && matches!(name.as_str(), "metadata" | "apiVersion" | "kind") {
            continue;
        }
        node(child, &format!("{path}.properties[{name}]"), false, errors);
    }
    if let Some(child) = source.get("items") {
        node(child, &format!("{path}.items"), false, errors);
    }
    if let Some(child @ Value::Object(_)) = source.get("additionalProperties") {
        node(child, &format!("{path}.additionalProperties"), false, errors);
    }
}

fn list_type(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let keys = source.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    match source.get("x-kubernetes-list-type").and_then(Value::as_str) {
        None | Some("atomic" | "set") if keys.is_some() => {
            let at = format!("{path}.x-kubernetes-list-map-keys");
            errors.push(FieldError::forbidden(at, "list map keys need x-kubernetes-list-type: map"));
        }
        Some("map") => {
            let properties = source.pointer("/items/properties");
            if keys.is_none_or(Vec::is_empty) {
                let at = format!("{path}.x-kubernetes-list-map-keys");
                errors.push(FieldError::required(at, "must not be empty if x-kubernetes-list-type is map"));
            }
            for key in keys.into_iter().flatten() {
                if key.as_str().is_none_or(|k| properties.and_then(|p| p.get(k)).is_none()) {
                    let at = format!("{path}.x-kubernetes-list-map-keys");
                    errors.push(FieldError::invalid(at, key, "entries must all be names of item properties"));
                }
            }
        }
        Some("atomic" | "set") | None => {}
        Some(other) => {
            let allowed = ["atomic", "map", "set"].map(String::from);
            let at = format!("{path}.x-kubernetes-list-type");
            errors.push(FieldError::unsupported(at, &other.into(), &allowed));
        }
    }
}

/// Inside allOf, anyOf, oneOf and not only value validations are allowed.
fn junctor(source: &Value, path: &str, int_or_string: bool, errors: &mut Vec<FieldError>) {
    for name in ["type", "default", "additionalProperties", "nullable", "title", "description"] {
        if name == "type" && int_or_string {
            continue;
        }
        if source.get(name).is_some() {
            let why = "must be empty to be structural";
            errors.push(FieldError::forbidden(format!("{path}.{name}"), why));
        }
    }
    for (name, child) in source.get("properties").and_then(Value::as_object).into_iter().flatten() {
        junctor(child, &format!("{path}.properties[{name}]"), false, errors);
    }
    if let Some(child) = source.get("items") {
        junctor(child, &format!("{path}.items"), false, errors);
    }
}
