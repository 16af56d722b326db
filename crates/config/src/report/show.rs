//! `ovnkube config show`.

use crate::{Config, Origin, options, spec::Spec};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Aligned columns.
    #[default]
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Every setting with its effective value and origin; secrets as dots. `changed` leaves out defaults.
pub fn show(config: &Config, format: Format, changed: bool) -> String {
    let listed = |s: &&Spec| !changed || config.origin(s.name) != Some(&Origin::Default);
    let rows: Vec<[String; 3]> = options::all()
        .filter(listed)
        .map(|s| {
            let text = config.values.text(s.name);
            let text = if s.secret && !text.is_empty() { "••••••" } else { text };
            let origin = config.origin(s.name).map_or_else(String::new, ToString::to_string);
            [s.name.to_owned(), text.to_owned(), origin]
        })
        .collect();
    match format {
        Format::Text => text(&rows),
        Format::Json => json(&rows),
        Format::Yaml => yaml(&rows),
    }
}

fn text(rows: &[[String; 3]]) -> String {
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0).min(48);
    let (name, value) = (width(0), width(1));
    let mut out = String::new();
    for [n, v, o] in rows {
        let v = if v.is_empty() { "-" } else { v };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{n:name$}  {v:value$}  {o}");
    }
    out
}

fn json(rows: &[[String; 3]]) -> String {
    let object: Map<String, Value> =
        rows.iter().map(|[n, v, o]| (n.clone(), json!({ "value": v, "origin": o }))).collect();
    format!("{:#}\n", Value::Object(object))
}

fn yaml(rows: &[[String; 3]]) -> String {
    let mut out = String::new();
    for [n, v, o] in rows {
        // A JSON string is a YAML string too, whatever is in it.
        let _ = writeln!(out, "{n}:\n  value: {}\n  origin: {}", json!(v), json!(o));
    }
    out
}
