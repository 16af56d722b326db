//! Comparison of two canonical dumps.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::canonical::Rows;

const PENDING: &str = include_str!("../pending.txt");
const DIFFERENCES: &str = include_str!("../differences.txt");

/// Tables that say nothing about what a controller writes.
const SKIPPED: &[&str] = &["NB_Global", "Connection", "SSL"];
/// Columns northd writes.
const NORTHD: &[(&str, &str)] =
    &[("Logical_Switch_Port", "up"), ("Logical_Router_Port", "status"), ("BFD", "status")];

/// What differs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many rows are equal.
    pub equal: usize,
    /// Rows of the reference that belong to features still to come.
    pub pending: usize,
    /// Everything else that differs, a line each.
    pub different: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.different {
            writeln!(f, "{line}")?;
        }
        write!(f, "{} rows equal, {} pending, {} differences", self.equal, self.pending, self.different.len())
    }
}

/// Compares a candidate with the reference. Pod UIDs (`iface-id-ver`) differ from run to run by nature.
pub fn compare(reference: &Rows, candidate: &Rows) -> Report {
    compare_with(&Patterns::parse(PENDING, 1, 2), reference, candidate)
}

fn compare_with(pending: &Patterns, reference: &Rows, candidate: &Rows) -> Report {
    let mut report = Report::default();
    let tables: BTreeSet<&String> = reference.keys().chain(candidate.keys()).collect();
    for table in tables.into_iter().filter(|table| !SKIPPED.contains(&table.as_str())) {
        let empty = Default::default();
        let (left, right) = (reference.get(table).unwrap_or(&empty), candidate.get(table).unwrap_or(&empty));
        let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
        for key in keys {
            match (left.get(key), right.get(key)) {
                (Some(_), None) if pending.match_row(table, key) => report.pending += 1,
                (Some(_), None) => report.different.push(format!("- {table} {key}")),
                (None, Some(_)) if listed(table, key, "-") => {}
                (None, Some(_)) => report.different.push(format!("+ {table} {key}")),
                (Some(left), Some(right)) => {
                    let columns: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
                    let before = report.different.len();
                    for column in columns
                        .into_iter()
                        .filter(|column| !NORTHD.contains(&(table.as_str(), column.as_str())))
                    {
                        let clean = |value: Option<&Value>| value.and_then(|value| without(value, pending));
                        let (left, right) = (clean(left.get(column)), clean(right.get(column)));
                        if left != right && !listed(table, key, column) {
                            let show = |value: &Option<Value>| {
                                value.as_ref().map_or("nothing".into(), Value::to_string)
                            };
                            report.different.push(format!(
                                "~ {table} {key} .{column}\n    reference {}\n    candidate {}",
                                show(&left),
                                show(&right)
                            ));
                        }
                    }
                    report.equal += usize::from(report.different.len() == before);
                }
                (None, None) => {}
            }
        }
    }
    report
}

/// The value without references to pending rows and without what differs by nature.
fn without(value: &Value, pending: &Patterns) -> Option<Value> {
    let is_pending = |item: &Value| {
        let reference =
            item.as_str().and_then(|text| text.strip_prefix('@')).and_then(|text| text.split_once(':'));
        reference.is_some_and(|(table, key)| pending.match_row(table, key))
    };
    match value {
        Value::Array(items) => {
            let mut kept: Vec<Value> = items.iter().filter(|item| !is_pending(item)).cloned().collect();
            match kept.len() {
                0 => None,
                1 => kept.pop(),
                _ => Some(Value::Array(kept)),
            }
        }
        Value::Object(map) => {
            let mut map = map.clone();
            if map.contains_key("iface-id-ver") {
                map.insert("iface-id-ver".into(), Value::from("<uid>"));
            }
            Some(Value::Object(map))
        }
        other if is_pending(other) => None,
        other => Some(other.clone()),
    }
}

fn listed(table: &str, key: &str, column: &str) -> bool {
    lines(DIFFERENCES).any(|words| {
        words.first() == Some(&table)
            && words.get(1).is_some_and(|pattern| matches(pattern, key))
            && words.get(2).is_some_and(|listed| *listed == column)
    })
}

struct Patterns(Vec<(&'static str, &'static str)>);

impl Patterns {
    fn parse(text: &'static str, table: usize, key: usize) -> Patterns {
        Patterns(lines(text).filter_map(|words| Some((*words.get(table)?, *words.get(key)?))).collect())
    }

    fn match_row(&self, table: &str, key: &str) -> bool {
        self.0.iter().any(|(of, pattern)| *of == table && matches(pattern, key))
    }
}

fn lines(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_whitespace().collect())
}

/// Whether `text` fits `pattern`, in which a `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, fits) in [
            ("GR_*", "GR_node1", true),
            ("GR_*", "xGR_node1", false),
            ("*/src-ip/*", "10.0.0.0/8/1.1.1.1/src-ip/[]/", true),
            ("*/rtoe-GR_*/", "0.0.0.0/0/1.1.1.1/[]/rtoe-GR_n/", true),
            ("*", "", true),
            ("a", "a", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn a_changed_a_missing_and_an_extra_row_are_told() {
        let rows = |json: &str| -> Rows { serde_json::from_str(json).unwrap() };
        let left = rows(r#"{"Meter":{"a":{"unit":"pktps"},"b":{}},"NAT":{"x":{}}}"#);
        let right = rows(r#"{"Meter":{"a":{"unit":"kbps"},"c":{}}}"#);
        let pending = Patterns::parse("later NAT *", 1, 2);
        let report = compare_with(&pending, &left, &right);
        assert_eq!((report.equal, report.pending, report.different.len()), (0, 1, 3), "{report}");
        assert_eq!(compare_with(&pending, &left, &left).different, Vec::<String>::new());
    }
}
