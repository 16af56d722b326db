//! Services in the core: what changed since when, and what their owners were told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use compile::Db;
use kapi::{EndpointSlice, ServiceKey};
use world::Key;

use super::Core;
use crate::io::{Change, Output, Unreadable};

/// What goes on about services besides their rows.
#[derive(Debug, Default)]
pub(super) struct Services {
    lists: Lists,
    unread_services: BTreeSet<ServiceKey>,
    unread_slices: BTreeSet<String>,
    /// Changes not planned yet.
    waiting: BTreeMap<ServiceKey, Changes>,
    /// Changes whose rows are on their way.
    sent: BTreeMap<ServiceKey, Changes>,
    told: BTreeMap<ServiceKey, String>,
}

/// Which first lists have arrived.
#[derive(Debug, Default)]
struct Lists {
    services: bool,
    slices: bool,
}

/// Changes of one service that are not programmed yet.
#[derive(Debug)]
struct Changes {
    /// When the first of them was heard of.
    since: Duration,
    /// When that happened which made its slices change.
    triggers: Vec<SystemTime>,
}

impl Services {
    /// Whether it is known of every service what it wants. A service without its slices would look empty.
    pub(super) fn are_known(&self) -> bool {
        self.lists.services && self.lists.slices
    }

    /// The rows of this service are on their way, or found to be right.
    pub(super) fn planned(&mut self, key: &ServiceKey) {
        if let Some(changes) = self.waiting.remove(key) {
            merge(&mut self.sent, key, changes);
        }
    }

    /// What was on its way is not known to have arrived.
    pub(super) fn undone(&mut self, key: &ServiceKey) {
        if let Some(changes) = self.sent.remove(key) {
            merge(&mut self.waiting, key, changes);
        }
    }

    fn note(&mut self, key: &ServiceKey, now: Duration, trigger: Option<SystemTime>) {
        let changes = Changes { since: now, triggers: trigger.into_iter().collect() };
        merge(&mut self.waiting, key, changes);
    }
}

fn merge(map: &mut BTreeMap<ServiceKey, Changes>, key: &ServiceKey, changes: Changes) {
    let Some(known) = map.get_mut(key) else {
        map.insert(key.clone(), changes);
        return;
    };
    known.since = known.since.min(changes.since);
    known.triggers.extend(changes.triggers);
}

impl Core {
    pub(super) fn services(&mut self, change: Change<kapi::Service>, now: Duration, out: &mut Vec<Output>) {
        let changed = match change {
            Change::Snapshot(list) => {
                // Whatever still cannot be read is named again ahead of the next list.
                let unread = std::mem::take(&mut self.services.unread_services);
                let changed = self.world.replace_services(&list, &unread);
                if !std::mem::replace(&mut self.services.lists.services, true) {
                    return self.services_known(out);
                }
                changed
            }
            Change::Applied(object) => {
                let meta = &object.metadata;
                self.services.unread_services.remove(&ServiceKey::new(&meta.namespace, &meta.name));
                self.world.apply_service(&object)
            }
            Change::Deleted(key) => {
                let key = ServiceKey::new(&key.namespace, &key.name);
                self.services.unread_services.remove(&key);
                self.services.told.remove(&key);
                self.world.remove_service(&key)
            }
        };
        self.services_changed(&changed, None, now, out);
    }

    pub(super) fn slices(&mut self, change: Change<EndpointSlice>, now: Duration, out: &mut Vec<Output>) {
        let mut trigger = None;
        let changed = match change {
            Change::Snapshot(list) => {
                let unread = std::mem::take(&mut self.services.unread_slices);
                let changed = self.world.replace_slices(&list, &unread);
                if !std::mem::replace(&mut self.services.lists.slices, true) {
                    return self.services_known(out);
                }
                changed
            }
            Change::Applied(object) => {
                self.services.unread_slices.remove(&slice_name(&object));
                trigger = object.triggered();
                self.world.apply_slice(&object)
            }
            Change::Deleted(key) => {
                self.services.unread_slices.remove(&key.to_string());
                self.world.remove_slice(&key.namespace, &key.name)
            }
        };
        self.services_changed(&changed, trigger, now, out);
    }

    /// An object cannot be read any more; what is known of it stays, also when lists do not hold it.
    pub(super) fn unreadable(&mut self, object: Unreadable) {
        match object {
            Unreadable::Service(key) => self.services.unread_services.insert(key),
            Unreadable::Slice(name) => self.services.unread_slices.insert(name),
        };
    }

    /// After the first lists: rows found earlier could not be judged without them. What was there at the start is no
    /// change whose time is worth telling.
    fn services_known(&mut self, out: &mut Vec<Output>) {
        if !self.services.are_known() {
            return;
        }
        self.mark_all(Db::Nb);
        let keys: Vec<ServiceKey> =
            self.world.services().services().map(|service| service.key.clone()).collect();
        for key in &keys {
            self.tell_service(key, out);
        }
        out.push(Output::ServicesChanged(keys));
    }

    fn services_changed(
        &mut self,
        changed: &[ServiceKey],
        trigger: Option<SystemTime>,
        now: Duration,
        out: &mut Vec<Output>,
    ) {
        if !self.services.are_known() {
            return;
        }
        for key in changed.iter().filter(|key| self.world.services().service(key).is_some()) {
            self.services.note(key, now, trigger);
        }
        for key in changed {
            self.tell_service(key, out);
        }
        if !changed.is_empty() {
            out.push(Output::ServicesChanged(changed.to_vec()));
        }
    }

    /// Warns of what of a service cannot be used, once per distinct message.
    fn tell_service(&mut self, key: &ServiceKey, out: &mut Vec<Output>) {
        let problems = compile::service_problems(&self.world, key);
        if problems.is_empty() {
            self.services.told.remove(key);
            return;
        }
        let message = format!("service {key}: {}", problems.join("; "));
        self.warn_service(key, "ErrorReconcilingService", message, out);
    }

    fn warn_service(
        &mut self,
        key: &ServiceKey,
        reason: &'static str,
        message: String,
        out: &mut Vec<Output>,
    ) {
        if self.services.told.get(key) == Some(&message) {
            return;
        }
        let Some(service) = self.world.services().service(key) else { return };
        let uid = service.uid.to_string();
        self.services.told.insert(key.clone(), message.clone());
        out.push(Output::WarnService { key: key.clone(), uid, reason, message });
    }

    pub(super) fn service_refused(&mut self, key: &ServiceKey, error: &str, out: &mut Vec<Output>) {
        let message =
            format!("service {key}: the {} database refuses its load balancers: {error}", Db::Nb.name());
        self.warn_service(key, "ErrorReconcilingService", message, out);
    }

    /// What the database holds is what the service asks for.
    pub(super) fn service_settled(&mut self, key: &ServiceKey, now: Duration, out: &mut Vec<Output>) {
        if let Some(Changes { since, triggers }) = self.services.sent.remove(key) {
            out.push(Output::Programmed { key: key.clone(), took: now.saturating_sub(since), triggers });
        }
    }

    /// Whether this key's wishes can be told at all now.
    pub(super) fn is_known(&self, key: &Key) -> bool {
        !matches!(key, Key::Service(_) | Key::Templates) || self.services.are_known()
    }
}

fn slice_name(object: &EndpointSlice) -> String {
    format!("{}/{}", object.metadata.namespace, object.metadata.name)
}
