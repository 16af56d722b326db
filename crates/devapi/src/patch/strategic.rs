//! Strategic merge patch: a merge patch that merges lists by key and understands `$patch` directives.

use serde_json::{Map, Value};

use crate::schema::Schema;

/// Applies a patch in place; the error tells what about the patch is wrong.
pub(crate) fn merge(target: &mut Value, patch: &Value, schema: &Schema) -> Result<(), String> {
    let Value::Object(patch) = patch else { return Err("a strategic merge patch must be an object".into()) };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return Ok(()) };
    merge_map(map, patch, schema)
}

fn merge_map(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    schema: &Schema,
) -> Result<(), String> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = patch.clone();
            target.retain(|name, _| !name.starts_with('$'));
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(format!("unknown $patch directive {other:?}")),
    }
    if let Some(keys) = patch.get("$retainKeys") {
        let keys: Vec<&str> = keys.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        target.retain(|name, _| keys.contains(&name.as_str()));
    }
    let any = Schema::anything();
    for (name, value) in patch {
        if let Some(field) = name.strip_prefix("$deleteFromPrimitiveList/") {
            delete_primitives(target.get_mut(field), value);
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        let child = schema.child(name).unwrap_or(&any);
        match value {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(inner) => match target.get_mut(name) {
                Some(Value::Object(at)) => {
                    let deletes = inner.get("$patch").and_then(Value::as_str) == Some("delete");
                    if deletes {
                        target.remove(name);
                    } else {
                        merge_map(at, inner, child)?;
                    }
                }
                _ => {
                    let mut fresh = Map::new();
                    merge_map(&mut fresh, inner, child)?;
                    target.insert(name.clone(), Value::Object(fresh));
                }
            },
            Value::Array(items) => {
                let old = match target.remove(name) {
                    Some(Value::Array(old)) => old,
                    _ => Vec::new(),
                };
                let order = patch.get(&format!("$setElementOrder/{name}"));
                target.insert(name.clone(), merge_list(old, items, order, name, child)?);
            }
            other => {
                target.insert(name.clone(), other.clone());
            }
        }
    }
    Ok(())
}

fn delete_primitives(list: Option<&mut Value>, gone: &Value) {
    let (Some(Value::Array(list)), Some(gone)) = (list, gone.as_array()) else { return };
    list.retain(|item| !gone.contains(item));
}

fn merge_list(
    mut list: Vec<Value>,
    patch: &[Value],
    order: Option<&Value>,
    name: &str,
    schema: &Schema,
) -> Result<Value, String> {
    let any = Schema::anything();
    let item_schema = schema.items.as_ref().map_or(&any, |i| i.get());
    let directive = |item: &Value| item.get("$patch").and_then(Value::as_str).map(String::from);
    if patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        let items = patch.iter().filter(|item| directive(item).as_deref() != Some("replace"));
        return Ok(Value::Array(items.map(|item| plain(item, item_schema)).collect::<Result<_, _>>()?));
    }
    let Some(key) = &schema.merge_key else {
        if !schema.merge_list {
            return Ok(Value::Array(patch.iter().map(|i| plain(i, item_schema)).collect::<Result<_, _>>()?));
        }
        for item in patch {
            if !list.contains(item) {
                list.push(item.clone());
            }
        }
        return Ok(Value::Array(list));
    };
    for item in patch {
        let id =
            item.get(key).ok_or_else(|| format!("map: {item} does not contain declared merge key: {key}"))?;
        if directive(item).as_deref() == Some("delete") {
            list.retain(|old| old.get(key) != Some(id));
            continue;
        }
        let Value::Object(inner) = item else { return Err(format!("items of {name} must be objects")) };
        match list.iter_mut().find(|old| old.get(key) == Some(id)) {
            Some(Value::Object(at)) => merge_map(at, inner, item_schema)?,
            _ => list.push(plain(item, item_schema)?),
        }
    }
    if let Some(order) = order.and_then(Value::as_array) {
        sort_by_order(&mut list, order, key);
    }
    Ok(Value::Array(list))
}

/// A patch value on its own: directives taken out.
fn plain(value: &Value, schema: &Schema) -> Result<Value, String> {
    let Value::Object(map) = value else { return Ok(value.clone()) };
    let mut fresh = Map::new();
    merge_map(&mut fresh, map, schema)?;
    Ok(Value::Object(fresh))
}

/// Puts the items named by `$setElementOrder` into that order; others keep their places behind them.
fn sort_by_order(list: &mut [Value], order: &[Value], key: &str) {
    let rank = |item: &Value| {
        let at = order.iter().position(|o| o.get(key) == item.get(key));
        at.unwrap_or(order.len())
    };
    list.sort_by_key(rank);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::named;

    #[test]
    fn table() {
        let pod = json!({"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x/y"]},
            "spec": {"containers": [{"name": "a", "image": "1", "ports": [{"containerPort": 80}],
                "env": [{"name": "E", "value": "1"}]}, {"name": "b", "image": "2"}],
                "tolerations": [{"key": "t"}], "volumes": [{"name": "v", "emptyDir": {}}]},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let cases = [
            (
                "null removes",
                json!({"metadata": {"labels": {"a": null}}}),
                "/metadata/labels",
                json!({"b": "2"}),
            ),
            (
                "containers merge by name",
                json!({"spec": {"containers": [{"name": "b", "image": "3"}]}}),
                "/spec/containers/1",
                json!({"name": "b", "image": "3"}),
            ),
            (
                "nested lists merge by their own key",
                json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 81}]}]}}),
                "/spec/containers/0/ports",
                json!([{"containerPort": 80}, {"containerPort": 81}]),
            ),
            (
                "items are deleted by key",
                json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
                "/spec/containers",
                json!([{"name": "b", "image": "2"}]),
            ),
            (
                "lists without key are replaced",
                json!({"spec": {"tolerations": [{"key": "u"}]}}),
                "/spec/tolerations",
                json!([{"key": "u"}]),
            ),
            (
                "a list can be replaced",
                json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}),
                "/spec/containers",
                json!([{"name": "z"}]),
            ),
            (
                "a map can be replaced",
                json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}}),
                "/metadata/labels",
                json!({"c": "3"}),
            ),
            (
                "conditions merge by type",
                json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "True"}]}}),
                "/status/conditions",
                json!([{"type": "Ready", "status": "True"}, {"type": "X", "status": "True"}]),
            ),
            (
                "order is honoured",
                json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                    "containers": [{"name": "b", "image": "9"}]}}),
                "/spec/containers/0",
                json!({"name": "b", "image": "9"}),
            ),
            (
                "primitive lists merge",
                json!({"metadata": {"finalizers": ["p/q"]}}),
                "/metadata/finalizers",
                json!(["x/y", "p/q"]),
            ),
            (
                "primitives are deleted",
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/y"]}}),
                "/metadata/finalizers",
                json!([]),
            ),
            (
                "retainKeys drops the rest",
                json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}}),
                "/spec/volumes",
                json!([{"name": "v", "hostPath": {"path": "/"}}]),
            ),
        ];
        for (what, patch, at, want) in cases {
            let mut out = pod.clone();
            merge(&mut out, &patch, named("io.k8s.api.core.v1.Pod")).expect(what);
            assert_eq!(out.pointer(at), Some(&want), "{what}");
        }
        let mut out = pod.clone();
        let keyless = json!({"spec": {"containers": [{"image": "x"}]}});
        assert!(merge(&mut out, &keyless, named("io.k8s.api.core.v1.Pod")).is_err());
    }
}
