//! create, update, patch and scale.

use serde_json::{Value, json};

use super::{Api, Input, Reply, Target, read, reply::Form};
use crate::{
    error::{ApiError, FieldError},
    kind::Kind,
    patch::Patch,
    store::{Outcome, Sub},
};

fn answer(input: &Input, kind: &Kind, outcome: &Outcome) -> Result<Reply, ApiError> {
    let code = if outcome.created { 201 } else { 200 };
    let form = Form::of(input.header("accept"))?;
    Ok(read::object(code, kind, &outcome.entry, form, input).warn(&outcome.warnings))
}

pub(super) fn create(api: &Api, input: &Input, target: &Target) -> Result<Reply, ApiError> {
    let object = input.json()?;
    let namespace = namespace_of(target)?;
    let outcome = api.store.create_object(&target.kind, namespace, object, &input.write_options()?)?;
    answer(input, &target.kind, &outcome)
}

fn namespace_of(target: &Target) -> Result<&str, ApiError> {
    if target.kind.namespaced && target.namespace.is_empty() {
        return Err(ApiError::bad_request("an empty namespace may not be set during creation"));
    }
    Ok(&target.namespace)
}

pub(super) fn update(api: &Api, input: &Input, target: &Target, sub: Sub) -> Result<Reply, ApiError> {
    let object = input.json()?;
    let options = input.write_options()?;
    let outcome =
        api.store.update_object(&target.kind, &target.namespace, &target.name, sub, object, &options)?;
    answer(input, &target.kind, &outcome)
}

pub(super) fn patch(api: &Api, input: &Input, target: &Target, sub: Sub) -> Result<Reply, ApiError> {
    let patch = read_patch(input)?;
    let options = input.write_options()?;
    if matches!(patch, Patch::Apply(_)) && input.query("fieldManager").is_empty() {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
    }
    if !matches!(patch, Patch::Apply(_)) && input.has("force") {
        let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
        return Err(ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
    }
    let outcome =
        api.store.patch_object(&target.kind, &target.namespace, &target.name, sub, &patch, &options)?;
    answer(input, &target.kind, &outcome)
}

fn read_patch(input: &Input) -> Result<Patch, ApiError> {
    let body = || input.json();
    Ok(match input.content_type() {
        "application/json-patch+json" => Patch::Json(body()?),
        "application/merge-patch+json" => Patch::Merge(body()?),
        "application/strategic-merge-patch+json" => Patch::Strategic(body()?),
        "application/apply-patch+yaml" | "application/apply-patch+json" => Patch::Apply(body()?),
        _ => {
            return Err(ApiError::unsupported_media(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
                 application/apply-patch+yaml",
            ));
        }
    })
}

/// The scale subresource: replicas of an object in a common form.
pub(super) fn scale(api: &Api, input: &Input, target: &Target, verb: &str) -> Result<Reply, ApiError> {
    let kind = &target.kind;
    let Some(paths) = &kind.scale else { return Err(ApiError::no_route()) };
    let entry = api.store.get_object(kind, &target.namespace, &target.name)?;
    let object = read::seen(kind, &entry);
    let view = scale_of(kind, &object);
    let mut options = input.write_options()?;
    let wanted = match verb {
        "get" => return Ok(Reply::json(200, &view)),
        "update" => input.json()?,
        _ => {
            let patch = match read_patch(input)? {
                // Scale has no lists, so both merge patches mean the same.
                Patch::Strategic(body) => Patch::Merge(body),
                other => other,
            };
            patch.apply(&view, kind)?
        }
    };
    let given = wanted["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !given.is_empty() && view["metadata"]["resourceVersion"].as_str() != Some(given) {
        return Err(ApiError::modified(&kind.resource(), &target.name));
    }
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    let mut body =
        json!({"metadata": {"resourceVersion": if given.is_empty() { Value::Null } else { given.into() }}});
    let mut at = &mut body;
    for part in paths.spec.trim_start_matches('/').split('/') {
        at = &mut at[part];
    }
    *at = replicas.into();
    options.force = false;
    let patch = Patch::Merge(body);
    let outcome =
        api.store.patch_object(kind, &target.namespace, &target.name, Sub::Scale, &patch, &options)?;
    Ok(Reply::json(200, &scale_of(kind, &read::seen(kind, &outcome.entry))))
}

fn scale_of(kind: &Kind, object: &Value) -> Value {
    let meta = &object["metadata"];
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let mut scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"], "creationTimestamp": meta["creationTimestamp"]},
        "spec": {}, "status": {"replicas": 0}});
    if let Some(paths) = &kind.scale {
        scale["spec"]["replicas"] = number(&paths.spec).into();
        scale["status"]["replicas"] = number(&paths.status).into();
        let selector = paths.selector.as_deref().and_then(|p| object.pointer(p));
        if let Some(selector) = selector {
            scale["status"]["selector"] = selector.clone();
        }
    }
    scale
}
