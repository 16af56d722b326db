//! delete and deletecollection: preconditions, finalizers, graceful deletion of pods.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Entry, ListOptions, State, Store, custom, meta, write::uid_mismatch};
use crate::{error::ApiError, identity, kind::Kind};

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
}

/// What a deletion did.
#[derive(Debug)]
pub(crate) struct Deleted {
    /// Last state of the object.
    pub(crate) entry: Arc<Entry>,
    /// Whether it is gone; otherwise it waits for finalizers or its node.
    pub(crate) gone: bool,
}

impl Store {
    pub(crate) fn delete_object(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let mut state = self.lock();
        let deleted = state.delete(kind, namespace, name, options)?;
        self.wake(&state);
        Ok(deleted)
    }

    /// Deletes all objects a list matches; gives those it matched.
    pub(crate) fn delete_all(
        &self,
        kind: &Kind,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Entry>>, ApiError> {
        let page = self.list_objects(kind, list)?;
        for entry in &page.entries {
            let (namespace, name) = super::key_of(&entry.value);
            match self.delete_object(kind, &namespace, &name, options) {
                Err(e) if e.code == 404 => {}
                other => drop(other?),
            }
        }
        Ok(page.entries)
    }
}

impl State {
    pub(crate) fn delete(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let stored = self.object(&kind.shelf, namespace, name).cloned();
        let stored = stored.ok_or_else(|| ApiError::not_found(&kind.resource(), name))?;
        preconditions(kind, name, &stored.value, options)?;
        if kind.is("", "namespaces") && matches!(name, "default" | "kube-system" | "kube-public") {
            return Err(ApiError::forbidden("namespaces", name, "this namespace may not be deleted"));
        }
        let grace = if kind.is("", "pods") { pod_grace(&stored.value, options.grace) } else { 0 };
        let waits = grace > 0 || meta::has_finalizers(&stored.value) || kind.shelf == custom::SHELF;
        if !waits {
            if options.dry_run {
                return Ok(Deleted { entry: stored, gone: true });
            }
            let entry = self.take(&kind.shelf, namespace, name).unwrap_or(stored);
            return Ok(Deleted { entry, gone: true });
        }
        let mut value = stored.value.clone();
        if !mark(&mut value, grace) || options.dry_run {
            return Ok(Deleted { entry: stored, gone: false });
        }
        if kind.is("", "namespaces") {
            value["status"]["phase"] = "Terminating".into();
        }
        let entry = self.put(&kind.shelf, value);
        Ok(Deleted { entry, gone: false })
    }
}

fn preconditions(kind: &Kind, name: &str, object: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    if let Some(uid) = options.uid.as_deref().filter(|uid| object["metadata"]["uid"].as_str() != Some(uid)) {
        return Err(uid_mismatch(kind, name, uid, object));
    }
    let have = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if let Some(wanted) = options.resource_version.as_deref().filter(|v| *v != have) {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {have}"
        );
        return Err(ApiError::conflict(&kind.resource(), name, &why));
    }
    Ok(())
}

/// Seconds a pod gets to stop: none if no kubelet has it or it has finished.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let unscheduled = pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    if unscheduled || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    // A negative period means the shortest one.
    match asked.unwrap_or(own) {
        n if n < 0 => 1,
        n => n,
    }
}

/// Marks an object as being deleted; false if it is already, with no longer a period.
fn mark(object: &mut Value, grace: i64) -> bool {
    let before = meta::is_deleting(object)
        .then(|| object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0));
    if before.is_some_and(|b| grace >= b) {
        return false;
    }
    let at = identity::seconds_text(identity::now_seconds() + grace);
    object["metadata"]["deletionTimestamp"] = at.into();
    object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    if before.is_none() {
        meta::bump_generation(object);
    }
    true
}
