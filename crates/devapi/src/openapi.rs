//! OpenAPI documents, as far as kubectl needs them: schemas for validation, patches and `explain`.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::{
    error::ApiError,
    http::{Reply, one_piece},
    kind::{Kind, Source},
    schema::definitions,
    store::Store,
};

/// The document at `/openapi/REST`.
pub(crate) fn document(store: &Store, rest: &str, accept: &str) -> Result<Reply, ApiError> {
    match rest.trim_end_matches('/') {
        "v2" => v2(accept),
        "v3" => Ok(Reply::json(200, &index(store))),
        path => {
            let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
                ["v3", "api", version] => (String::new(), version.to_string()),
                ["v3", "apis", group, version] => (group.to_string(), version.to_string()),
                _ => return Err(ApiError::no_route()),
            };
            let kinds = store.lock().kinds.of_group(&group, &version);
            if kinds.is_empty() {
                return Err(ApiError::no_route());
            }
            Ok(Reply::json(200, &v3(&kinds)))
        }
    }
}

/// Clients that have v3 do not read more than this from v2; the protobuf form is not served.
fn v2(accept: &str) -> Result<Reply, ApiError> {
    let json_allowed = accept.is_empty() || accept.contains("application/json") || accept.contains("*/*");
    if !json_allowed {
        return Err(ApiError::new(406, "NotAcceptable", "only application/json is served; use /openapi/v3"));
    }
    let mut schemas = definitions().clone();
    for schema in schemas.values_mut() {
        point_to_definitions(schema);
    }
    let body = json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.0"}, "paths": {},
        "definitions": schemas});
    Ok(Reply::new(200, "application/json", one_piece(Bytes::from(body.to_string()))))
}

fn point_to_definitions(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref") {
                *reference = reference.replace("#/components/schemas/", "#/definitions/");
            }
            map.values_mut().for_each(point_to_definitions);
        }
        Value::Array(items) => items.iter_mut().for_each(point_to_definitions),
        _ => {}
    }
}

fn index(store: &Store) -> Value {
    let mut paths = Map::new();
    let rv = store.resource_version();
    for kind in store.kinds() {
        let path = base(&kind).trim_start_matches('/').to_string();
        // Custom kinds may change; the version makes clients read again.
        let url = format!("/openapi/v3/{path}?hash={rv}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

fn base(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    }
}

fn v3(kinds: &[Arc<Kind>]) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    let mut wanted: Vec<String> = Vec::new();
    for kind in kinds {
        let name = type_name(kind);
        let mut schema = match &kind.source {
            Source::BuiltIn(name) => definitions().get(name).cloned().unwrap_or_default(),
            Source::Custom(custom) => custom_schema(&custom.schema),
        };
        schema["x-kubernetes-group-version-kind"] =
            json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
        references(&schema, &mut wanted);
        schemas.insert(name.clone(), schema);
        add_paths(kind, &name, &mut paths);
    }
    let mut seen = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if !seen.insert(name.clone()) || schemas.contains_key(&name) {
            continue;
        }
        if let Some(schema) = definitions().get(&name) {
            references(schema, &mut wanted);
            schemas.insert(name, schema.clone());
        }
    }
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.0"}, "paths": paths,
        "components": {"schemas": schemas}})
}

fn type_name(kind: &Kind) -> String {
    match &kind.source {
        Source::BuiltIn(name) => name.clone(),
        Source::Custom(_) => {
            let group: Vec<&str> = kind.group.split('.').rev().collect();
            format!("{}.{}.{}", group.join("."), kind.version, kind.kind)
        }
    }
}

fn custom_schema(source: &Value) -> Value {
    let mut schema = source.clone();
    let metadata = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    schema["properties"]["metadata"] = json!({"allOf": [{"$ref": metadata}]});
    for field in ["apiVersion", "kind"] {
        if schema["properties"][field].is_null() {
            schema["properties"][field] = json!({"type": "string"});
        }
    }
    schema
}

fn references(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str) {
                out.push(name.rsplit('/').next().unwrap_or_default().to_string());
            }
            map.values().for_each(|v| references(v, out));
        }
        Value::Array(items) => items.iter().for_each(|v| references(v, out)),
        _ => {}
    }
}

fn add_paths(kind: &Kind, type_name: &str, paths: &mut Map<String, Value>) {
    let middle = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{}{middle}/{}", base(kind), kind.plural);
    let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let reference = json!({"$ref": format!("#/components/schemas/{type_name}")});
    let body = json!({"content": {"application/json": {"schema": reference}}});
    let responses =
        json!({"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}});
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let writing = json!([parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")]);
    let operation = |action: &str, extra: Value| {
        let mut operation = json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk,
            "responses": responses});
        for (name, value) in extra.as_object().into_iter().flatten() {
            operation[name] = value.clone();
        }
        operation
    };
    let write = json!({"parameters": writing, "requestBody": body});
    let mut items = Map::new();
    items.insert("post".into(), operation("post", write.clone()));
    if !kind.is_review() {
        items.insert("get".into(), operation("list", json!({})));
        let mut content = Map::new();
        let mut media = vec![
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ];
        if !kind.is_custom() {
            media.push("application/strategic-merge-patch+json");
        }
        let any = json!({"schema": {"type": "object"}});
        content.extend(media.into_iter().map(|m| (m.to_string(), any.clone())));
        let patch = json!({"parameters": writing, "requestBody": {"content": content}});
        let named = json!({
            "get": operation("get", json!({})),
            "put": operation("put", write),
            "patch": operation("patch", patch),
            "delete": operation("delete", json!({})),
        });
        paths.insert(format!("{collection}/{{name}}"), named);
    }
    paths.insert(collection, Value::Object(items));
}
