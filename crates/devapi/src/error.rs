//! The one error type of the API: what becomes a `Status` object on the wire.

use serde_json::{Value, json};

/// A refused request, with the HTTP code, reason and message a Kubernetes API server gives.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine readable reason, e.g. `NotFound`.
    pub reason: &'static str,
    /// Text for people.
    pub message: String,
    /// `details` of the Status object, if any.
    pub details: Option<Value>,
}

/// One invalid field of an object; several make up an `Invalid` error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, e.g. `spec.containers[0].name`.
    pub field: String,
    /// Machine readable kind, e.g. `FieldValueRequired`.
    pub reason: &'static str,
    /// Text after the field's path.
    pub message: String,
}

impl FieldError {
    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        let message = if why.is_empty() { "Required value".into() } else { format!("Required value: {why}") };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: impl AsRef<str>) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {}: {}", shown(value), why.as_ref()),
        }
    }

    pub(crate) fn forbidden(field: impl Into<String>, why: impl AsRef<str>) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {}", why.as_ref()),
        }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            field: field.into(),
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {}", shown(value)),
        }
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, allowed: &[String]) -> Self {
        let list: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
        Self {
            field: field.into(),
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {}: supported values: {}", shown(value), list.join(", ")),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(s) => format!("{s:?}"),
        Value::Object(_) => "\"object\"".into(),
        other => other.to_string(),
    }
}

impl ApiError {
    /// Any refusal that has no details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 404 for an object; `resource` is `plural` or `plural.group`.
    pub(crate) fn not_found(resource: &str, name: &str) -> Self {
        Self::on(404, "NotFound", resource, name, format!("{resource} {name:?} not found"))
    }

    pub(crate) fn no_route() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with(json!({}))
    }

    pub(crate) fn already_exists(resource: &str, name: &str) -> Self {
        Self::on(409, "AlreadyExists", resource, name, format!("{resource} {name:?} already exists"))
    }

    pub(crate) fn conflict(resource: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::on(409, "Conflict", resource, name, message)
    }

    pub(crate) fn modified(resource: &str, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn forbidden(resource: &str, name: &str, why: &str) -> Self {
        Self::on(403, "Forbidden", resource, name, format!("{resource} {name:?} is forbidden: {why}"))
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with(json!({}))
    }

    pub(crate) fn unsupported_media(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    /// 422 for an object with wrong fields; `kind` is `Kind` or `Kind.group`.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let shown: Vec<String> = errors.iter().map(|e| format!("{}: {}", e.field, e.message)).collect();
        let list = if shown.len() == 1 { shown.concat() } else { format!("[{}]", shown.join(", ")) };
        let full = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
        let causes: Vec<Value> = errors
            .iter()
            .map(|e| json!({"reason": e.reason, "message": e.message, "field": e.field}))
            .collect();
        let details = json!({"name": name, "group": group, "kind": kind, "causes": causes});
        Self::new(422, "Invalid", format!("{full} {name:?} is invalid: {list}")).with(details)
    }

    pub(crate) fn with(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    fn on(code: u16, reason: &'static str, resource: &str, name: &str, message: String) -> Self {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let mut details = json!({"name": name, "kind": plural});
        if !group.is_empty() {
            details["group"] = group.into();
        }
        Self::new(code, reason, message).with(details)
    }

    /// The `Status` object sent to the client.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
