//! What is served, told to clients: `/api`, `/apis`, `/apis/GROUP/VERSION`, plain and aggregated.

use std::net::SocketAddr;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    http::{Reply, one_piece},
    kind::Kind,
    store::Store,
};

/// The document at a discovery path; `None` if the path is none.
pub(crate) fn document(store: &Store, path: &str, accept: &str, address: SocketAddr) -> Option<Reply> {
    let aggregated = aggregated(accept);
    match path.trim_start_matches('/').split('/').collect::<Vec<_>>().as_slice() {
        ["api"] => Some(match aggregated {
            Some(version) => groups(store, version, true),
            None => Reply::json(
                200,
                &json!({"kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs":
                    [{"clientCIDR": "0.0.0.0/0", "serverAddress": address.to_string()}]}),
            ),
        }),
        ["apis"] => Some(match aggregated {
            Some(version) => groups(store, version, false),
            None => {
                let all: Vec<Value> = names(store).iter().filter_map(|g| group(store, g)).collect();
                Reply::json(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": all}))
            }
        }),
        ["apis", name] => {
            let mut found = group(store, name)?;
            found["kind"] = "APIGroup".into();
            found["apiVersion"] = "v1".into();
            Some(Reply::json(200, &found))
        }
        ["api", version] => resources(store, "", version),
        ["apis", name, version] => resources(store, name, version),
        _ => None,
    }
}

/// Version of the aggregated document the client takes first, if any.
fn aggregated(accept: &str) -> Option<&'static str> {
    let choice = accept.split(',').map(str::trim).next()?;
    let parts: Vec<&str> = choice.split(';').map(str::trim).collect();
    let wanted = parts.contains(&"g=apidiscovery.k8s.io") && parts.contains(&"as=APIGroupDiscoveryList");
    if !wanted || parts.first() != Some(&"application/json") {
        return None;
    }
    if parts.contains(&"v=v2") {
        return Some("v2");
    }
    parts.contains(&"v=v2beta1").then_some("v2beta1")
}

fn names(store: &Store) -> Vec<String> {
    store.lock().kinds.groups.iter().filter(|g| !g.is_empty()).cloned().collect()
}

fn group(store: &Store, name: &str) -> Option<Value> {
    let versions = store.lock().kinds.versions(name);
    let list: Vec<Value> =
        versions.iter().map(|v| json!({"groupVersion": format!("{name}/{v}"), "version": v})).collect();
    let preferred = list.first()?.clone();
    (!name.is_empty()).then(|| json!({"name": name, "versions": list, "preferredVersion": preferred}))
}

fn resources(store: &Store, group: &str, version: &str) -> Option<Reply> {
    let kinds = store.lock().kinds.of_group(group, version);
    if kinds.is_empty() {
        return None;
    }
    let mut list = Vec::new();
    for kind in &kinds {
        let mut own = json!({"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": kind.verbs()});
        if !kind.short_names.is_empty() {
            own["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            own["categories"] = json!(kind.categories);
        }
        if !kind.is_review() {
            own["storageVersionHash"] = storage_hash(kind).into();
        }
        list.push(own);
        for (name, sub_group, sub_version, sub_kind, verbs) in kind.subresources() {
            let mut sub = json!({"name": format!("{}/{name}", kind.plural), "singularName": "",
                "namespaced": kind.namespaced, "kind": sub_kind, "verbs": verbs});
            if !sub_version.is_empty() {
                sub["group"] = sub_group.into();
                sub["version"] = sub_version.into();
            }
            list.push(sub);
        }
    }
    let group_version = kinds[0].api_version();
    Some(Reply::json(
        200,
        &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": list}),
    ))
}

/// Clients only compare it.
fn storage_hash(kind: &Kind) -> String {
    use base64::Engine as _;
    let id = format!("{}/{}/{}", kind.group, kind.version, kind.kind);
    let sum =
        id.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    base64::engine::general_purpose::STANDARD.encode(sum.to_be_bytes())
}

fn groups(store: &Store, document: &str, core: bool) -> Reply {
    let list = if core { vec![String::new()] } else { names(store) };
    let items: Vec<Value> = list.iter().map(|g| aggregated_group(store, g)).collect();
    let body = json!({"kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{document}"),
        "metadata": {}, "items": items});
    let media = format!("application/json;g=apidiscovery.k8s.io;v={document};as=APIGroupDiscoveryList");
    Reply::new(200, &media, one_piece(Bytes::from(body.to_string())))
}

fn aggregated_group(store: &Store, group: &str) -> Value {
    let state = store.lock();
    let versions: Vec<Value> = state
        .kinds
        .versions(group)
        .iter()
        .map(|version| {
            let kinds = state.kinds.of_group(group, version);
            let resources: Vec<Value> = kinds.iter().map(|k| aggregated_resource(k)).collect();
            json!({"version": version, "freshness": "Current", "resources": resources})
        })
        .collect();
    let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(kind: &Kind) -> Value {
    let response =
        |group: &str, version: &str, name: &str| json!({"group": group, "version": version, "kind": name});
    let own = response(&kind.group, &kind.version, &kind.kind);
    let subresources: Vec<Value> = kind
        .subresources()
        .into_iter()
        .map(|(name, group, version, sub_kind, verbs)| {
            let (group, version) = if version.is_empty() {
                (kind.group.as_str(), kind.version.as_str())
            } else {
                (group, version)
            };
            json!({"subresource": name, "responseKind": response(group, version, &sub_kind), "verbs": verbs})
        })
        .collect();
    let scope = if kind.namespaced { "Namespaced" } else { "Cluster" };
    let mut out = json!({"resource": kind.plural, "responseKind": own, "scope": scope,
        "singularResource": kind.singular, "verbs": kind.verbs()});
    for (field, list) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !list.is_empty() {
            out[field] = json!(list);
        }
    }
    if !subresources.is_empty() {
        out["subresources"] = json!(subresources);
    }
    out
}
