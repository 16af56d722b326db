//! get and list.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

use super::{
    Api, Input, Reply, Target,
    reply::{Form, partial},
};
use crate::{
    error::{ApiError, FieldError},
    kind::Kind,
    selector::Selector,
    store::{Entry, ListOptions, Page},
    table,
};

pub(super) fn get(api: &Api, input: &Input, target: &Target) -> Result<Reply, ApiError> {
    let form = Form::of(input.header("accept"))?;
    let entry = api.store.get_object(&target.kind, &target.namespace, &target.name)?;
    Ok(object(200, &target.kind, &entry, form, input))
}

/// One object in the form the client wants.
pub(super) fn object(code: u16, kind: &Kind, entry: &Arc<Entry>, form: Form, input: &Input) -> Reply {
    match form {
        Form::Object => Reply::bytes(code, seen_bytes(kind, entry)),
        Form::Metadata => Reply::json(code, &partial(&seen(kind, entry))),
        Form::Table => {
            let rv = entry.value["metadata"]["resourceVersion"].clone();
            let rows = table::rows(kind, [&seen(kind, entry)], input.query("includeObject"));
            Reply::json(code, &table::table(kind, rows, json!({"resourceVersion": rv}), true))
        }
    }
}

pub(super) fn seen(kind: &Kind, entry: &Entry) -> Value {
    entry.seen_as(kind).unwrap_or_else(|| entry.value.clone())
}

pub(super) fn seen_bytes(kind: &Kind, entry: &Entry) -> Bytes {
    entry.seen_as(kind).map_or_else(|| entry.bytes(), |value| Bytes::from(value.to_string()))
}

pub(super) fn list_options(input: &Input, target: &Target) -> Result<ListOptions, ApiError> {
    let selector = Selector::parse(input.query("labelSelector"), input.query("fieldSelector"), &target.kind)?;
    let limit = match input.query("limit") {
        "" => 0,
        text => {
            text.parse().map_err(|_| ApiError::bad_request(format!("limit: {text:?} is not a number")))?
        }
    };
    let token = input.query("continue").to_string();
    let resource_version = input.query("resourceVersion").to_string();
    if !token.is_empty() && !matches!(resource_version.as_str(), "" | "0") {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(ListOptions {
        namespace: target.namespace.clone(),
        selector,
        limit,
        token,
        resource_version,
        version_match: input.query("resourceVersionMatch").into(),
    })
}

pub(super) fn list(api: &Api, input: &Input, target: &Target) -> Result<Reply, ApiError> {
    let form = Form::of(input.header("accept"))?;
    if input.has("sendInitialEvents") {
        let why = "sendInitialEvents is forbidden for list";
        let error = FieldError::forbidden("sendInitialEvents", why);
        return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]));
    }
    let page = api.store.list_objects(&target.kind, &list_options(input, target)?)?;
    let meta = list_meta(&page);
    let kind = &target.kind;
    match form {
        Form::Object => Ok(Reply::bytes(200, list_bytes(kind, &page.entries, &meta))),
        Form::Metadata => {
            let items: Vec<Value> = page.entries.iter().map(|e| partial(&seen(kind, e))).collect();
            Ok(Reply::json(
                200,
                &json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": meta, "items": items}),
            ))
        }
        Form::Table => {
            let objects: Vec<Value> = page.entries.iter().map(|e| seen(kind, e)).collect();
            let rows = table::rows(kind, &objects, input.query("includeObject"));
            Ok(Reply::json(200, &table::table(kind, rows, meta, true)))
        }
    }
}

fn list_meta(page: &Page) -> Value {
    let mut meta = json!({"resourceVersion": page.rv.to_string()});
    if !page.token.is_empty() {
        meta["continue"] = page.token.clone().into();
    }
    if let Some(left) = page.remaining {
        meta["remainingItemCount"] = left.into();
    }
    meta
}

/// A list out of the items' own bytes. As on a real server, items of built-in kinds do not repeat apiVersion and kind.
pub(super) fn list_bytes(kind: &Kind, entries: &[Arc<Entry>], meta: &Value) -> Bytes {
    let identity = format!("{{\"apiVersion\":\"{}\",\"kind\":\"{}\",", kind.api_version(), kind.kind);
    let items: Vec<Bytes> = entries.iter().map(|e| item_bytes(kind, e, &identity)).collect();
    let size: usize = items.iter().map(|b| b.len() + 1).sum();
    let mut out = BytesMut::with_capacity(size + 256);
    let head =
        json!({"kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": meta}).to_string();
    out.put_slice(head.strip_suffix('}').unwrap_or(&head).as_bytes());
    out.put_slice(b",\"items\":[");
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        out.put_slice(item);
    }
    out.put_slice(b"]}\n");
    out.freeze()
}

fn item_bytes(kind: &Kind, entry: &Arc<Entry>, identity: &str) -> Bytes {
    let bytes = seen_bytes(kind, entry);
    if kind.is_custom() {
        return bytes;
    }
    // Most kinds have no field that sorts before these two, so the rest can be copied as it is.
    if let Some(rest) = bytes.strip_prefix(identity.as_bytes()) {
        let mut out = BytesMut::with_capacity(rest.len() + 1);
        out.put_u8(b'{');
        out.put_slice(rest);
        return out.freeze();
    }
    let mut value = seen(kind, entry);
    if let Some(map) = value.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
    }
    Bytes::from(value.to_string())
}
