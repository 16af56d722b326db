//! JSON form of a schema → [`Schema`].

use std::sync::Arc;

use regex::Regex;
use serde_json::Value;

use super::{Checks, ListType, Schema, SchemaRef, Type, rules};

/// Reads an OpenAPI v3 schema as CRDs and `builtin.json` carry it; the error names the place.
pub(crate) fn parse(source: &Value) -> Result<Schema, String> {
    parse_at(source, "")
}

pub(super) fn child(source: &Value, path: &str) -> Result<SchemaRef, String> {
    if let Some(name) = source.get("$ref").and_then(Value::as_str) {
        return Ok(SchemaRef::Named(name.rsplit('/').next().unwrap_or_default().to_string()));
    }
    Ok(SchemaRef::Here(Arc::new(parse_at(source, path)?)))
}

fn flag(source: &Value, name: &str) -> bool {
    source.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn text<'a>(source: &'a Value, name: &str) -> &'a str {
    source.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn strings(source: Option<&Value>) -> Vec<String> {
    let list = source.and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|v| v.as_str().map(String::from)).collect()
}

fn parse_at(source: &Value, path: &str) -> Result<Schema, String> {
    let mut schema = Schema {
        ty: match text(source, "type") {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            "" => Type::Any,
            other => return Err(format!("{path}.type: {other:?} is not a type")),
        },
        format: text(source, "format").into(),
        nullable: flag(source, "nullable"),
        required: strings(source.get("required")),
        preserve_unknown: flag(source, "x-kubernetes-preserve-unknown-fields"),
        embedded: flag(source, "x-kubernetes-embedded-resource"),
        atomic_map: text(source, "x-kubernetes-map-type") == "atomic",
        merge_key: source.get("x-kubernetes-patch-merge-key").and_then(Value::as_str).map(String::from),
        merge_list: text(source, "x-kubernetes-patch-strategy").split(',').any(|s| s == "merge"),
        default: source.get("default").cloned(),
        ..Schema::default()
    };
    if schema.format == "int-or-string" || flag(source, "x-kubernetes-int-or-string") {
        schema.ty = Type::IntOrString;
    }
    schema.list = match text(source, "x-kubernetes-list-type") {
        "map" => ListType::Map(strings(source.get("x-kubernetes-list-map-keys"))),
        "set" => ListType::Set,
        _ => ListType::Atomic,
    };
    for (name, property) in source.get("properties").and_then(Value::as_object).into_iter().flatten() {
        schema.properties.insert(name.clone(), child(property, &format!("{path}.properties[{name}]"))?);
    }
    match source.get("additionalProperties") {
        Some(Value::Bool(true)) => schema.preserve_unknown = true,
        Some(value @ Value::Object(_)) => {
            schema.additional = Some(child(value, &format!("{path}.additionalProperties"))?);
        }
        _ => {}
    }
    if let Some(items) = source.get("items") {
        schema.items = Some(child(items, &format!("{path}.items"))?);
    }
    schema.checks = checks(source, path)?.map(Box::new);
    schema.rules = rules::parse(source, path)?;
    Ok(schema)
}

fn checks(source: &Value, path: &str) -> Result<Option<Checks>, String> {
    const NAMES: &[&str] = &[
        "enum",
        "pattern",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "oneOf",
        "anyOf",
        "allOf",
        "not",
    ];
    if !NAMES.iter().any(|n| source.get(n).is_some()) {
        return Ok(None);
    }
    let number = |name: &str| source.get(name).and_then(Value::as_f64);
    let count = |name: &str| source.get(name).and_then(Value::as_u64);
    let branches = |name: &str| -> Result<Vec<SchemaRef>, String> {
        let list = source.get(name).and_then(Value::as_array);
        list.into_iter().flatten().map(|s| child(s, &format!("{path}.{name}"))).collect()
    };
    let pattern = match source.get("pattern").and_then(Value::as_str) {
        Some(p) => {
            Some(Regex::new(p).map_err(|_| format!("{path}.pattern: {p:?} is not a regular expression"))?)
        }
        None => None,
    };
    Ok(Some(Checks {
        allowed: source.get("enum").and_then(Value::as_array).cloned(),
        pattern,
        minimum: number("minimum"),
        maximum: number("maximum"),
        exclusive_minimum: flag(source, "exclusiveMinimum"),
        exclusive_maximum: flag(source, "exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag(source, "uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        one_of: branches("oneOf")?,
        any_of: branches("anyOf")?,
        all_of: branches("allOf")?,
        not: source.get("not").map(|s| child(s, &format!("{path}.not"))).transpose()?,
    }))
}
