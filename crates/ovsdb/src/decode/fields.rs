//! Rows of select results, whose columns come without a schema.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

use crate::{Atom, Datum, Real, Uuid};

/// Columns by name, as a select returned them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields(Vec<(String, Datum)>);

// === impl Fields ===

impl Fields {
    /// The value of a column.
    pub fn get(&self, column: &str) -> Option<&Datum> {
        self.0.iter().find(|(name, _)| name == column).map(|(_, value)| value)
    }

    /// The text of a string column.
    pub fn str(&self, column: &str) -> Option<&str> {
        self.get(column)?.as_str()
    }

    /// The string that a map column holds under `key`.
    pub fn key(&self, column: &str, key: &str) -> Option<&str> {
        self.get(column)?.get(key)
    }

    /// The row's identity, if `_uuid` was selected.
    pub fn uuid(&self) -> Option<Uuid> {
        self.get("_uuid")?.as_uuid()
    }

    /// All columns.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Datum)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        let object = serde_json::Map::<String, Value>::deserialize(deserializer)?;
        object
            .into_iter()
            .map(|(name, value)| {
                let value = untyped(&value).ok_or_else(|| D::Error::custom("malformed column value"))?;
                Ok((name, value))
            })
            .collect::<Result<_, _>>()
            .map(Fields)
    }
}

fn untyped(value: &Value) -> Option<Datum> {
    let Value::Array(array) = value else {
        return atom(value).map(Datum::scalar);
    };
    let [Value::String(tag), content] = array.as_slice() else {
        return None;
    };
    match tag.as_str() {
        "set" => content.as_array()?.iter().map(atom).collect::<Option<_>>().map(Datum::from_atoms),
        "map" => {
            let pair = |pair: &Value| match pair.as_array()?.as_slice() {
                [key, value] => Some((atom(key)?, atom(value)?)),
                _ => None,
            };
            content.as_array()?.iter().map(pair).collect::<Option<_>>().map(Datum::from_pairs)
        }
        _ => atom(value).map(Datum::scalar),
    }
}

fn atom(value: &Value) -> Option<Atom> {
    match value {
        Value::String(text) => Some(Atom::from(text)),
        Value::Bool(value) => Some(Atom::Bool(*value)),
        Value::Number(number) => match number.as_i64() {
            Some(value) => Some(Atom::Int(value)),
            None => Some(Atom::Real(Real::new(number.as_f64()?))),
        },
        Value::Array(array) => match array.as_slice() {
            [Value::String(tag), Value::String(text)] if tag == "uuid" => {
                Uuid::parse(text.as_bytes()).map(Atom::Uuid)
            }
            _ => None,
        },
        _ => None,
    }
}
