//! Defaults of a schema, filled into an object.

use serde_json::Value;

use super::Schema;

/// Fills missing fields that have a default; nulls of fields that are not nullable count as missing.
pub(crate) fn apply_defaults(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for (name, child) in &schema.properties {
                let child = child.get();
                let missing = match map.get(name) {
                    None => true,
                    Some(Value::Null) => !child.nullable,
                    Some(_) => false,
                };
                if let Some(default) = child.default.as_ref().filter(|_| missing) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, field) in map.iter_mut() {
                if let Some(child) = schema.child(name) {
                    apply_defaults(field, child);
                }
            }
        }
        Value::Array(items) => {
            let Some(child) = &schema.items else { return };
            for item in items {
                apply_defaults(item, child.get());
            }
        }
        _ => {}
    }
}
