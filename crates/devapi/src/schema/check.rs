//! Validation of a value against a schema, with the field errors the API server gives for custom resources.
//! CEL rules are evaluated by `rules`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Checks, ListType, Schema, SchemaRef, Type};
use crate::{error::FieldError, identity::parse_time};

/// All violations of `schema` by `value`.
pub(crate) fn check(value: &Value, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    if value.is_null() && schema.nullable {
        return;
    }
    if !type_fits(value, schema) {
        let want = match schema.ty {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
            Type::IntOrString => "integer,string",
            Type::Any => "any",
        };
        let have = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(n) => {
                if n.is_f64() {
                    "number"
                } else {
                    "integer"
                }
            }
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        errors.push(FieldError {
            field: shown(path),
            reason: "FieldValueTypeInvalid",
            message: format!(
                "Invalid value: {:?}: {} in body must be of type {want}: {have:?}",
                have,
                shown(path)
            ),
        });
        return;
    }
    format_fits(value, schema, path, errors);
    match value {
        Value::Object(map) => {
            for name in &schema.required {
                if !map.contains_key(name) {
                    errors.push(FieldError::required(join(path, name), ""));
                }
            }
            for (name, field) in map {
                if let Some(child) = schema.child(name) {
                    let at =
                        if schema.properties.contains_key(name) { join(path, name) } else { key(path, name) };
                    check(field, child, &at, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    check(item, child.get(), &format!("{path}[{at}]"), errors);
                }
            }
            list_keys(items, schema, path, errors);
        }
        _ => {}
    }
    if let Some(checks) = &schema.checks {
        bounds(value, checks, path, errors);
        branches(value, checks, path, errors);
    }
}

fn shown(path: &str) -> String {
    if path.is_empty() { "<nil>".into() } else { path.to_string() }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

fn key(path: &str, name: &str) -> String {
    format!("{path}[{name}]")
}

fn type_fits(value: &Value, schema: &Schema) -> bool {
    match schema.ty {
        Type::Any => true,
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Boolean => value.is_boolean(),
        Type::Number => value.is_number(),
        Type::Integer => whole(value),
        Type::IntOrString => value.is_string() || whole(value),
    }
}

fn whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
}

fn format_fits(value: &Value, schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let ok = match (schema.format.as_str(), value) {
        ("date-time", Value::String(s)) => parse_time(s).is_some(),
        ("int32", v) if v.is_number() => v.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        ("ipv4", Value::String(s)) => s.parse::<std::net::Ipv4Addr>().is_ok(),
        ("ipv6", Value::String(s)) => s.parse::<std::net::Ipv6Addr>().is_ok(),
        ("cidr", Value::String(s)) => s.parse::<ipnet::IpNet>().is_ok(),
        _ => true,
    };
    if !ok {
        let why = format!("{} in body must be of type {}: {value}", shown(path), schema.format);
        errors.push(FieldError::invalid(shown(path), value, why));
    }
}

fn list_keys(items: &[Value], schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        let id = match &schema.list {
            ListType::Atomic => return,
            ListType::Set => item.clone(),
            ListType::Map(keys) => {
                let defaulted = |k: &String| {
                    let child = schema.items.as_ref().and_then(|i| i.get().child(k));
                    item.get(k).cloned().or_else(|| child.and_then(|c| c.default.clone()))
                };
                Value::Object(keys.iter().filter_map(|k| Some((k.clone(), defaulted(k)?))).collect())
            }
        };
        if !seen.insert(id.to_string()) {
            errors.push(FieldError::duplicate(format!("{path}[{at}]"), &id));
        }
    }
}

fn bounds(value: &Value, checks: &Checks, path: &str, errors: &mut Vec<FieldError>) {
    let at = shown(path);
    let mut bad =
        |why: String| errors.push(FieldError::invalid(at.clone(), value, format!("{at} in body {why}")));
    let plural = |n: u64, what: &str| format!("{n} {what}");
    if let Some(n) = value.as_f64() {
        match checks.minimum {
            Some(min) if checks.exclusive_minimum && n <= min => bad(format!("should be greater than {min}")),
            Some(min) if n < min => bad(format!("should be greater than or equal to {min}")),
            _ => {}
        }
        match checks.maximum {
            Some(max) if checks.exclusive_maximum && n >= max => bad(format!("should be less than {max}")),
            Some(max) if n > max => bad(format!("should be less than or equal to {max}")),
            _ => {}
        }
        if let Some(step) = checks.multiple_of.filter(|s| *s != 0.0 && (n / s).fract() != 0.0) {
            bad(format!("should be a multiple of {step}"));
        }
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        if let Some(min) = checks.min_length.filter(|m| length < *m) {
            bad(format!("should be at least {}", plural(min, "chars long")));
        }
        if checks.max_length.is_some_and(|m| length > m) {
            bad(format!("may not be more than {} long", plural(checks.max_length.unwrap_or(0), "bytes")));
        }
        if let Some(pattern) = checks.pattern.as_ref().filter(|p| !p.is_match(text)) {
            bad(format!("should match '{pattern}'"));
        }
    }
    if let Some(items) = value.as_array() {
        let count = items.len() as u64;
        if let Some(min) = checks.min_items.filter(|m| count < *m) {
            bad(format!("should have at least {}", plural(min, "items")));
        }
        if let Some(max) = checks.max_items.filter(|m| count > *m) {
            bad(format!("must have at most {}", plural(max, "items")));
        }
        let unique: BTreeSet<String> = items.iter().map(Value::to_string).collect();
        if checks.unique_items && unique.len() != items.len() {
            bad("shouldn't contain duplicates".into());
        }
    }
    if let Some(map) = value.as_object() {
        let count = map.len() as u64;
        if let Some(min) = checks.min_properties.filter(|m| count < *m) {
            bad(format!("should have at least {}", plural(min, "properties")));
        }
        if let Some(max) = checks.max_properties.filter(|m| count > *m) {
            bad(format!("must have at most {}", plural(max, "properties")));
        }
    }
    if let Some(allowed) = checks.allowed.as_ref().filter(|a| !a.contains(value)) {
        let names: Vec<String> =
            allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), String::from)).collect();
        errors.push(FieldError::unsupported(shown(path), value, &names));
    }
}

fn passes(value: &Value, schema: &SchemaRef, path: &str) -> bool {
    let mut errors = Vec::new();
    check(value, schema.get(), path, &mut errors);
    errors.is_empty()
}

fn branches(value: &Value, checks: &Checks, path: &str, errors: &mut Vec<FieldError>) {
    let at = shown(path);
    for part in &checks.all_of {
        check(value, part.get(), path, errors);
    }
    let mut bad = |why: &str| errors.push(FieldError::invalid(at.clone(), value, format!("{at:?} {why}")));
    if !checks.any_of.is_empty() && !checks.any_of.iter().any(|s| passes(value, s, path)) {
        bad("must validate at least one schema (anyOf)");
    }
    if !checks.one_of.is_empty() {
        match checks.one_of.iter().filter(|s| passes(value, s, path)).count() {
            1 => {}
            0 => bad("must validate one and only one schema (oneOf). Found none valid"),
            _ => bad("must validate one and only one schema (oneOf). Found more than one valid"),
        }
    }
    if checks.not.as_ref().is_some_and(|s| passes(value, s, path)) {
        bad("must not validate the schema (not)");
    }
}
