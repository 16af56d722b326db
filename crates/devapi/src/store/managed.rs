//! `metadata.managedFields`: who set which field, and the conflicts of server-side apply.

use serde_json::{Map, Value, json};

use super::Sub;
use crate::{
    error::ApiError,
    identity,
    kind::Kind,
    patch::fields::{FieldSet, difference, fields_of, overlay, remove_fields},
    schema::Schema,
};

/// Entries an object may hold before the oldest updaters are folded into one.
const MAX_UPDATERS: usize = 10;

struct Owner {
    manager: String,
    operation: String,
    api_version: String,
    subresource: String,
    time: String,
    set: FieldSet,
}

fn read(object: &Value) -> Vec<Owner> {
    let list = object["metadata"]["managedFields"].as_array();
    let text = |v: &Value, f: &str| v[f].as_str().unwrap_or_default().to_string();
    let owners = list.into_iter().flatten().map(|v| Owner {
        manager: text(v, "manager"),
        operation: text(v, "operation"),
        api_version: text(v, "apiVersion"),
        subresource: text(v, "subresource"),
        time: text(v, "time"),
        set: FieldSet::from_json(&v["fieldsV1"]),
    });
    owners.filter(|o| !o.manager.is_empty()).collect()
}

fn write(object: &mut Value, mut owners: Vec<Owner>) {
    owners.retain(|o| !o.set.is_empty());
    while owners.iter().filter(|o| o.operation == "Update").count() > MAX_UPDATERS {
        let Some(at) = owners.iter().position(|o| o.operation == "Update") else { break };
        let oldest = owners.remove(at);
        let Some(next) = owners.iter_mut().find(|o| o.operation == "Update") else { break };
        next.manager = "ancient-changes".into();
        next.set.union(&oldest.set);
    }
    let list: Vec<Value> = owners
        .into_iter()
        .map(|o| {
            let mut entry = json!({"manager": o.manager, "operation": o.operation, "apiVersion": o.api_version,
                "time": o.time, "fieldsType": "FieldsV1", "fieldsV1": o.set.to_json()});
            if !o.subresource.is_empty() {
                entry["subresource"] = o.subresource.into();
            }
            entry
        })
        .collect();
    if let Some(meta) = object["metadata"].as_object_mut() {
        if list.is_empty() {
            meta.remove("managedFields");
        } else {
            meta.insert("managedFields".into(), list.into());
        }
    }
}

/// The object without what nobody can own.
fn ownable(object: &Value) -> Value {
    let mut out = object.clone();
    if let Some(map) = out.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
        if let Some(meta) = map.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in [
                "name",
                "namespace",
                "creationTimestamp",
                "uid",
                "generation",
                "managedFields",
                "resourceVersion",
                "selfLink",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
            ] {
                meta.remove(field);
            }
            if meta.is_empty() {
                map.remove("metadata");
            }
        }
    }
    out
}

/// Fields a write to this subresource has no effect on cannot be owned through it.
fn keep_owned(set: &mut FieldSet, kind: &Kind, sub: Sub) {
    match sub {
        Sub::None if kind.status => {
            set.children.remove("f:status");
        }
        Sub::Status => set.children.retain(|name, _| matches!(name.as_str(), "f:status" | "f:metadata")),
        _ => {}
    }
}

fn sub_name(sub: Sub) -> &'static str {
    match sub {
        Sub::Status => "status",
        Sub::Scale => "scale",
        Sub::Ephemeral => "ephemeralcontainers",
        Sub::Resize => "resize",
        Sub::None | Sub::Finalize => "",
    }
}

/// Records a create, update or patch by `manager`.
pub(super) fn record_update(old: Option<&Value>, new: &mut Value, kind: &Kind, manager: &str, sub: Sub) {
    let schema = kind.schema();
    let before = old.map_or_else(|| Value::Object(Map::new()), ownable);
    let after = ownable(new);
    let (mut changed, mut removed) = difference(&before, &after, schema);
    for set in [&mut changed, &mut removed] {
        keep_owned(set, kind, sub);
    }
    let mut owners = read(new);
    if changed.is_empty() && removed.is_empty() {
        return;
    }
    let mine = |o: &Owner| {
        o.manager == manager
            && o.operation == "Update"
            && o.subresource == sub_name(sub)
            && o.api_version == kind.api_version()
    };
    for owner in owners.iter_mut().filter(|o| !mine(o)) {
        owner.set = owner.set.minus(&changed).without_subtrees(&removed);
    }
    match owners.iter_mut().find(|o| mine(o)) {
        Some(owner) => {
            owner.set = owner.set.without_subtrees(&removed);
            owner.set.union(&changed);
            owner.time = identity::now();
        }
        None if manager.is_empty() || changed.is_empty() => {}
        None => owners.push(Owner {
            manager: manager.into(),
            operation: "Update".into(),
            api_version: kind.api_version(),
            subresource: sub_name(sub).into(),
            time: identity::now(),
            set: changed,
        }),
    }
    write(new, owners);
}

/// The result of applying `applied` to `live` (server-side apply), ownership included.
pub(super) fn apply(
    live: &Value,
    applied: &Value,
    kind: &Kind,
    manager: &str,
    sub: Sub,
    force: bool,
) -> Result<Value, ApiError> {
    let schema = kind.schema();
    let config = ownable(applied);
    let mut set = if config.as_object().is_none_or(Map::is_empty) {
        FieldSet::default()
    } else {
        fields_of(&config, schema)
    };
    keep_owned(&mut set, kind, sub);
    let mut owners = read(live);
    let mine = |o: &Owner| o.manager == manager && o.operation == "Apply" && o.subresource == sub_name(sub);
    let mut merged = live.clone();
    overlay(&mut merged, &config, schema);
    let changed = changed_by(live, &merged, schema).intersection(&set);
    let mut conflicts = Vec::new();
    for owner in owners.iter_mut().filter(|o| !mine(o)) {
        let both = owner.set.intersection(&changed);
        if both.is_empty() {
            continue;
        }
        if force {
            owner.set = owner.set.minus(&both);
        } else {
            conflicts.push((
                owner.manager.clone(),
                owner.operation.clone(),
                owner.api_version.clone(),
                both.paths(),
            ));
        }
    }
    if !conflicts.is_empty() {
        return Err(conflict(&conflicts));
    }
    let mut others = FieldSet::default();
    for owner in owners.iter().filter(|o| !mine(o)) {
        others.union(&owner.set);
    }
    let previous = owners.iter().find(|o| mine(o)).map(|o| o.set.clone()).unwrap_or_default();
    let mut kept = set.clone();
    kept.union(&others);
    remove_fields(&mut merged, &previous.minus(&set).minus(&others), &kept, schema);
    match owners.iter_mut().find(|o| mine(o)) {
        Some(owner) if owner.set == set && owner.api_version == kind.api_version() => {}
        Some(owner) => {
            owner.set = set;
            owner.api_version = kind.api_version();
            owner.time = identity::now();
        }
        None => owners.push(Owner {
            manager: manager.into(),
            operation: "Apply".into(),
            api_version: kind.api_version(),
            subresource: sub_name(sub).into(),
            time: identity::now(),
            set,
        }),
    }
    write(&mut merged, owners);
    Ok(merged)
}

fn changed_by(live: &Value, merged: &Value, schema: &Schema) -> FieldSet {
    difference(&ownable(live), &ownable(merged), schema).0
}

type Conflict = (String, String, String, Vec<String>);

fn conflict(conflicts: &[Conflict]) -> ApiError {
    let total: usize = conflicts.iter().map(|c| c.3.len()).sum();
    let mut causes = Vec::new();
    let mut parts = Vec::new();
    for (manager, operation, version, paths) in conflicts {
        let using = if operation == "Update" { format!(" using {version}") } else { String::new() };
        for path in paths {
            causes.push(json!({"reason": "FieldManagerConflict",
                "message": format!("conflict with {manager:?}{using}"), "field": path}));
        }
        parts.push(match paths.as_slice() {
            [one] => format!("conflict with {manager:?}{using}: {one}"),
            many => format!("conflicts with {manager:?}{using}:\n- {}", many.join("\n- ")),
        });
    }
    let plural = if total == 1 { "conflict" } else { "conflicts" };
    ApiError::new(409, "Conflict", format!("Apply failed with {total} {plural}: {}", parts.join("\n")))
        .with(json!({"causes": causes}))
}
