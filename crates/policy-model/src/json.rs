//! Looking into JSON: what is absent and what is null are the same, as for the API server.

use serde_json::Value;

/// The member `key`, unless it is absent or null.
pub(crate) fn get<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|member| !member.is_null())
}

/// The items of the list `key`; none if there is no such list.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    get(value, key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The string `key`.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    get(value, key).and_then(Value::as_str)
}

/// The number `key`.
pub(crate) fn number(value: &Value, key: &str) -> Option<u16> {
    get(value, key).and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok())
}
