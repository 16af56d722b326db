//! Services and their endpoints.

use std::collections::BTreeSet;

use kapi::{EndpointSlice, ServiceKey};
use service::{Changed, Place, Services, View};

use crate::{Key, NodeState, World};

impl World {
    /// All services with their slices.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// A service as this zone's node sees it.
    pub fn service_view(&self, key: &ServiceKey) -> Option<View<'_>> {
        let zone = self.local_node().and_then(|node| node.zone.as_deref());
        self.services.view(key, Place { node: self.local_name(), zone })
    }

    /// A Service appeared or changed. Returns the services concerned, as do the following.
    pub fn apply_service(&mut self, object: &kapi::Service) -> Changed {
        let changed = self.services.apply_service(object);
        self.changed(changed)
    }

    /// A Service is gone.
    pub fn remove_service(&mut self, key: &ServiceKey) -> Changed {
        let changed = self.services.remove_service(key);
        self.changed(changed)
    }

    /// The complete list of Services: others are gone, but for the `unread`.
    pub fn replace_services(&mut self, objects: &[kapi::Service], unread: &BTreeSet<ServiceKey>) -> Changed {
        let changed = self.services.replace_services(objects, unread);
        self.changed(changed)
    }

    /// An EndpointSlice appeared or changed.
    pub fn apply_slice(&mut self, object: &EndpointSlice) -> Changed {
        let changed = self.services.apply_slice(object);
        self.changed(changed)
    }

    /// An EndpointSlice is gone.
    pub fn remove_slice(&mut self, namespace: &str, name: &str) -> Changed {
        let changed = self.services.remove_slice(namespace, name);
        self.changed(changed)
    }

    /// The complete list of EndpointSlices: others are gone, but for the `unread` (`namespace/name`).
    pub fn replace_slices(&mut self, objects: &[EndpointSlice], unread: &BTreeSet<String>) -> Changed {
        let changed = self.services.replace_slices(objects, unread);
        self.changed(changed)
    }

    pub(crate) fn mark_services(&mut self) {
        let keys = self.services.services().map(|service| Key::Service(service.key.clone()));
        self.dirty.extend(keys);
        self.dirty.insert(Key::Templates);
    }

    fn changed(&mut self, changed: Changed) -> Changed {
        self.dirty.extend(changed.iter().cloned().map(Key::Service));
        changed
    }
}

/// Whether a change of this zone's node can change what services want.
pub(crate) fn concerned(old: &NodeState, new: &NodeState) -> bool {
    let same = old.gateway == new.gateway
        && old.host_cidrs == new.host_cidrs
        && old.zone == new.zone
        && old.chassis == new.chassis
        && old.subnets == new.subnets;
    !same
}
