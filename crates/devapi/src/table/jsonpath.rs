//! The part of JSONPath printer columns use: fields, `['field']`, indexes, `[*]`, and `[?(@.field=="value")]`.

use serde_json::Value;

/// All values a path finds.
pub(super) fn find<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![object];
    let mut rest = path.trim().trim_start_matches('$');
    while !rest.is_empty() && !found.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let Some(end) = close(inner) else { return Vec::new() };
            found = bracket(&found, &inner[..end]);
            rest = &inner[end + 1..];
        } else {
            let field = rest.trim_start_matches('.');
            let end = field_end(field);
            let name = field[..end].replace("\\.", ".");
            if !name.is_empty() {
                found = found.iter().filter_map(|v| v.get(&name)).collect();
            }
            if end == 0 && field.len() == rest.len() {
                return Vec::new();
            }
            rest = &field[end..];
        }
    }
    found
}

fn field_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    (0..bytes.len())
        .find(|at| matches!(bytes[*at], b'[') || (bytes[*at] == b'.' && (*at == 0 || bytes[at - 1] != b'\\')))
        .unwrap_or(bytes.len())
}

/// Where the bracket closes, quotes respected.
fn close(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ']') => return Some(at),
            _ => {}
        }
    }
    None
}

fn bracket<'a>(values: &[&'a Value], inside: &str) -> Vec<&'a Value> {
    let inside = inside.trim();
    let items = |v: &'a Value| v.as_array().into_iter().flatten();
    if inside == "*" {
        return values.iter().flat_map(|v| items(v)).collect();
    }
    if let Some(filter) = inside.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        let Some((left, right)) = filter.split_once("==") else { return Vec::new() };
        let field = left.trim().trim_start_matches('@');
        let want = right.trim().trim_matches(['"', '\'']);
        let matches = |item: &&Value| {
            find(item, field).first().is_some_and(|v| match v {
                Value::String(s) => s == want,
                other => serde_json::from_str::<Value>(want).is_ok_and(|w| w == **other),
            })
        };
        return values.iter().flat_map(|v| items(v)).filter(matches).collect();
    }
    if let Ok(index) = inside.parse::<usize>() {
        return values.iter().filter_map(|v| v.get(index)).collect();
    }
    let name = inside.trim_matches(['"', '\'']);
    values.iter().filter_map(|v| v.get(name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths() {
        let object = json!({"a": {"b": [{"t": "x", "s": "1"}, {"t": "y", "s": "2"}], "c.d": 5}});
        let cases = [
            (".a.b[0].s", json!(["1"])),
            (".a.b[?(@.t==\"y\")].s", json!(["2"])),
            (".a.b[*].t", json!(["x", "y"])),
            (".a['c.d']", json!([5])),
            (".a.c\\.d", json!([5])),
            (".a.none", json!([])),
        ];
        for (path, want) in cases {
            assert_eq!(json!(find(&object, path)), want, "{path}");
        }
    }
}
