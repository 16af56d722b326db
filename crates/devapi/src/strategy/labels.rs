//! Label selectors inside objects.

use serde_json::Value;

use super::{items, text};
use crate::{error::FieldError, names};

/// Mistakes of a selector with `matchLabels` and `matchExpressions`.
pub(super) fn validate_selector(selector: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let invalid = |field: String, value: &str, why: String| FieldError::invalid(field, &value.into(), why);
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        let (field, value) = (format!("{path}.matchLabels"), value.as_str().unwrap_or_default());
        if let Some(why) = names::qualified_name(key) {
            errors.push(invalid(field.clone(), key, why));
        }
        if let Some(why) = names::label_value(value) {
            errors.push(invalid(field, value, why));
        }
    }
    for (at, term) in items(selector, "matchExpressions") {
        let here = format!("{path}.matchExpressions[{at}]");
        let count = term["values"].as_array().map_or(0, Vec::len);
        match text(term, "operator") {
            "In" | "NotIn" if count == 0 => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{here}.values"), why));
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(format!("{here}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let field = format!("{here}.operator");
                errors.push(invalid(field, other, "not a valid selector operator".into()));
            }
        }
        let key = text(term, "key");
        if let Some(why) = names::qualified_name(key) {
            errors.push(invalid(format!("{here}.key"), key, why));
        }
        for (n, value) in items(term, "values") {
            let value = value.as_str().unwrap_or_default();
            if let Some(why) = names::label_value(value) {
                errors.push(invalid(format!("{here}.values[{n}]"), value, why));
            }
        }
    }
}
