//! Objects written through the API as plain JSON, of whatever kind.

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use http::Request;
use kube::{
    Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Who owns the fields that are applied.
const FIELD_MANAGER: &str = "devcluster";

/// All documents of a YAML file.
pub fn documents(yaml: &str) -> Result<Vec<Value>> {
    let mut documents = Vec::new();
    for document in serde_norway::Deserializer::from_str(yaml) {
        let value = Value::deserialize(document)?;
        if !value.is_null() {
            documents.push(value);
        }
    }
    Ok(documents)
}

/// Server-side apply of one object without its status, which is not a client's to apply; waits for nothing.
pub async fn apply(client: &Client, object: &Value) -> Result<Value> {
    let api = api(client, object).await?;
    let (name, params) = (name(object)?, PatchParams::apply(FIELD_MANAGER).force());
    let mut wanted = object.clone();
    if let Some(fields) = wanted.as_object_mut() {
        fields.remove("status");
    }
    let applied = api
        .patch(name, &params, &Patch::Apply(&wanted))
        .await
        .with_context(|| format!("applying {}", title(object)))?;
    Ok(serde_json::to_value(applied)?)
}

/// Whether there is no such object.
pub(super) async fn missing(client: &Client, object: &Value) -> Result<bool> {
    let api = api(client, object).await?;
    let found = api.get_opt(name(object)?).await.with_context(|| format!("reading {}", title(object)))?;
    Ok(found.is_none())
}

/// Merges the object's status into the one it has.
pub async fn apply_status(client: &Client, object: &Value) -> Result<()> {
    let api = api(client, object).await?;
    let patch = json!({ "status": object.get("status") });
    api.patch_status(name(object)?, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .with_context(|| format!("status of {}", title(object)))
        .map(drop)
}

/// Deletes an object; one that is not there is as good as deleted.
pub async fn delete(client: &Client, object: &Value) -> Result<()> {
    let api = api(client, object).await?;
    match api.delete(name(object)?, &Default::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("deleting {}", title(object))),
    }
}

/// A Node as kubelet registers it: named, addressed, Ready.
pub fn mk_node(name: &str, addresses: &[IpAddr]) -> Value {
    let mut list: Vec<Value> =
        addresses.iter().map(|address| json!({ "type": "InternalIP", "address": address })).collect();
    list.push(json!({ "type": "Hostname", "address": name }));
    let capacity = json!({ "cpu": "8", "memory": "16Gi", "pods": "250" });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        } },
        "status": {
            "addresses": list,
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
            }],
            "nodeInfo": {
                "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "devcluster://1", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "v1.36.0", "machineID": "", "operatingSystem": "linux",
                "osImage": "devcluster", "systemUUID": "",
            },
        },
    })
}

fn name(object: &Value) -> Result<&str> {
    object.pointer("/metadata/name").and_then(Value::as_str).context("an object without metadata.name")
}

fn title(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    format!("{} {} {}", text("/kind"), text("/metadata/namespace"), text("/metadata/name")).replace("  ", " ")
}

/// The API of the object's kind, asked of the server: what a kind's plural is and whether it has namespaces is not for
/// us to guess.
async fn api(client: &Client, object: &Value) -> Result<kube::Api<DynamicObject>> {
    let text = |key: &str| {
        object.get(key).and_then(Value::as_str).with_context(|| format!("an object without {key}"))
    };
    let (version, kind) = (text("apiVersion")?, text("kind")?);
    let path = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let request = Request::get(&path).body(Vec::new())?;
    let list: Value =
        client.request(request).await.with_context(|| format!("asking for the resources of {version}"))?;
    let found = list.get("resources").and_then(Value::as_array).into_iter().flatten().find(|resource| {
        resource.get("kind").and_then(Value::as_str) == Some(kind)
            && !resource.get("name").and_then(Value::as_str).is_some_and(|name| name.contains('/'))
    });
    let Some(found) = found else { bail!("the API server knows no {kind} in {version}") };
    let plural = found.get("name").and_then(Value::as_str).context("a resource without a name")?;
    let (group, short) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource {
        group: group.to_owned(),
        version: short.to_owned(),
        api_version: version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    if found.get("namespaced").and_then(Value::as_bool) == Some(true) {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default");
        return Ok(kube::Api::namespaced_with(client.clone(), namespace, &resource));
    }
    Ok(kube::Api::all_with(client.clone(), &resource))
}
