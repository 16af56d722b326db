//! Label and field selectors of list and watch requests.

use serde_json::Value;

use crate::{error::ApiError, kind::Kind};

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
    Greater(String, i64),
    Less(String, i64),
}

/// Which objects a list or watch covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    /// Field path, value, whether it must differ.
    fields: Vec<(String, String, bool)>,
}

impl Selector {
    /// Reads the query parameters `labelSelector` and `fieldSelector`; fields must be supported by the kind.
    pub(crate) fn parse(labels: &str, fields: &str, kind: &Kind) -> Result<Self, ApiError> {
        let labels = parse_labels(labels)
            .map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}")))?;
        let mut out = Self { labels, fields: Vec::new() };
        for term in fields.split(',').map(str::trim).filter(|t| !t.is_empty()) {
            let (field, value, differs) = if let Some((f, v)) = term.split_once("!=") {
                (f, v, true)
            } else if let Some((f, v)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (f, v, false)
            } else {
                let why = format!("invalid field selector {term:?}: can't understand it");
                return Err(ApiError::bad_request(why));
            };
            if !supported(kind, field) {
                return Err(ApiError::bad_request(format!("field label not supported: {field}")));
            }
            out.fields.push((field.into(), value.into(), differs));
        }
        Ok(out)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.fields.iter().all(|(path, want, differs)| (field(object, path) == *want) != *differs)
            && self.labels.iter().all(|r| r.matches(object))
    }

    /// The value the selector pins a field to.
    pub(crate) fn pinned(&self, path: &str) -> Option<&str> {
        self.fields.iter().find(|(p, _, differs)| p == path && !differs).map(|(_, v, _)| v.as_str())
    }
}

impl Requirement {
    fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object.get("metadata")?.get("labels")?.get(key)?.as_str();
        match self {
            Requirement::In(key, values) => label(key).is_some_and(|v| values.iter().any(|x| x == v)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|v| values.iter().all(|x| x != v)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Missing(key) => label(key).is_none(),
            Requirement::Greater(key, n) => {
                label(key).and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v > *n)
            }
            Requirement::Less(key, n) => {
                label(key).and_then(|v| v.parse::<i64>().ok()).is_some_and(|v| v < *n)
            }
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let mut out = Vec::new();
    for term in split_terms(text)? {
        let term = term.trim();
        if term.is_empty() {
            if text.trim().is_empty() {
                continue;
            }
            return Err(format!("found ',' with nothing beside it in {text:?}"));
        }
        out.push(parse_requirement(term)?);
    }
    Ok(out)
}

fn parse_requirement(term: &str) -> Result<Requirement, String> {
    let key = |k: &str| {
        let k = k.trim();
        crate::names::qualified_name(k).map_or(Ok(k.to_string()), |why| Err(format!("key {k:?}: {why}")))
    };
    let value = |v: &str| {
        let v = v.trim();
        crate::names::label_value(v).map_or(Ok(v.to_string()), |why| Err(format!("value {v:?}: {why}")))
    };
    if let Some(rest) = term.strip_prefix('!') {
        return Ok(Requirement::Missing(key(rest)?));
    }
    if let Some((k, v)) = term.split_once("!=") {
        return Ok(Requirement::NotIn(key(k)?, vec![value(v)?]));
    }
    if let Some((k, v)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(Requirement::In(key(k)?, vec![value(v)?]));
    }
    for (sign, greater) in [('>', true), ('<', false)] {
        if let Some((k, v)) = term.split_once(sign) {
            let n = v.trim().parse().map_err(|_| format!("{:?} must be an integer", v.trim()))?;
            return Ok(if greater {
                Requirement::Greater(key(k)?, n)
            } else {
                Requirement::Less(key(k)?, n)
            });
        }
    }
    if let Some((head, list)) = term.strip_suffix(')').and_then(|t| t.split_once('(')) {
        let values: Vec<String> = list.split(',').map(value).collect::<Result<_, _>>()?;
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(k), Some("in"), None) => Ok(Requirement::In(key(k)?, values)),
            (Some(k), Some("notin"), None) => Ok(Requirement::NotIn(key(k)?, values)),
            _ => Err(format!("{term:?} is neither 'in' nor 'notin'")),
        };
    }
    Ok(Requirement::Exists(key(term)?))
}

/// Splits at commas outside parentheses.
fn split_terms(text: &str) -> Result<Vec<&str>, String> {
    let (mut out, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return Err(format!("unbalanced parentheses in {text:?}"));
        }
    }
    if depth != 0 {
        return Err(format!("unbalanced parentheses in {text:?}"));
    }
    out.push(&text[start..]);
    Ok(out)
}

fn supported(kind: &Kind, path: &str) -> bool {
    if matches!(path, "metadata.name") || (path == "metadata.namespace" && kind.namespaced) {
        return true;
    }
    if let Some(custom) = kind.custom() {
        return custom.selectable.iter().any(|s| s.trim_start_matches('.') == path);
    }
    let reference = |prefix: &str| {
        let parts = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];
        path.strip_prefix(prefix).and_then(|p| p.strip_prefix('.')).is_some_and(|p| parts.contains(&p))
    };
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => matches!(
            path,
            "spec.nodeName"
                | "spec.restartPolicy"
                | "spec.schedulerName"
                | "spec.serviceAccountName"
                | "spec.hostNetwork"
                | "status.phase"
                | "status.podIP"
                | "status.podIPs"
                | "status.nominatedNodeName"
        ),
        ("", "nodes") => path == "spec.unschedulable",
        ("", "namespaces") => path == "status.phase",
        ("", "secrets") => path == "type",
        ("", "services") => matches!(path, "spec.clusterIP" | "spec.type"),
        ("", "events") => {
            reference("involvedObject") || matches!(path, "reason" | "reportingComponent" | "source" | "type")
        }
        ("events.k8s.io", "events") => {
            reference("regarding") || matches!(path, "reason" | "reportingController" | "type")
        }
        ("apps", "replicasets") | ("", "replicationcontrollers") => path == "status.replicas",
        _ => false,
    }
}

/// A field as selectors compare it; missing is empty, a missing switch is `false`.
fn field(object: &Value, path: &str) -> String {
    let path = if path == "source" { "source.component" } else { path };
    let found = path.split('.').try_fold(object, |at, name| at.get(name));
    match found {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Null) | None if matches!(path, "spec.unschedulable" | "spec.hostNetwork") => {
            "false".into()
        }
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods() -> Kind {
        crate::kind::built_in().into_iter().find(|k| k.plural == "pods").expect("pods")
    }

    #[test]
    fn label_selectors() {
        let pod = json!({"metadata": {"labels": {"app": "web", "tier": "front", "n": "5"}}});
        let cases = [
            ("", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app!=web", false),
            ("none!=x", true),
            ("app in (api, web)", true),
            ("app notin (api,web),tier", false),
            ("tier,!missing", true),
            ("!tier", false),
            ("n>4", true),
            ("n<5", false),
        ];
        for (text, want) in cases {
            let selector = Selector::parse(text, "", &pods()).expect(text);
            assert_eq!(selector.matches(&pod), want, "{text}");
        }
        for bad in ["a in b", "a=b,,c", "a in (b", "a b", "-x=1", "a=b c"] {
            assert!(Selector::parse(bad, "", &pods()).is_err(), "{bad}");
        }
    }

    #[test]
    fn field_selectors() {
        let pod = json!({"metadata": {"name": "a", "namespace": "x"}, "spec": {"nodeName": "n1"}});
        for (text, want) in [
            ("metadata.name=a", true),
            ("spec.nodeName=n1,metadata.namespace!=y", true),
            ("spec.nodeName!=n1", false),
            ("status.phase=", true),
            ("spec.hostNetwork=false", true),
        ] {
            let selector = Selector::parse("", text, &pods()).expect(text);
            assert_eq!(selector.matches(&pod), want, "{text}");
        }
        let error = Selector::parse("", "spec.color=red", &pods()).expect_err("unsupported");
        assert_eq!((error.code, error.message.as_str()), (400, "field label not supported: spec.color"));
    }
}
