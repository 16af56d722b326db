//! What reading an object does to it: unknown fields are dropped, wrong JSON types refused.

use serde_json::{Map, Value};

use super::{Schema, Type};
use crate::identity::parse_time;

/// Paths of fields the schema does not know, e.g. `spec.containers[0].imagee`.
pub(crate) type Unknown = Vec<String>;

/// Reads a built-in object as the typed server does: nulls vanish, unknown fields are dropped and reported,
/// wrong types are an error.
pub(crate) fn decode(value: &mut Value, schema: &Schema, unknown: &mut Unknown) -> Result<(), String> {
    decode_at(value, schema, &mut String::new(), unknown)
}

fn decode_at(
    value: &mut Value,
    schema: &Schema,
    path: &mut String,
    unknown: &mut Unknown,
) -> Result<(), String> {
    typed(value, schema, path)?;
    match value {
        Value::Object(map) if !schema.is_open() => {
            map.retain(|_, v| !v.is_null());
            drop_unknown(map, schema, path, unknown);
            for (name, field) in map.iter_mut() {
                let Some(child) = schema.child(name) else { continue };
                let length = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                decode_at(field, child, path, unknown)?;
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return Ok(()) };
            for (at, item) in items.iter_mut().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{at}]"));
                decode_at(item, child.get(), path, unknown)?;
                path.truncate(length);
            }
        }
        _ => {}
    }
    Ok(())
}

fn drop_unknown(map: &mut Map<String, Value>, schema: &Schema, path: &str, unknown: &mut Unknown) {
    if schema.additional.is_some() {
        return;
    }
    map.retain(|name, _| {
        let known = schema.properties.contains_key(name);
        if !known {
            unknown.push(if path.is_empty() { name.clone() } else { format!("{path}.{name}") });
        }
        known
    });
}

fn typed(value: &Value, schema: &Schema, path: &str) -> Result<(), String> {
    let fits = match (schema.ty, value) {
        (Type::Any, _) | (_, Value::Null) => true,
        (Type::Object, v) => v.is_object(),
        (Type::Array, v) => v.is_array(),
        (Type::Boolean, v) => v.is_boolean(),
        (Type::Number, v) => v.is_number(),
        (Type::IntOrString, v) => v.is_string() || v.is_i64(),
        (Type::Integer, v) => {
            v.as_i64().is_some_and(|n| schema.format != "int32" || i32::try_from(n).is_ok())
        }
        (Type::String, Value::Number(_)) => schema.format == "quantity",
        (Type::String, v) => v.is_string(),
    };
    if !fits {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let want = match schema.ty {
            Type::Boolean => "bool",
            Type::Integer => {
                if schema.format == "int64" {
                    "int64"
                } else {
                    "int32"
                }
            }
            Type::Number => "float64",
            Type::String => "string",
            Type::Array => "[]",
            _ => "map",
        };
        return Err(format!("json: cannot unmarshal {kind} into Go struct field {path} of type {want}"));
    }
    let Value::String(text) = value else { return Ok(()) };
    match schema.format.as_str() {
        "micro-time" if !is_micro_time(text) => Err(format!(
            "{path}: parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse"
        )),
        "date-time" if parse_time(text).is_none() => {
            Err(format!("{path}: parsing time {text:?} as RFC 3339: cannot parse"))
        }
        "byte" if !is_base64(text) => Err(format!("{path}: illegal base64 data")),
        "quantity" if !is_quantity(text) => Err(format!(
            "{path}: quantities must match the regular expression \
             '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )),
        _ => Ok(()),
    }
}

/// Microseconds are all written out, neither more nor fewer digits.
fn is_micro_time(text: &str) -> bool {
    let digits =
        text.split_once('.').map_or(0, |(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
    digits == 6 && parse_time(text).is_some()
}

fn is_base64(text: &str) -> bool {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// Whether the text is a resource quantity: a decimal number and a suffix.
fn is_quantity(text: &str) -> bool {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
    let (number, suffix) = body.split_at(end);
    let digits = number.bytes().any(|b| b.is_ascii_digit()) && number.matches('.').count() <= 1;
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|e| e.parse::<i32>().is_ok());
    digits
        && (exponent
            || matches!(
                suffix,
                "" | "n"
                    | "u"
                    | "m"
                    | "k"
                    | "M"
                    | "G"
                    | "T"
                    | "P"
                    | "E"
                    | "Ki"
                    | "Mi"
                    | "Gi"
                    | "Ti"
                    | "Pi"
                    | "Ei"
            ))
}

/// Drops what a custom resource's schema does not specify; types are left to validation.
pub(crate) fn prune(value: &mut Value, schema: &Schema, path: &str, unknown: &mut Unknown) {
    match value {
        Value::Object(map) => {
            if !schema.preserve_unknown {
                let keep_identity = schema.embedded;
                let identity = ["apiVersion", "kind", "metadata"];
                let mut held = Vec::new();
                if keep_identity {
                    held = identity.iter().filter_map(|k| map.remove_entry(*k)).collect();
                }
                drop_unknown(map, schema, path, unknown);
                map.extend(held);
            }
            for (name, field) in map.iter_mut() {
                if let Some(child) = schema.child(name) {
                    let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    prune(field, child, &at, unknown);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return };
            for (at, item) in items.iter_mut().enumerate() {
                prune(item, child.get(), &format!("{path}[{at}]"), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::named;

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {"containers": [{"name": "c", "imagee": "x", "env": null}], "hostNetwork": true}, "extra": 1});
        let mut unknown = Unknown::new();
        decode(&mut pod, named("io.k8s.api.core.v1.Pod"), &mut unknown).expect("types fit");
        assert_eq!(unknown, ["extra", "spec.containers[0].imagee"]);
        assert_eq!(pod["spec"]["containers"][0], json!({"name": "c"}));
        assert_eq!(pod["metadata"]["labels"]["x"], "y");
    }

    #[test]
    fn wrong_types_are_refused() {
        let cases = [
            (json!({"spec": {"hostNetwork": "yes"}}), "spec.hostNetwork of type bool"),
            (json!({"spec": {"containers": {}}}), "spec.containers of type []"),
            (json!({"metadata": {"labels": {"a": 1}}}), "metadata.labels.a of type string"),
            (json!({"spec": {"terminationGracePeriodSeconds": 1.5}}), "of type int64"),
            (json!({"metadata": {"creationTimestamp": "soon"}}), "RFC 3339"),
            (
                json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1x"}}}]}}),
                "quantities",
            ),
        ];
        for (mut value, part) in cases {
            let error =
                decode(&mut value, named("io.k8s.api.core.v1.Pod"), &mut Vec::new()).expect_err("refused");
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn quantities() {
        for good in ["1", "100m", "1.5Gi", "+2k", "1e3", "1E6", "0"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "x", "1 Gi", "1KB", "1..2", "e3"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }
}
