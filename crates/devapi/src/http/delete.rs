//! delete and deletecollection.

use serde_json::{Value, json};

use super::{Api, Input, Reply, Target, read, reply::Form};
use crate::{
    error::ApiError,
    kind::Kind,
    store::{DeleteOptions, Entry},
};

/// Options from the body, or from the query where there is none.
pub(super) fn options(input: &Input) -> Result<DeleteOptions, ApiError> {
    let body = if input.body.is_empty() { json!({}) } else { input.json()? };
    from_body(&body, input)
}

pub(super) fn from_body(body: &Value, input: &Input) -> Result<DeleteOptions, ApiError> {
    let mut options = DeleteOptions {
        grace: body["gracePeriodSeconds"].as_i64(),
        uid: body["preconditions"]["uid"].as_str().map(String::from),
        resource_version: body["preconditions"]["resourceVersion"].as_str().map(String::from),
        dry_run: body["dryRun"].as_array().is_some_and(|l| l.contains(&json!("All")))
            || input.query("dryRun") == "All",
    };
    if options.grace.is_none() && input.has("gracePeriodSeconds") {
        let text = input.query("gracePeriodSeconds");
        let grace = text
            .parse()
            .map_err(|_| ApiError::bad_request(format!("gracePeriodSeconds: {text:?} is not a number")))?;
        options.grace = Some(grace);
    }
    let policy = body["propagationPolicy"].as_str().unwrap_or_else(|| input.query("propagationPolicy"));
    if !matches!(policy, "" | "Orphan" | "Background" | "Foreground") {
        return Err(ApiError::bad_request(format!("propagationPolicy: {policy:?} is not a policy")));
    }
    Ok(options)
}

pub(super) fn one(api: &Api, input: &Input, target: &Target) -> Result<Reply, ApiError> {
    let options = options(input)?;
    let deleted = api.store.delete_object(&target.kind, &target.namespace, &target.name, &options)?;
    if deleted.gone && !returns_object(&target.kind) {
        return Ok(Reply::json(200, &gone(&target.kind, &deleted.entry)));
    }
    Ok(read::object(200, &target.kind, &deleted.entry, Form::Object, input))
}

fn returns_object(kind: &Kind) -> bool {
    let some = [
        "pods",
        "services",
        "serviceaccounts",
        "persistentvolumeclaims",
        "persistentvolumes",
        "resourcequotas",
    ];
    kind.group.is_empty() && some.contains(&kind.plural.as_str())
}

fn gone(kind: &Kind, entry: &Entry) -> Value {
    let mut details = json!({"name": entry.value["metadata"]["name"], "kind": kind.plural,
        "uid": entry.value["metadata"]["uid"]});
    if !kind.group.is_empty() {
        details["group"] = kind.group.clone().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

pub(super) fn collection(api: &Api, input: &Input, target: &Target) -> Result<Reply, ApiError> {
    let list = read::list_options(input, target)?;
    let entries = api.store.delete_all(&target.kind, &list, &options(input)?)?;
    let meta = json!({"resourceVersion": api.store.resource_version().to_string()});
    Ok(Reply::bytes(200, read::list_bytes(&target.kind, &entries, &meta)))
}
