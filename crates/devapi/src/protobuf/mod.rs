//! Request bodies in Kubernetes' protobuf encoding, which typed Go clients send for built-in kinds
//! (`kubectl create namespace`, `kubectl auth can-i`). Replies are always JSON, which those clients accept.
//! `fields.json` is made by `examples/generate_protobuf.rs`.

use std::sync::LazyLock;

use base64::Engine as _;
use serde_json::{Map, Value, json};

use crate::{
    identity::seconds_text,
    schema::{Schema, named},
};

const MAGIC: &[u8] = b"k8s\0";
/// Messages nest no deeper than this in any API type.
const MAX_DEPTH: usize = 64;

static FIELDS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    // The file is part of the program; a test reads it.
    serde_json::from_str(include_str!("fields.json")).unwrap_or_default()
});

/// Numbers and switches where zero or false was chosen by the author: the encoding also carries plain zeros.
const MEANINGFUL_ZERO: &[&str] = &[
    "replicas",
    "terminationGracePeriodSeconds",
    "gracePeriodSeconds",
    "tolerationSeconds",
    "runAsUser",
    "runAsGroup",
    "fsGroup",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "allowPrivilegeEscalation",
    "runAsNonRoot",
    "readOnlyRootFilesystem",
    "controller",
    "blockOwnerDeletion",
    "ready",
    "serving",
    "terminating",
    "immutable",
    "hostUsers",
    "shareProcessNamespace",
    "allocateLoadBalancerNodePorts",
    "leaseTransitions",
    "port",
    "revisionHistoryLimit",
    "backoffLimit",
    "completions",
    "parallelism",
    "ttlSecondsAfterFinished",
    "suspend",
    "value",
];

#[derive(Clone, Copy)]
enum Raw<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Decodes a body; the error says what is wrong with it.
pub(crate) fn decode(body: &[u8]) -> Result<Value, String> {
    let body = body.strip_prefix(MAGIC).ok_or("the body is not protobuf of the Kubernetes API")?;
    let (mut api_version, mut kind, mut raw): (String, String, &[u8]) = Default::default();
    for field in fields(body)? {
        match field {
            (1, Raw::Bytes(meta)) => {
                for (number, value) in fields(meta)? {
                    match (number, value) {
                        (1, Raw::Bytes(b)) => api_version = text(b)?,
                        (2, Raw::Bytes(b)) => kind = text(b)?,
                        _ => {}
                    }
                }
            }
            (2, Raw::Bytes(b)) => raw = b,
            _ => {}
        }
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("core", &api_version));
    let meta = "apimachinery.pkg.apis.meta";
    let package = match group {
        "meta.k8s.io" => meta.to_string(),
        _ if matches!(kind.as_str(), "DeleteOptions" | "Status") => meta.to_string(),
        group => {
            let name = group.trim_end_matches(".authorization.k8s.io").trim_end_matches(".k8s.io");
            format!("api.{name}")
        }
    };
    let name = format!("{package}.{version}.{kind}");
    let message_name = format!("k8s.io.{name}");
    if !FIELDS.contains_key(&message_name) {
        return Err(format!("no kind {kind:?} is registered for version {api_version:?} in protobuf"));
    }
    let mut object = message(raw, &message_name, Some(named(&format!("io.k8s.{name}"))), 0)?;
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a string is not UTF-8".into())
}

/// Splits a message into its fields.
fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Raw<'_>)>, String> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Raw::Number(varint(&mut bytes)?),
            1 => Raw::Number(fixed::<8>(&mut bytes)?),
            5 => Raw::Number(fixed::<4>(&mut bytes)?),
            2 => {
                let length = varint(&mut bytes)?;
                let length =
                    usize::try_from(length).ok().filter(|l| *l <= bytes.len()).ok_or("a field is cut off")?;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Raw::Bytes(value)
            }
            other => return Err(format!("wire type {other} is not used by the Kubernetes API")),
        };
        out.push((key >> 3, value));
    }
    Ok(out)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or("a number is cut off")?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number is too long".into())
}

fn fixed<const N: usize>(bytes: &mut &[u8]) -> Result<u64, String> {
    let (value, rest) = bytes.split_at_checked(N).ok_or("a number is cut off")?;
    *bytes = rest;
    Ok(value.iter().rev().fold(0, |all, b| all << 8 | u64::from(*b)))
}

fn message(
    bytes: &[u8],
    name: &str,
    schema: Option<&Schema>,
    depth: usize,
) -> Result<Map<String, Value>, String> {
    if depth > MAX_DEPTH {
        return Err("messages are nested too deeply".into());
    }
    let known = FIELDS.get(name);
    let mut out = Map::new();
    for (number, raw) in fields(bytes)? {
        // Fields of newer clients are skipped, as unknown JSON fields are.
        let Some(spec) = known.and_then(|k| k.get(number.to_string())) else { continue };
        let (Some(field), Some(ty)) = (spec[0].as_str(), spec[1].as_str()) else { continue };
        let child = schema.and_then(|s| s.child(field));
        if let Some(ty) = ty.strip_prefix('*') {
            let items = child.and_then(|c| c.items.as_ref()).map(|i| i.get());
            let list = out.entry(field).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(value(raw, ty, items, depth)?.unwrap_or_default());
            }
        } else if let Some(ty) = ty.strip_prefix('%') {
            let values = child.and_then(|c| c.additional.as_ref()).map(|a| a.get());
            let (key, entry) = map_entry(raw, ty, values, depth)?;
            let map = out.entry(field).or_insert_with(|| json!({}));
            map[key] = entry;
        } else {
            let inlined = schema.is_some_and(|s| !s.properties.contains_key(field) && !s.is_open());
            match (inlined, ty.strip_prefix('.'), raw) {
                // Go embeds these structs, so that their fields are the parent's in JSON.
                (true, Some(inner), Raw::Bytes(bytes)) => {
                    out.extend(message(bytes, inner, schema, depth + 1)?)
                }
                _ => {
                    let found = value(raw, ty, child, depth)?;
                    if let Some(found) = found.filter(|v| !is_zero(v) || MEANINGFUL_ZERO.contains(&field)) {
                        out.insert(field.into(), found);
                    }
                }
            }
        }
    }
    Ok(out)
}

fn is_zero(value: &Value) -> bool {
    matches!(value, Value::Bool(false)) || value.as_str() == Some("") || value.as_i64() == Some(0)
}

fn map_entry(
    raw: Raw<'_>,
    ty: &str,
    schema: Option<&Schema>,
    depth: usize,
) -> Result<(String, Value), String> {
    let Raw::Bytes(bytes) = raw else { return Err("a map entry is not a message".into()) };
    let (mut key, mut entry) = (String::new(), if ty == "s" || ty == "y" { json!("") } else { Value::Null });
    for field in fields(bytes)? {
        match field {
            (1, Raw::Bytes(b)) => key = text(b)?,
            (2, raw) => entry = value(raw, ty, schema, depth)?.unwrap_or_default(),
            _ => {}
        }
    }
    Ok((key, entry))
}

fn value(raw: Raw<'_>, ty: &str, schema: Option<&Schema>, depth: usize) -> Result<Option<Value>, String> {
    Ok(Some(match (ty, raw) {
        ("s", Raw::Bytes(b)) => text(b)?.into(),
        ("y", Raw::Bytes(b)) => base64::engine::general_purpose::STANDARD.encode(b).into(),
        ("b", Raw::Number(n)) => (n != 0).into(),
        ("i", Raw::Number(n)) => n.cast_signed().into(),
        ("d", Raw::Number(n)) => f64::from_bits(n).into(),
        (message_type, Raw::Bytes(b)) => {
            return special(b, message_type.trim_start_matches('.'), schema, depth);
        }
        _ => return Err(format!("a field of type {ty} has the wrong wire type")),
    }))
}

/// Messages whose JSON form is not an object of their fields.
fn special(bytes: &[u8], name: &str, schema: Option<&Schema>, depth: usize) -> Result<Option<Value>, String> {
    let mut numbers = [0i64; 8];
    let mut first = None;
    let mut third = None;
    let plain = ["Time", "MicroTime", "Quantity", "IntOrString", "RawExtension", "FieldsV1"];
    let short = name.rsplit('.').next().unwrap_or_default();
    let is_meta = name.starts_with("k8s.io.apimachinery.");
    if !is_meta || !plain.contains(&short) {
        if name.ends_with(".ExtraValue") {
            let items = fields(bytes)?
                .into_iter()
                .filter_map(|(_, r)| if let Raw::Bytes(b) = r { text(b).ok() } else { None });
            return Ok(Some(items.collect::<Vec<_>>().into()));
        }
        return message(bytes, name, schema, depth + 1).map(|m| Some(Value::Object(m)));
    }
    for (number, raw) in fields(bytes)? {
        match (number, raw) {
            (1, Raw::Bytes(b)) => first = Some(b),
            (3, Raw::Bytes(b)) => third = Some(b),
            (n @ 1..8, Raw::Number(v)) => numbers[n as usize] = v.cast_signed(),
            _ => {}
        }
    }
    Ok(match short {
        // The zero time is sent empty and is null in JSON.
        "Time" | "MicroTime" if bytes.is_empty() => None,
        "Time" => Some(seconds_text(numbers[1]).into()),
        "MicroTime" => {
            let whole = seconds_text(numbers[1]);
            Some(format!("{}.{:06}Z", whole.trim_end_matches('Z'), numbers[2] / 1000).into())
        }
        "Quantity" => Some(text(first.unwrap_or_default())?.into()),
        "IntOrString" if numbers[1] == 0 => Some(numbers[2].into()),
        "IntOrString" => Some(text(third.unwrap_or_default())?.into()),
        _ => {
            let raw = first.unwrap_or_default();
            if raw.is_empty() {
                None
            } else {
                Some(serde_json::from_slice(raw).map_err(|e| format!("embedded JSON: {e}"))?)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).expect("short")];
        out.extend_from_slice(bytes);
        out
    }

    fn wrapped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn objects() {
        let metadata = [
            field(1, b"a"),
            field(2, b""),
            field(8, b""),
            field(11, &[field(1, b"k"), field(2, b"v")].concat()),
        ];
        let volume = [field(1, b"vol"), field(2, &field(2, b""))].concat();
        let spec = [field(1, &volume), vec![4 << 3, 0]].concat();
        let pod = [field(1, &metadata.concat()), field(2, &spec)].concat();
        let object = decode(&wrapped("v1", "Pod", &pod)).expect("a pod");
        let want = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"k": "v"}},
            "spec": {"volumes": [{"name": "vol", "emptyDir": {}}], "terminationGracePeriodSeconds": 0}});
        assert_eq!(object, want);
    }

    #[test]
    fn bad_bytes_are_errors() {
        let good = wrapped("v1", "Pod", &field(1, &field(1, b"name")));
        assert!(decode(&good).is_ok());
        for cut in 0..good.len() {
            // Cuts inside the frame are noticed or give less; none may panic.
            let _ = decode(&good[..cut]);
        }
        assert!(decode(b"{}").is_err());
        assert!(decode(&wrapped("v1", "Nothing", b"")).is_err());
        assert!(decode(&wrapped("v1", "Pod", &[0x0a, 0xff, 0xff])).is_err());
    }

    #[test]
    fn the_table_of_fields_is_readable() {
        assert!(FIELDS.len() > 200);
        assert!(FIELDS.contains_key("k8s.io.api.authorization.v1.SelfSubjectAccessReview"));
    }
}
