//! The cluster's objects and the API's verbs on them, without HTTP.

mod binding;
mod convert;
mod custom;
mod delete;
mod initial;
mod managed;
mod meta;
mod read;
mod shelf;
mod watch;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ipnet::IpNet;
use serde_json::Value;
use tokio::sync::Notify;

pub(crate) use custom::{CLEANUP, SHELF as CRD_SHELF};
pub(crate) use delete::DeleteOptions;
pub(crate) use read::{ListOptions, Page};
pub(crate) use shelf::{Change, ChangeType, Entry, Key, event_line};
pub(crate) use watch::{Subscription, WatchStart};
pub(crate) use write::{Outcome, Validation, WriteOptions, read_as};

use crate::{
    error::ApiError,
    kind::{Kind, Kinds, built_in},
    services::Allocations,
};
use shelf::Shelf;

/// All objects of one API server. Every verb is atomic: it holds one lock.
pub struct Store {
    state: Mutex<State>,
    /// Told when something may have become possible for the namespaces and CRDs being deleted.
    pub(crate) work: Notify,
}

pub(crate) struct State {
    pub(crate) rv: u64,
    pub(crate) kinds: Kinds,
    shelves: BTreeMap<String, Shelf>,
    pub(crate) services: Allocations,
    /// Shelf and name of the namespaces and CRDs being deleted.
    pub(crate) ending: BTreeSet<(&'static str, String)>,
    history: usize,
}

/// Which subresource a write goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sub {
    None,
    Status,
    Scale,
    Finalize,
    Ephemeral,
    Resize,
}

impl State {
    pub(crate) fn shelf(&self, name: &str) -> Option<&Shelf> {
        self.shelves.get(name)
    }

    pub(crate) fn shelf_mut(&mut self, name: &str) -> &mut Shelf {
        // History begins when the shelf does.
        let rv = self.rv;
        self.shelves.entry(name.to_string()).or_insert_with(|| Shelf::starting_at(rv))
    }

    pub(crate) fn object(&self, shelf: &str, namespace: &str, name: &str) -> Option<&Arc<Entry>> {
        self.shelves.get(shelf)?.objects.get(&(namespace.to_string(), name.to_string()))
    }

    pub(crate) fn next_rv(&mut self) -> u64 {
        self.rv += 1;
        self.rv
    }

    /// Stores a new state of an object and tells the watchers.
    pub(crate) fn put(&mut self, shelf: &str, mut value: Value) -> Arc<Entry> {
        let rv = self.next_rv();
        value["metadata"]["resourceVersion"] = rv.to_string().into();
        let key = key_of(&value);
        if let Some(owner) = content_owner(shelf)
            && value["metadata"].get("deletionTimestamp").is_some()
        {
            self.ending.insert((owner, key.1.clone()));
        }
        let entry = Entry::new(value, rv);
        let history = self.history;
        let shelf = self.shelf_mut(shelf);
        let old = shelf.objects.insert(key, entry.clone());
        let ty = if old.is_some() { ChangeType::Modified } else { ChangeType::Added };
        shelf.publish(ty, old, entry.clone(), history);
        entry
    }

    /// Removes an object; the event carries its last state with a new resourceVersion.
    pub(crate) fn take(&mut self, shelf: &str, namespace: &str, name: &str) -> Option<Arc<Entry>> {
        let old = self.shelf_mut(shelf).objects.remove(&(namespace.to_string(), name.to_string()))?;
        self.removed(shelf, &old.value);
        if let Some(owner) = content_owner(shelf) {
            self.ending.remove(&(owner, name.to_string()));
        }
        let rv = self.next_rv();
        let mut last = old.value.clone();
        last["metadata"]["resourceVersion"] = rv.to_string().into();
        let entry = Entry::new(last, rv);
        let history = self.history;
        self.shelf_mut(shelf).publish(ChangeType::Deleted, Some(old), entry.clone(), history);
        Some(entry)
    }

    fn removed(&mut self, shelf: &str, value: &Value) {
        match shelf {
            "services" => self.services.release(value),
            custom::SHELF => self.unregister_custom(value),
            _ => {}
        }
    }
}

/// The shelf itself, if its objects own others that are deleted with them.
fn content_owner(shelf: &str) -> Option<&'static str> {
    ["namespaces", custom::SHELF].into_iter().find(|s| *s == shelf)
}

pub(crate) fn key_of(value: &Value) -> Key {
    let text = |name: &str| value["metadata"][name].as_str().unwrap_or_default().to_string();
    (text("namespace"), text("name"))
}

impl Store {
    pub(crate) fn new(history: usize, cidrs: &[IpNet], endpoint: SocketAddr) -> Result<Arc<Self>, ApiError> {
        let mut kinds = Kinds::default();
        for kind in built_in() {
            kinds.add(kind);
        }
        let state = State {
            rv: 0,
            kinds,
            shelves: BTreeMap::new(),
            services: Allocations::new(cidrs),
            ending: BTreeSet::new(),
            history,
        };
        let store = Arc::new(Self { state: Mutex::new(state), work: Notify::new() });
        for name in store.kinds().iter().map(|k| k.shelf.clone()) {
            store.lock().shelf_mut(&name);
        }
        initial::fill(&store, cidrs, endpoint)?;
        Ok(store)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a write: lets the background finish what is being deleted.
    fn wake(&self, state: &State) {
        if !state.ending.is_empty() {
            self.work.notify_one();
        }
    }

    /// Every kind served now.
    pub(crate) fn kinds(&self) -> Vec<Arc<Kind>> {
        self.lock().kinds.by_resource.values().cloned().collect()
    }

    pub(crate) fn kind(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.lock().kinds.get(group, version, plural)
    }

    fn kind_for(&self, object: &Value) -> Result<Arc<Kind>, ApiError> {
        let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let (Some(version), Some(kind)) = (version, kind) else {
            return Err(ApiError::bad_request("object has no apiVersion or kind"));
        };
        self.lock().kinds.of(version, kind).ok_or_else(|| {
            ApiError::bad_request(format!("no matches for kind {kind:?} in version {version:?}"))
        })
    }

    fn resource_kind(&self, resource: &str) -> Result<Arc<Kind>, ApiError> {
        self.lock().kinds.resource(resource).ok_or_else(ApiError::no_route)
    }

    /// Creates an object as a client would (defaults, validation); its kind and namespace are read from it.
    pub fn create(&self, object: Value) -> Result<Value, ApiError> {
        let kind = self.kind_for(&object)?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_string();
        let namespace =
            if kind.namespaced && namespace.is_empty() { "default".to_string() } else { namespace };
        let outcome = self.create_object(&kind, &namespace, object, &WriteOptions::default())?;
        Ok(outcome.entry.value.clone())
    }

    /// The object, or `None`. `resource` is `plural` or `plural.group`.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let kind = self.resource_kind(resource).ok()?;
        self.lock().object(&kind.shelf, namespace, name).map(|e| e.value.clone())
    }

    /// All objects of a resource, of one namespace if it is not empty.
    pub fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let Ok(kind) = self.resource_kind(resource) else { return Vec::new() };
        let state = self.lock();
        let Some(shelf) = state.shelf(&kind.shelf) else { return Vec::new() };
        let all = shelf.objects.iter().filter(|((ns, _), _)| namespace.is_empty() || ns == namespace);
        all.map(|(_, e)| e.value.clone()).collect()
    }

    /// Replaces an object; with a resourceVersion in it, only if that is current.
    pub fn update(&self, object: Value) -> Result<Value, ApiError> {
        self.write(object, Sub::None)
    }

    /// Replaces the status of an object.
    pub fn update_status(&self, object: Value) -> Result<Value, ApiError> {
        self.write(object, Sub::Status)
    }

    fn write(&self, object: Value, sub: Sub) -> Result<Value, ApiError> {
        let kind = self.kind_for(&object)?;
        let (namespace, name) = key_of(&object);
        let outcome = self.update_object(&kind, &namespace, &name, sub, object, &WriteOptions::default())?;
        Ok(outcome.entry.value.clone())
    }

    /// Applies a JSON merge patch; `status` addresses the status subresource.
    pub fn merge(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
        status: bool,
    ) -> Result<Value, ApiError> {
        let kind = self.resource_kind(resource)?;
        let sub = if status { Sub::Status } else { Sub::None };
        let patch = crate::patch::Patch::Merge(patch.clone());
        let outcome = self.patch_object(&kind, namespace, name, sub, &patch, &WriteOptions::default())?;
        Ok(outcome.entry.value.clone())
    }

    /// Deletes an object; pods on a node at once only with `now` (grace period 0).
    pub fn delete(&self, resource: &str, namespace: &str, name: &str, now: bool) -> Result<(), ApiError> {
        let kind = self.resource_kind(resource)?;
        let options = DeleteOptions { grace: now.then_some(0), ..DeleteOptions::default() };
        self.delete_object(&kind, namespace, name, &options).map(drop)
    }

    /// The latest resourceVersion.
    pub fn resource_version(&self) -> u64 {
        self.lock().rv
    }

    pub(crate) fn drop_watches(&self) {
        for shelf in self.lock().shelves.values_mut() {
            shelf.drop_watchers();
        }
    }

    pub(crate) fn compact(&self) {
        let mut state = self.lock();
        // A resume from anything seen so far must fail, so the present itself becomes history.
        let rv = state.next_rv();
        for shelf in state.shelves.values_mut() {
            shelf.compact(rv);
        }
    }
}

/// Decodes a body of a kind that is only answered, never stored.
pub(crate) fn read_body(kind: &Kind, object: &mut Value) -> Result<(), ApiError> {
    write::read(kind, object, Validation::Ignore).map(drop)
}
