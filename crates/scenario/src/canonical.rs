//! A database in canonical form: rows under stable keys, references by key, everything sorted, empty columns
//! left out.

use std::collections::BTreeMap;

use ovsdb::{Atom, Datum, Row, Uuid};
use serde_json::{Map, Value};

/// Rows by table and key.
pub type Rows = BTreeMap<String, BTreeMap<String, Map<String, Value>>>;

/// Puts rows into canonical form.
pub fn canonical<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Rows {
    let mut named: Vec<(String, String, &Row)> = Vec::new();
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut names: BTreeMap<Uuid, String> = BTreeMap::new();
    for row in rows {
        let table = row.table().to_owned();
        let mut key = key(row);
        let count = seen.entry((table.clone(), key.clone())).or_default();
        *count += 1;
        if *count > 1 {
            key = format!("{key}#{count}");
        }
        names.insert(row.uuid(), format!("{table}:{key}"));
        named.push((table, key, row));
    }
    let mut out = Rows::new();
    for (table, key, row) in named {
        let columns = row.columns().filter_map(|(column, datum)| {
            let value = value(datum, &names)?;
            Some((column.name.to_string(), value))
        });
        out.entry(table).or_default().insert(key, columns.collect());
    }
    out
}

fn key(row: &Row) -> String {
    let text = |column: &str| row.get(column).and_then(Datum::as_str).unwrap_or_default().to_owned();
    // An absent optional column shows as an empty list in recorded keys.
    let optional =
        |column: &str| row.get(column).and_then(Datum::as_str).map_or("[]".to_owned(), str::to_owned);
    let number = |column: &str| row.get(column).and_then(Datum::as_int).unwrap_or_default();
    let id = row.key("external_ids", "k8s.ovn.org/id").map(str::to_owned);
    match row.table() {
        "ACL" => {
            id.unwrap_or_else(|| format!("{}/{}/{}", text("direction"), number("priority"), text("match")))
        }
        "Address_Set" | "Port_Group" => id.unwrap_or_else(|| text("name")),
        "QoS" => id.unwrap_or_else(|| format!("{}/{}", number("priority"), text("match"))),
        "NAT" => format!(
            "{}/{}/{}/{}/{}",
            text("type"),
            text("logical_ip"),
            text("external_ip"),
            text("match"),
            id.unwrap_or_default()
        ),
        "Logical_Router_Static_Route" => format!(
            "{}/{}/{}/{}/{}",
            text("ip_prefix"),
            text("nexthop"),
            optional("policy"),
            optional("output_port"),
            text("route_table")
        ),
        "Logical_Router_Policy" => format!("{}/{}", number("priority"), text("match")),
        "NB_Global" => "nb_global".to_owned(),
        "Static_MAC_Binding" => format!("{}/{}", text("logical_port"), text("ip")),
        "Meter_Band" => format!("{}/{}/{}", text("action"), number("rate"), number("burst_size")),
        _ => text("name"),
    }
}

fn value(datum: &Datum, names: &BTreeMap<Uuid, String>) -> Option<Value> {
    if datum.is_map() {
        let map: Map<String, Value> =
            datum.pairs().iter().map(|(key, value)| (plain(key, names), atom(value, names))).collect();
        return (!map.is_empty()).then_some(Value::Object(map));
    }
    let mut items: Vec<Value> = datum.atoms().iter().map(|item| atom(item, names)).collect();
    items.sort_by_key(Value::to_string);
    match items.len() {
        0 => None,
        1 => items.pop().filter(|item| !is_default(item)),
        _ => Some(Value::Array(items)),
    }
}

fn is_default(value: &Value) -> bool {
    matches!(value, Value::Bool(false)) || value.as_str() == Some("") || value.as_f64() == Some(0.0)
}

fn atom(atom: &Atom, names: &BTreeMap<Uuid, String>) -> Value {
    match atom {
        Atom::Int(number) => Value::from(*number),
        Atom::Bool(flag) => Value::from(*flag),
        Atom::Uuid(uuid) => Value::from(format!("@{}", names.get(uuid).map_or("missing", String::as_str))),
        other => Value::from(plain(other, names)),
    }
}

fn plain(atom: &Atom, names: &BTreeMap<Uuid, String>) -> String {
    match atom {
        Atom::Str(text) => text.to_string(),
        Atom::Int(number) => number.to_string(),
        Atom::Bool(flag) => flag.to_string(),
        Atom::Uuid(uuid) => names.get(uuid).cloned().unwrap_or_default(),
        other => format!("{other:?}"),
    }
}
