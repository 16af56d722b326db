//! Objects as the tables kubectl prints (`meta.k8s.io/v1 Table`).

mod built_in;
mod duration;
mod jsonpath;

use serde_json::{Value, json};

pub(crate) use duration::age;

use crate::kind::Kind;

/// A column: name, type, format, priority (0 is always shown, 1 with `-o wide`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    name: String,
    ty: String,
    format: String,
    priority: i64,
}

fn column(name: &str, ty: &str, priority: i64) -> Column {
    let format = if name == "Name" { "name" } else { "" };
    Column { name: name.into(), ty: ty.into(), format: format.into(), priority }
}

fn columns(kind: &Kind) -> Vec<Column> {
    if let Some(custom) = kind.custom().filter(|c| !c.columns.is_empty()) {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
        let own = custom.columns.iter().map(|c| Column {
            name: text(&c["name"]),
            ty: text(&c["type"]),
            format: text(&c["format"]),
            priority: c["priority"].as_i64().unwrap_or(0),
        });
        return std::iter::once(column("Name", "string", 0)).chain(own).collect();
    }
    let list = if kind.is_custom() { None } else { built_in::columns(&kind.group, &kind.plural) };
    let list = list.unwrap_or(&[("Name", 0), ("Age", 0)]);
    list.iter().map(|(name, priority)| column(name, built_in::column_type(name), *priority)).collect()
}

fn cells(kind: &Kind, object: &Value) -> Vec<Value> {
    let name = object["metadata"]["name"].clone();
    if let Some(custom) = kind.custom().filter(|c| !c.columns.is_empty()) {
        let own = custom.columns.iter().map(|c| {
            let found = jsonpath::find(object, c["jsonPath"].as_str().unwrap_or_default());
            custom_cell(&found, c["type"].as_str().unwrap_or_default())
        });
        return std::iter::once(name).chain(own).collect();
    }
    let own = if kind.is_custom() { None } else { built_in::cells(&kind.group, &kind.plural, object) };
    own.unwrap_or_else(|| vec![name, age(&object["metadata"]["creationTimestamp"]).into()])
}

fn custom_cell(found: &[&Value], ty: &str) -> Value {
    let Some(first) = found.first() else { return Value::Null };
    match (ty, first) {
        (_, Value::Null) => Value::Null,
        ("date", value) => age(value).into(),
        ("string", Value::String(_)) if found.len() == 1 => (*first).clone(),
        ("string", _) if found.len() > 1 => {
            let parts: Vec<String> =
                found.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), String::from)).collect();
            parts.join(",").into()
        }
        ("string", value) => value.to_string().into(),
        (_, value) => (*value).clone(),
    }
}

/// Rows of objects; `include` says how much of each object comes along (`Metadata`, `Object`, `None`).
pub(crate) fn rows<'a>(kind: &Kind, objects: impl IntoIterator<Item = &'a Value>, include: &str) -> Value {
    let rows = objects.into_iter().map(|object| {
        let mut row = json!({"cells": cells(kind, object)});
        match include {
            "None" => {}
            "Object" => row["object"] = object.clone(),
            _ => {
                row["object"] = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                    "metadata": object["metadata"]});
            }
        }
        row
    });
    rows.collect()
}

/// A table out of rows.
pub(crate) fn table(kind: &Kind, rows: Value, meta: Value, with_columns: bool) -> Value {
    let columns: Vec<Value> = if with_columns {
        let all = columns(kind);
        all.iter()
            .map(|c| json!({"name": c.name, "type": c.ty, "format": c.format, "description": "", "priority": c.priority}))
            .collect()
    } else {
        Vec::new()
    };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": columns, "rows": rows})
}
