//! Sets of fields as `managedFields` records them (FieldsV1), and the schema-aware merge of server-side apply.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::schema::{ListType, Schema};

/// A set of field paths. Keys are FieldsV1 path elements: `f:name`, `k:{…}`, `v:…`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// The path that leads here is itself a member.
    pub(crate) own: bool,
    pub(crate) children: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    fn leaf() -> Self {
        Self { own: true, children: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.own && self.children.is_empty()
    }

    /// FieldsV1 JSON → set.
    pub(crate) fn from_json(value: &Value) -> Self {
        let mut set = Self::default();
        let Some(map) = value.as_object() else { return set };
        for (name, child) in map {
            if name == "." {
                set.own = true;
                continue;
            }
            let mut child_set = Self::from_json(child);
            // An element without anything below it stands for itself.
            child_set.own |= child_set.children.is_empty();
            set.children.insert(name.clone(), child_set);
        }
        set
    }

    /// Set → FieldsV1 JSON.
    pub(crate) fn to_json(&self) -> Value {
        let mut map = Map::new();
        for (name, child) in &self.children {
            let mut json = child.to_json();
            if child.own
                && !child.children.is_empty()
                && let Some(inner) = json.as_object_mut()
            {
                inner.insert(".".into(), Value::Object(Map::new()));
            }
            map.insert(name.clone(), json);
        }
        Value::Object(map)
    }

    pub(crate) fn union(&mut self, other: &FieldSet) {
        self.own |= other.own;
        for (name, child) in &other.children {
            self.children.entry(name.clone()).or_default().union(child);
        }
    }

    /// Members of self that are not in `other`.
    pub(crate) fn minus(&self, other: &FieldSet) -> FieldSet {
        let mut out = FieldSet { own: self.own && !other.own, children: BTreeMap::new() };
        for (name, child) in &self.children {
            let left = other.children.get(name).map_or_else(|| child.clone(), |o| child.minus(o));
            if !left.is_empty() {
                out.children.insert(name.clone(), left);
            }
        }
        out
    }

    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut out = FieldSet { own: self.own && other.own, children: BTreeMap::new() };
        for (name, child) in &self.children {
            let Some(theirs) = other.children.get(name) else { continue };
            let both = child.intersection(theirs);
            if !both.is_empty() {
                out.children.insert(name.clone(), both);
            }
        }
        out
    }

    /// Takes away everything at or below the members of `gone`.
    pub(crate) fn without_subtrees(&self, gone: &FieldSet) -> FieldSet {
        let mut out = FieldSet { own: self.own && !gone.own, children: BTreeMap::new() };
        for (name, child) in &self.children {
            let left = match gone.children.get(name) {
                Some(g) if g.own => continue,
                Some(g) => child.without_subtrees(g),
                None => child.clone(),
            };
            if !left.is_empty() {
                out.children.insert(name.clone(), left);
            }
        }
        out
    }

    /// Members as dotted paths (`.spec.containers[name="a"].image`), for messages.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect(String::new(), &mut out);
        out
    }

    fn collect(&self, path: String, out: &mut Vec<String>) {
        if self.own && !path.is_empty() {
            out.push(path.clone());
        }
        for (name, child) in &self.children {
            child.collect(format!("{path}{}", shown(name)), out);
        }
    }
}

fn shown(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let parts: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("[{}]", parts.join(","))
        }
        Some((_, value)) => format!("[={value}]"),
        None => element.to_string(),
    }
}

/// FieldsV1 element of a list item; `None` if the list is atomic.
fn item_element(item: &Value, list: &Schema) -> Option<String> {
    match &list.list {
        ListType::Atomic => None,
        ListType::Set => Some(format!("v:{item}")),
        ListType::Map(keys) => {
            let child = list.items.as_ref()?.get();
            let mut id = Map::new();
            for key in keys {
                let value = item.get(key).cloned().or_else(|| child.child(key)?.default.clone());
                if let Some(value) = value {
                    id.insert(key.clone(), value);
                }
            }
            Some(format!("k:{}", Value::Object(id)))
        }
    }
}

fn granular_list(schema: &Schema) -> bool {
    schema.list != ListType::Atomic
}

fn field_schema<'a>(schema: &'a Schema, name: &str, any: &'a Schema) -> &'a Schema {
    schema.child(name).unwrap_or(any)
}

/// A list that names one of its items twice, so that nobody can tell which one is meant: where it is, and the item.
pub(crate) fn named_twice(value: &Value, schema: &Schema, path: &str) -> Option<String> {
    let any = Schema::anything();
    match value {
        Value::Object(map) => map.iter().find_map(|(name, field)| {
            named_twice(field, field_schema(schema, name, &any), &format!("{path}.{name}"))
        }),
        Value::Array(items) => {
            let mut seen = BTreeSet::new();
            for item in items {
                let element = item_element(item, schema)?;
                if !seen.insert(element.clone()) {
                    return Some(match element.split_once(':') {
                        Some(("k", keys)) => format!("{path}: duplicate entries for key {}", written(keys)),
                        _ => format!("{path}: duplicate entries for {item}"),
                    });
                }
            }
            let child = schema.items.as_ref()?.get();
            items.iter().enumerate().find_map(|(at, item)| named_twice(item, child, &format!("{path}[{at}]")))
        }
        _ => None,
    }
}

/// Keys of an item as errors show them: `[type="InternalIP"]`.
fn written(keys: &str) -> String {
    let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
    let parts: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("[{}]", parts.join(","))
}

/// All fields a value sets.
pub(crate) fn fields_of(value: &Value, schema: &Schema) -> FieldSet {
    let any = Schema::anything();
    match value {
        Value::Object(map) if !map.is_empty() && !schema.atomic_map => {
            let mut set = FieldSet::default();
            for (name, field) in map {
                let child = fields_of(field, field_schema(schema, name, &any));
                set.children.insert(format!("f:{name}"), child);
            }
            set
        }
        Value::Array(items) if !items.is_empty() && granular_list(schema) => {
            let mut set = FieldSet::default();
            let child = schema.items.as_ref().map_or(&any, |i| i.get());
            for item in items {
                let Some(element) = item_element(item, schema) else { continue };
                let mut inner =
                    if schema.list == ListType::Set { FieldSet::leaf() } else { fields_of(item, child) };
                inner.own = true;
                set.children.insert(element, inner);
            }
            set
        }
        _ => FieldSet::leaf(),
    }
}

/// Fields that differ between two values: set or changed, and removed.
pub(crate) fn difference(old: &Value, new: &Value, schema: &Schema) -> (FieldSet, FieldSet) {
    let (mut changed, mut removed) = (FieldSet::default(), FieldSet::default());
    let any = Schema::anything();
    match (old, new) {
        (a, b) if a == b => {}
        (Value::Object(a), Value::Object(b)) if !schema.atomic_map => {
            for (name, after) in b {
                let child = field_schema(schema, name, &any);
                let element = format!("f:{name}");
                let (c, r) = match a.get(name) {
                    Some(before) => difference(before, after, child),
                    None => (fields_of(after, child), FieldSet::default()),
                };
                insert(&mut changed, &element, c);
                insert(&mut removed, &element, r);
            }
            for (name, before) in a.iter().filter(|(name, _)| !b.contains_key(*name)) {
                let mut gone = fields_of(before, field_schema(schema, name, &any));
                gone.own = true;
                insert(&mut removed, &format!("f:{name}"), gone);
            }
        }
        (Value::Array(a), Value::Array(b)) if granular_list(schema) => {
            let child = schema.items.as_ref().map_or(&any, |i| i.get());
            let index = |list: &'_ [Value]| -> BTreeMap<String, Value> {
                list.iter().filter_map(|i| Some((item_element(i, schema)?, i.clone()))).collect()
            };
            let (a, b) = (index(a), index(b));
            for (element, after) in &b {
                let (c, r) = match a.get(element) {
                    Some(before) => difference(before, after, child),
                    None => {
                        let mut all = fields_of(after, child);
                        all.own = true;
                        if schema.list == ListType::Set {
                            all = FieldSet::leaf();
                        }
                        (all, FieldSet::default())
                    }
                };
                insert(&mut changed, element, c);
                insert(&mut removed, element, r);
            }
            for element in a.keys().filter(|e| !b.contains_key(*e)) {
                insert(&mut removed, element, FieldSet::leaf());
            }
        }
        (_, new) => changed = fields_of(new, schema),
    }
    (changed, removed)
}

fn insert(set: &mut FieldSet, element: &str, child: FieldSet) {
    if !child.is_empty() {
        set.children.insert(element.to_string(), child);
    }
}

/// `applied` laid over `live`: maps and keyed lists merge, everything else is replaced.
pub(crate) fn overlay(live: &mut Value, applied: &Value, schema: &Schema) {
    let any = Schema::anything();
    match (live, applied) {
        (Value::Object(a), Value::Object(b)) if !schema.atomic_map => {
            for (name, field) in b {
                match a.get_mut(name) {
                    Some(at) => overlay(at, field, field_schema(schema, name, &any)),
                    None => {
                        a.insert(name.clone(), field.clone());
                    }
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if granular_list(schema) => {
            let child = schema.items.as_ref().map_or(&any, |i| i.get());
            for item in b {
                let element = item_element(item, schema);
                match a.iter_mut().find(|x| item_element(x, schema) == element) {
                    Some(at) => overlay(at, item, child),
                    None => a.push(item.clone()),
                }
            }
        }
        (live, applied) => *live = applied.clone(),
    }
}

/// Removes the members of a set from a value; items and fields that only held those go too.
pub(crate) fn remove_fields(value: &mut Value, gone: &FieldSet, keep: &FieldSet, schema: &Schema) {
    let any = Schema::anything();
    match value {
        Value::Object(map) => {
            for (element, below) in &gone.children {
                let Some(name) = element.strip_prefix("f:") else { continue };
                let kept = keep.children.get(element).cloned().unwrap_or_default();
                let Some(field) = map.get_mut(name) else { continue };
                remove_fields(field, below, &kept, field_schema(schema, name, &any));
                let hollow = match field {
                    Value::Object(m) => m.is_empty(),
                    Value::Array(l) => l.is_empty(),
                    _ => true,
                };
                if kept.is_empty() && (hollow || (below.own && below.children.is_empty())) {
                    map.remove(name);
                }
            }
        }
        Value::Array(items) => {
            let child = schema.items.as_ref().map_or(&any, |i| i.get());
            items.retain_mut(|item| {
                let Some(element) = item_element(item, schema) else { return true };
                let Some(below) = gone.children.get(&element) else { return true };
                let kept = keep.children.get(&element).cloned().unwrap_or_default();
                if below.own && kept.is_empty() {
                    return false;
                }
                remove_fields(item, below, &kept, child);
                true
            });
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::named;

    #[test]
    fn sets_are_written_as_the_api_writes_them() {
        let pod = json!({"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i", "command": ["x"]}]}});
        let set = fields_of(&pod, named("io.k8s.api.core.v1.Pod"));
        let want = json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:containers": {
            "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:command": {}}}}});
        assert_eq!(set.to_json(), want);
        assert_eq!(FieldSet::from_json(&want), set);
    }

    #[test]
    fn overlay_and_removal_respect_keys() {
        let schema = named("io.k8s.api.core.v1.Pod");
        let mut live =
            json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}});
        overlay(&mut live, &json!({"spec": {"containers": [{"name": "b", "image": "3"}]}}), schema);
        assert_eq!(
            live["spec"]["containers"],
            json!([{"name": "a", "image": "1"}, {"name": "b", "image": "3"}])
        );
        let gone = fields_of(&json!({"spec": {"containers": [{"name": "a", "image": "1"}]}}), schema);
        remove_fields(&mut live, &gone, &FieldSet::default(), schema);
        assert_eq!(live["spec"]["containers"], json!([{"name": "b", "image": "3"}]));
    }
}
