//! Services and their slices, joined.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kapi::ServiceKey;

use crate::names::Names;
use crate::{Place, Service, Slice, View};

/// Every service somebody balances, with its slices. Slices may come before their service and outlive it.
#[derive(Debug, Default)]
pub struct Services {
    entries: BTreeMap<ServiceKey, Entry>,
    /// Which service a slice (`namespace/name`) was filed under.
    slices: BTreeMap<Arc<str>, ServiceKey>,
    names: Names,
}

#[derive(Debug, Default)]
struct Entry {
    service: Option<Arc<Service>>,
    /// By `namespace/name`, sorted.
    slices: Vec<(Arc<str>, Slice)>,
}

/// The services a change concerns; none if it changes nothing.
pub type Changed = Vec<ServiceKey>;

impl Services {
    /// No services.
    pub fn new() -> Services {
        Services::default()
    }

    /// A service by name.
    pub fn service(&self, key: &ServiceKey) -> Option<&Service> {
        self.entries.get(key)?.service.as_deref()
    }

    /// A service by name, to keep beyond the table's next change.
    pub fn shared(&self, key: &ServiceKey) -> Option<Arc<Service>> {
        self.entries.get(key)?.service.clone()
    }

    /// All services.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.entries.values().filter_map(|entry| entry.service.as_deref())
    }

    /// The slices of a service, by name, whether the service exists or not.
    pub fn slices(&self, key: &ServiceKey) -> impl Iterator<Item = &Slice> {
        self.entries.get(key).into_iter().flat_map(|entry| &entry.slices).map(|(_, slice)| slice)
    }

    /// Whether a slice is filed.
    pub fn has_slice(&self, namespace: &str, name: &str) -> bool {
        self.slices.contains_key(&*slice_name(namespace, name))
    }

    /// A service as seen from a place.
    pub fn view<'a>(&'a self, key: &ServiceKey, place: Place<'_>) -> Option<View<'a>> {
        let entry = self.entries.get(key)?;
        let slices: Vec<&Slice> = entry.slices.iter().map(|(_, slice)| slice).collect();
        Some(View::new(entry.service.as_deref()?, &slices, place))
    }

    /// A Service appeared or changed.
    pub fn apply_service(&mut self, object: &kapi::Service) -> Changed {
        let meta = &object.metadata;
        let key = ServiceKey::new(&meta.namespace, &meta.name);
        self.set_service(key, Service::read(object).map(Arc::new))
    }

    /// A Service is gone.
    pub fn remove_service(&mut self, key: &ServiceKey) -> Changed {
        self.set_service(key.clone(), None)
    }

    /// The complete list of Services: others are gone, but for those in `unread`, which stay as they are because
    /// their object cannot be read.
    pub fn replace_services(&mut self, objects: &[kapi::Service], unread: &BTreeSet<ServiceKey>) -> Changed {
        let listed: BTreeSet<ServiceKey> = objects
            .iter()
            .map(|object| ServiceKey::new(&object.metadata.namespace, &object.metadata.name))
            .collect();
        let gone: Vec<ServiceKey> = self
            .services()
            .map(|service| service.key.clone())
            .filter(|key| !listed.contains(key) && !unread.contains(key))
            .collect();
        let mut changed: Changed = gone.iter().flat_map(|key| self.remove_service(key)).collect();
        changed.extend(objects.iter().flat_map(|object| self.apply_service(object)));
        changed
    }

    /// An EndpointSlice appeared or changed. Moved to another service it concerns both.
    pub fn apply_slice(&mut self, object: &kapi::EndpointSlice) -> Changed {
        let name: Arc<str> = slice_name(&object.metadata.namespace, &object.metadata.name).into();
        let Some(service) = object.service() else { return self.remove_slice_called(&name) };
        let Some(slice) = Slice::read(object, &mut self.names) else {
            return self.remove_slice_called(&name);
        };
        let mut changed = match self.slices.get(&name) {
            Some(before) if *before != service => self.remove_slice_called(&name),
            _ => Changed::new(),
        };
        let entry = self.entries.entry(service.clone()).or_default();
        match entry.slices.binary_search_by(|(known, _)| known.cmp(&name)) {
            Ok(at) if entry.slices[at].1 == slice => return changed,
            Ok(at) => entry.slices[at].1 = slice,
            Err(at) => {
                entry.slices.insert(at, (name.clone(), slice));
                entry.slices.shrink_to_fit();
                self.slices.insert(name, service.clone());
            }
        }
        changed.push(service);
        changed
    }

    /// An EndpointSlice is gone.
    pub fn remove_slice(&mut self, namespace: &str, name: &str) -> Changed {
        self.remove_slice_called(&slice_name(namespace, name))
    }

    /// The complete list of EndpointSlices: others are gone, but for those in `unread` (`namespace/name`).
    pub fn replace_slices(&mut self, objects: &[kapi::EndpointSlice], unread: &BTreeSet<String>) -> Changed {
        let listed: BTreeSet<String> = objects
            .iter()
            .map(|object| slice_name(&object.metadata.namespace, &object.metadata.name))
            .collect();
        let gone: Vec<Arc<str>> = self
            .slices
            .keys()
            .filter(|name| !listed.contains(&***name) && !unread.contains(&***name))
            .cloned()
            .collect();
        let mut changed: Changed = gone.iter().flat_map(|name| self.remove_slice_called(name)).collect();
        changed.extend(objects.iter().flat_map(|object| self.apply_slice(object)));
        changed
    }

    fn set_service(&mut self, key: ServiceKey, service: Option<Arc<Service>>) -> Changed {
        let entry = self.entries.entry(key.clone()).or_default();
        let same = entry.service == service;
        entry.service = service;
        self.tidy(&key);
        if same { Changed::new() } else { vec![key] }
    }

    fn remove_slice_called(&mut self, name: &str) -> Changed {
        let Some(service) = self.slices.remove(name) else { return Changed::new() };
        if let Some(entry) = self.entries.get_mut(&service) {
            entry.slices.retain(|(known, _)| **known != *name);
        }
        self.tidy(&service);
        vec![service]
    }

    fn tidy(&mut self, key: &ServiceKey) {
        if self.entries.get(key).is_some_and(|entry| entry.service.is_none() && entry.slices.is_empty()) {
            self.entries.remove(key);
        }
    }
}

fn slice_name(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}
