//! Writes `src/protobuf/fields.json`: field numbers of the built-in kinds, read from the `generated.proto` files of
//! the Kubernetes API. Usage: `generate_protobuf FILE… > src/protobuf/fields.json`.

use std::collections::{BTreeMap, BTreeSet};

type Fields = BTreeMap<String, (String, String)>;

/// Messages whose requests are accepted; everything they refer to follows.
const ROOTS: &[&str] = &[
    "core.v1",
    "apps.v1",
    "events.v1",
    "batch.v1",
    "discovery.v1",
    "networking.v1",
    "coordination.v1",
    "rbac.v1",
    "policy.v1",
    "scheduling.v1",
    "storage.v1",
    "authentication.v1",
    "authorization.v1",
];

fn main() {
    let mut messages: BTreeMap<String, Fields> = BTreeMap::new();
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).expect("readable file");
        read(&text, &mut messages);
    }
    let mut wanted: Vec<String> = messages
        .keys()
        .filter(|name| {
            let package = name.rsplit_once('.').map_or("", |(p, _)| p);
            let list = name.ends_with("List") || name.ends_with("ListOptions");
            ROOTS.iter().any(|r| package == format!("k8s.io.api.{r}")) && !list
        })
        .filter(|name| messages[*name].values().any(|(field, _)| field == "metadata"))
        .cloned()
        .collect();
    wanted.push("k8s.io.apimachinery.pkg.apis.meta.v1.DeleteOptions".into());
    wanted.push("k8s.io.api.core.v1.Binding".into());
    let mut seen = BTreeSet::new();
    let mut out = serde_json::Map::new();
    while let Some(name) = wanted.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let Some(fields) = messages.get(&name) else { continue };
        let mut json = serde_json::Map::new();
        for (number, (field, ty)) in fields {
            if let Some(message) = ty.trim_start_matches(['*', '%']).strip_prefix('.') {
                wanted.push(message.to_string());
            }
            json.insert(number.clone(), serde_json::json!([field, ty]));
        }
        out.insert(name, json.into());
    }
    println!("{}", serde_json::Value::Object(out));
}

fn read(text: &str, messages: &mut BTreeMap<String, Fields>) {
    let mut package = String::new();
    let mut current = String::new();
    for line in text.lines().map(str::trim).filter(|l| !l.starts_with("//")) {
        if let Some(name) = line.strip_prefix("package ") {
            package = name.trim_end_matches(';').to_string();
        } else if let Some(name) = line.strip_prefix("message ") {
            current = format!("{package}.{}", name.trim_end_matches(['{', ' ', '}']));
            messages.entry(current.clone()).or_default();
        } else if let Some((left, number)) = line.trim_end_matches(';').split_once(" = ") {
            let Some((rule, rest)) = left.split_once([' ', '<']) else { continue };
            let (ty, field) = match rule {
                "optional" => rest.rsplit_once(' ').map(|(t, f)| (short(t, &package), f)),
                "repeated" => rest.rsplit_once(' ').map(|(t, f)| (format!("*{}", short(t, &package)), f)),
                "map" => rest.rsplit_once("> ").map(|(t, f)| {
                    let value = t.split_once(", ").map_or(t, |(_, v)| v);
                    (format!("%{}", short(value, &package)), f)
                }),
                _ => None,
            }
            .unwrap_or_default();
            if !field.is_empty() {
                messages.entry(current.clone()).or_default().insert(number.into(), (field.into(), ty));
            }
        }
    }
}

/// One letter for a scalar, `.full.name` for a message.
fn short(ty: &str, package: &str) -> String {
    match ty {
        "string" => "s".into(),
        "bytes" => "y".into(),
        "bool" => "b".into(),
        "int32" | "int64" | "uint32" | "uint64" => "i".into(),
        "double" => "d".into(),
        full if full.starts_with('.') => full.into(),
        local => format!(".{package}.{local}"),
    }
}
