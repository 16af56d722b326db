//! Between versions of one resource: custom versions differ in apiVersion only, the two Event APIs in field names.

use serde_json::{Map, Value};

use crate::kind::Kind;

/// core/v1 Event field → events.k8s.io/v1 field.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// A stored object in `kind`'s version; `None` if it is stored in that version.
pub(crate) fn to_version(stored: &Value, kind: &Kind) -> Option<Value> {
    let want = kind.api_version();
    if stored["apiVersion"].as_str() == Some(want.as_str()) {
        return None;
    }
    let mut out = if kind.is("events.k8s.io", "events") {
        renamed(stored, EVENT_FIELDS.iter().copied())
    } else {
        stored.clone()
    };
    out["apiVersion"] = want.into();
    Some(out)
}

/// An object of `kind`'s version as it is stored.
pub(crate) fn to_storage(value: &mut Value, kind: &Kind) {
    if kind.is("events.k8s.io", "events") {
        *value = renamed(value, EVENT_FIELDS.iter().map(|(core, new)| (*new, *core)));
        value["apiVersion"] = "v1".into();
    } else if let Some(custom) = kind.custom() {
        value["apiVersion"] = custom.storage_version.clone().into();
    }
}

fn renamed<'a>(value: &Value, names: impl Iterator<Item = (&'a str, &'a str)>) -> Value {
    let mut map: Map<String, Value> = value.as_object().cloned().unwrap_or_default();
    for (from, to) in names {
        if let Some(field) = map.remove(from) {
            map.insert(to.into(), field);
        }
    }
    Value::Object(map)
}
