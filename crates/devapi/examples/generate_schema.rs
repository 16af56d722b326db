//! Writes `src/schema/builtin.json`: field names, types and list keys of the built-in kinds, read from the
//! sources of k8s-openapi. Usage: `generate_schema K8S_OPENAPI/src/v1_36 > src/schema/builtin.json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::{Map, Value, json};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Kinds served, as modules of k8s-openapi; everything they refer to follows.
const ROOTS: &[(&str, &[&str])] = &[
    (
        "io.k8s.api.core.v1",
        &[
            "Node",
            "Pod",
            "Namespace",
            "Service",
            "Endpoints",
            "Event",
            "ConfigMap",
            "Secret",
            "ServiceAccount",
            "Binding",
            "ReplicationController",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "ResourceQuota",
            "LimitRange",
            "PodTemplate",
        ],
    ),
    ("io.k8s.api.events.v1", &["Event"]),
    ("io.k8s.api.apps.v1", &["Deployment", "DaemonSet", "ReplicaSet", "StatefulSet", "ControllerRevision"]),
    ("io.k8s.api.batch.v1", &["Job", "CronJob"]),
    ("io.k8s.api.autoscaling.v1", &["Scale"]),
    ("io.k8s.api.discovery.v1", &["EndpointSlice"]),
    ("io.k8s.api.networking.v1", &["NetworkPolicy", "Ingress", "IngressClass", "IPAddress", "ServiceCIDR"]),
    ("io.k8s.api.coordination.v1", &["Lease"]),
    ("io.k8s.api.rbac.v1", &["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]),
    ("io.k8s.api.policy.v1", &["PodDisruptionBudget", "Eviction"]),
    ("io.k8s.api.scheduling.v1", &["PriorityClass"]),
    ("io.k8s.api.storage.v1", &["StorageClass"]),
    (
        "io.k8s.api.admissionregistration.v1",
        &[
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
            "MutatingWebhookConfiguration",
        ],
    ),
    ("io.k8s.api.authentication.v1", &["TokenReview", "TokenRequest", "SelfSubjectReview"]),
    (
        "io.k8s.api.authorization.v1",
        &[
            "SelfSubjectAccessReview",
            "SubjectAccessReview",
            "SelfSubjectRulesReview",
            "LocalSubjectAccessReview",
        ],
    ),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1", &["CustomResourceDefinition"]),
    (META, &["DeleteOptions", "Status"]),
];

/// Lists whose server-side apply keys differ from the strategic merge key.
const APPLY_KEYS: &[(&str, &str, &[&str])] = &[
    ("io.k8s.api.core.v1.Container", "ports", &["containerPort", "protocol"]),
    ("io.k8s.api.core.v1.EphemeralContainer", "ports", &["containerPort", "protocol"]),
    ("io.k8s.api.core.v1.ServiceSpec", "ports", &["port", "protocol"]),
    ("io.k8s.api.core.v1.PodSpec", "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
];

struct Type {
    fields: Vec<(String, String, String)>,
    lists: BTreeMap<String, (String, Vec<String>)>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(root) = arguments.next() else {
        eprintln!("usage: generate_schema K8S_OPENAPI/src/v1_36");
        std::process::exit(2);
    };
    let mut types = BTreeMap::new();
    let mut paths = BTreeMap::new();
    scan(Path::new(&root), &mut Vec::new(), &mut types, &mut paths).expect("readable sources");
    let mut wanted: Vec<String> =
        ROOTS.iter().flat_map(|(module, kinds)| kinds.iter().map(move |k| format!("{module}.{k}"))).collect();
    let mut seen = BTreeSet::new();
    let mut out = Map::new();
    while let Some(name) = wanted.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let found = types.get(&name).unwrap_or_else(|| panic!("no type {name}"));
        out.insert(name.clone(), schema(&name, found, &paths, &mut wanted));
    }
    println!("{}", serde_json::to_string(&Value::Object(out)).expect("plain JSON"));
}

fn scan(
    at: &Path,
    module: &mut Vec<String>,
    types: &mut BTreeMap<String, Type>,
    paths: &mut BTreeMap<String, String>,
) -> std::io::Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(at)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(|e| e.path());
    for entry in entries {
        let path = entry.path();
        let name = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_string();
        if path.is_dir() {
            module.push(name);
            scan(&path, module, types, paths)?;
            module.pop();
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let Some(full) = text.lines().next().and_then(|l| l.strip_prefix("// Generated from definition "))
        else {
            continue;
        };
        let short = full.rsplit('.').next().unwrap_or_default();
        paths.insert(format!("crate::{}::{short}", module.join("::")), full.to_string());
        types.insert(full.to_string(), parse(&text));
    }
    Ok(())
}

fn parse(text: &str) -> Type {
    let mut fields: Vec<(String, String)> = Vec::new();
    let mut names = BTreeMap::new();
    let mut lists = BTreeMap::new();
    let mut in_struct = false;
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("pub struct ") && line.ends_with('{') {
            in_struct = true;
        } else if *line == "}" {
            in_struct = false;
        }
        if let Some((name, ty)) =
            line.strip_prefix("    pub ").and_then(|l| l.split_once(": ")).filter(|_| in_struct)
        {
            fields.push((name.to_string(), ty.trim_end_matches(',').to_string()));
        }
        if let Some((json, rust)) =
            line.trim().strip_prefix('"').and_then(|l| l.split_once("\" => Field::Key_"))
        {
            names.insert(rust.trim_end_matches(',').to_string(), json.to_string());
        }
        let Some(call) = line.trim().strip_prefix("crate::merge_strategies::") else { continue };
        let Some((strategy, rest)) = call.split_once('(') else { continue };
        let target = if rest.is_empty() { lines[at + 1].trim() } else { rest };
        let field = target.trim_start_matches("&mut self.").split([',', ')']).next().unwrap_or_default();
        let mut keys = Vec::new();
        if strategy == "list::map" {
            let closure = lines[at + 3].trim();
            keys = closure
                .split("lhs.")
                .skip(1)
                .map(|p| p.split(' ').next().unwrap_or_default().to_string())
                .collect();
        }
        lists.insert(field.to_string(), (strategy.to_string(), keys));
    }
    let fields = fields
        .into_iter()
        .map(|(rust, ty)| {
            let json = names.get(&rust).cloned().unwrap_or_else(|| rust.clone());
            (rust, json, ty)
        })
        .collect();
    Type { fields, lists }
}

fn schema(name: &str, ty: &Type, paths: &BTreeMap<String, String>, wanted: &mut Vec<String>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    let is_kind = ROOTS.iter().any(|(m, kinds)| kinds.iter().any(|k| name == format!("{m}.{k}")));
    if is_kind {
        properties.insert("apiVersion".into(), json!({"type": "string"}));
        properties.insert("kind".into(), json!({"type": "string"}));
    }
    for (rust, json, rust_type) in &ty.fields {
        let inner = rust_type.strip_prefix("Option<").and_then(|t| t.strip_suffix('>'));
        if inner.is_none() && json != "metadata" {
            required.push(json.clone());
        }
        let mut field = of(inner.unwrap_or(rust_type), paths, wanted);
        match ty.lists.get(rust) {
            Some((s, _)) if s == "list::atomic" => field["x-kubernetes-list-type"] = "atomic".into(),
            Some((s, _)) if s == "map::atomic" => field["x-kubernetes-map-type"] = "atomic".into(),
            Some((s, _)) if s == "list::set" => {
                field["x-kubernetes-list-type"] = "set".into();
                field["x-kubernetes-patch-strategy"] = "merge".into();
            }
            Some((s, keys)) if s == "list::map" => {
                let keys: Vec<String> = keys.iter().map(|k| camel(k)).collect();
                let apply: Vec<String> = APPLY_KEYS
                    .iter()
                    .find(|(t, f, _)| *t == name && f == json)
                    .map_or_else(|| keys.clone(), |(_, _, k)| k.iter().map(|k| k.to_string()).collect());
                field["x-kubernetes-list-type"] = "map".into();
                field["x-kubernetes-list-map-keys"] = json!(apply);
                field["x-kubernetes-patch-merge-key"] = keys[0].clone().into();
                field["x-kubernetes-patch-strategy"] = "merge".into();
                if name == "io.k8s.api.core.v1.PodSpec" && json == "volumes" {
                    field["x-kubernetes-patch-strategy"] = "merge,retainKeys".into();
                }
            }
            _ => {}
        }
        if matches!(name, "io.k8s.api.apps.v1.DeploymentSpec") && json == "strategy" {
            field["x-kubernetes-patch-strategy"] = "retainKeys".into();
        }
        properties.insert(json.clone(), field);
    }
    let mut out = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        out["required"] = json!(required);
    }
    out
}

fn camel(rust: &str) -> String {
    let mut out = String::new();
    let mut upper = false;
    for c in rust.trim_end_matches('_').chars() {
        if c == '_' {
            upper = true;
        } else if upper {
            out.push(c.to_ascii_uppercase());
            upper = false;
        } else {
            out.push(c);
        }
    }
    out
}

fn of(ty: &str, paths: &BTreeMap<String, String>, wanted: &mut Vec<String>) -> Value {
    let generic = |prefix: &str| ty.strip_prefix(prefix).and_then(|t| t.strip_suffix('>'));
    if let Some(inner) = generic("std::vec::Vec<").or(generic("Vec<")) {
        return json!({"type": "array", "items": of(inner, paths, wanted)});
    }
    if let Some(inner) = generic("std::collections::BTreeMap<std::string::String, ") {
        return json!({"type": "object", "additionalProperties": of(inner, paths, wanted)});
    }
    if let Some(inner) = generic("std::boxed::Box<").or(generic("Box<")) {
        return of(inner, paths, wanted);
    }
    match ty {
        "bool" => return json!({"type": "boolean"}),
        "i32" => return json!({"type": "integer", "format": "int32"}),
        "i64" => return json!({"type": "integer", "format": "int64"}),
        "f64" => return json!({"type": "number", "format": "double"}),
        "std::string::String" => return json!({"type": "string"}),
        "crate::ByteString" => return json!({"type": "string", "format": "byte"}),
        "crate::serde_json::Value" => return json!({}),
        _ => {}
    }
    let Some(full) = paths.get(ty) else { panic!("unknown type {ty}") };
    match full.rsplit('.').next().unwrap_or_default() {
        "Quantity" => json!({"type": "string", "format": "quantity"}),
        "Time" => json!({"type": "string", "format": "date-time"}),
        "MicroTime" => json!({"type": "string", "format": "micro-time"}),
        "IntOrString" => json!({"type": "string", "format": "int-or-string"}),
        "RawExtension" | "FieldsV1" | "Patch" => {
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
        }
        "JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => {
            json!({})
        }
        _ => {
            wanted.push(full.clone());
            json!({"$ref": format!("#/components/schemas/{full}")})
        }
    }
}
