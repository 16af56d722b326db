//! Label selectors.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::json::{list, text};

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// "The requirements are ANDed"; an empty selector selects everything.
pub(crate) fn selects(selector: &Value, labels: &Labels) -> bool {
    let equal = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    for (key, value) in equal {
        if labels.get(key).map(String::as_str) != value.as_str() {
            return false;
        }
    }
    list(selector, "matchExpressions").iter().all(|requirement| holds(requirement, labels))
}

fn holds(requirement: &Value, labels: &Labels) -> bool {
    let value = labels.get(text(requirement, "key").unwrap_or_default());
    let listed =
        |value: &String| list(requirement, "values").iter().any(|one| one.as_str() == Some(value.as_str()));
    match (text(requirement, "operator"), value) {
        (Some("In"), Some(value)) => listed(value),
        (Some("NotIn"), Some(value)) => !listed(value),
        (Some("Exists"), Some(_)) | (Some("NotIn" | "DoesNotExist"), None) => true,
        _ => false,
    }
}
