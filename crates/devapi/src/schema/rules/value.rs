//! JSON as CEL sees it: field names that CEL could not write are escaped, numbers are of the schema's type.

use std::collections::HashMap;
use std::sync::Arc;

use cel::Value as Cel;
use serde_json::Value;

use super::super::{Schema, Type};

const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The CEL form of a value of this schema.
pub(super) fn of(value: &Value, schema: &Schema) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) if schema.ty != Type::Number => Cel::Int(whole),
            _ => Cel::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => {
            let open = Schema::anything();
            let child = schema.items.as_ref().map_or(&open, |items| items.get());
            Cel::List(Arc::new(items.iter().map(|item| of(item, child)).collect()))
        }
        Value::Object(map) => {
            let open = Schema::anything();
            let entries: HashMap<String, Cel> = map
                .iter()
                .map(|(name, field)| {
                    let child = schema.child(name).unwrap_or(&open);
                    let is_field = schema.properties.contains_key(name);
                    (if is_field { escaped(name) } else { name.clone() }, of(field, child))
                })
                .collect();
            entries.into()
        }
    }
}

/// A field's name inside rules, as the Kubernetes API documentation gives it.
fn escaped(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    let mut out = name.replace("__", "__underscores__");
    for (from, to) in [(".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")] {
        out = out.replace(from, to);
    }
    out
}
