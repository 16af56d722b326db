//! What controllers of a real cluster do in the background: namespaces and CRDs that are being deleted.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    identity,
    kind::Kind,
    store::{CLEANUP, CRD_SHELF, DeleteOptions, ListOptions, Store, key_of},
};

/// Runs until the store's server stops; wakes after writes.
pub(crate) async fn run(store: Arc<Store>) {
    loop {
        store.work.notified().await;
        finish_namespaces(&store);
        finish_custom(&store);
    }
}

fn names_being_deleted(store: &Store, shelf: &str) -> Vec<String> {
    let state = store.lock();
    state.ending.iter().filter(|(s, _)| *s == shelf).map(|(_, name)| name.clone()).collect()
}

/// Deletes what a namespace or CRD holds; gives how much is left, waiting for finalizers or nodes.
fn empty(store: &Store, kind: &Kind, namespace: &str) -> usize {
    let list = ListOptions { namespace: namespace.to_string(), ..ListOptions::default() };
    let objects = store.list_objects(kind, &list).map_or_else(|_| Vec::new(), |page| page.entries);
    let mut state = store.lock();
    let mut left = 0;
    for entry in objects {
        let (namespace, name) = key_of(&entry.value);
        // An object that vanished meanwhile is as good as deleted.
        let deleted = state.delete(kind, &namespace, &name, &DeleteOptions::default());
        left += usize::from(deleted.is_ok_and(|d| !d.gone));
    }
    left
}

/// One kind for each shelf.
fn shelves(store: &Store) -> Vec<Arc<Kind>> {
    let mut kinds: Vec<Arc<Kind>> = Vec::new();
    for kind in store.kinds() {
        if kind.namespaced && !kind.is_review() && !kinds.iter().any(|k| k.shelf == kind.shelf) {
            kinds.push(kind);
        }
    }
    kinds
}

fn finish_namespaces(store: &Store) {
    for namespace in names_being_deleted(store, "namespaces") {
        let mut left = 0;
        for kind in shelves(store) {
            left += empty(store, &kind, &namespace);
        }
        if left == 0 {
            store.finish_namespace(&namespace);
        } else {
            let message = format!(
                "Some content in the namespace has finalizers or is still terminating: {left} objects"
            );
            store.set_namespace_condition(
                &namespace,
                &json!({"type": "NamespaceContentRemaining",
                "status": "True", "reason": "SomeResourcesRemain", "message": message}),
            );
        }
    }
}

fn finish_custom(store: &Store) {
    for name in names_being_deleted(store, CRD_SHELF) {
        let kind = store.kinds().into_iter().find(|k| k.is_custom() && k.resource() == name);
        let mut left = 0;
        if let Some(kind) = kind {
            left = empty(store, &kind, "");
        }
        if left == 0 {
            store.finish_custom(&name);
        }
    }
}

impl Store {
    /// Removes a namespace that has no content left, once its own finalizers are gone.
    fn finish_namespace(&self, name: &str) {
        let mut state = self.lock();
        let Some(entry) = state.object("namespaces", "", name).cloned() else { return };
        let waits = entry.value["metadata"]["finalizers"].as_array().is_some_and(|l| !l.is_empty());
        let others = entry.value["spec"]["finalizers"]
            .as_array()
            .is_some_and(|l| l.iter().any(|f| f != &json!("kubernetes")));
        if !waits && !others {
            state.take("namespaces", "", name);
            return;
        }
        let mut value = entry.value.clone();
        if let Some(list) = value["spec"]["finalizers"].as_array_mut() {
            list.retain(|f| f != &json!("kubernetes"));
        }
        if value != entry.value {
            state.put("namespaces", value);
        }
    }

    fn set_namespace_condition(&self, name: &str, condition: &Value) {
        let mut state = self.lock();
        let Some(entry) = state.object("namespaces", "", name).cloned() else { return };
        let mut value = entry.value.clone();
        let list = &mut value["status"]["conditions"];
        if !list.is_array() {
            *list = json!([]);
        }
        let Some(list) = list.as_array_mut() else { return };
        let same = |c: &&mut Value| c["type"] == condition["type"];
        match list.iter_mut().find(same) {
            Some(at) if at["message"] == condition["message"] => return,
            Some(at) => at["message"] = condition["message"].clone(),
            None => {
                let mut condition = condition.clone();
                condition["lastTransitionTime"] = identity::now().into();
                list.push(condition);
            }
        }
        state.put("namespaces", value);
    }

    /// Removes a CRD whose objects are gone, once other finalizers are.
    fn finish_custom(&self, name: &str) {
        let mut state = self.lock();
        let Some(entry) = state.object(CRD_SHELF, "", name).cloned() else { return };
        let mut value = entry.value.clone();
        let Some(list) = value["metadata"]["finalizers"].as_array_mut() else {
            state.take(CRD_SHELF, "", name);
            return;
        };
        list.retain(|f| f != &json!(CLEANUP));
        if list.is_empty() {
            state.take(CRD_SHELF, "", name);
        } else if value != entry.value {
            state.put(CRD_SHELF, value);
        }
    }
}
