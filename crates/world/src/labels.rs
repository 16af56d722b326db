//! Labels, kept once however many objects have them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Labels of an object, shared between objects with the same.
pub type Labels = Arc<BTreeMap<String, String>>;

/// Values in use, each kept once.
#[derive(Debug)]
pub(crate) struct Shared<T: Ord>(BTreeSet<Arc<T>>);

impl<T: Ord> Default for Shared<T> {
    fn default() -> Self {
        Shared(BTreeSet::new())
    }
}

impl<T: Ord + Clone> Shared<T> {
    /// The shared form of a value.
    pub(crate) fn share(&mut self, value: &T) -> Arc<T> {
        if let Some(known) = self.0.get(value) {
            return known.clone();
        }
        let shared = Arc::new(value.clone());
        self.0.insert(shared.clone());
        shared
    }

    /// Forgets a value nobody else uses any more.
    pub(crate) fn release(&mut self, value: Arc<T>) {
        // The table's own and the one given.
        if Arc::strong_count(&value) == 2 {
            self.0.remove(&*value);
        }
    }
}
