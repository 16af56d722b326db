//! Things of the host that several services may want at once.

use std::collections::{BTreeMap, BTreeSet};

use kapi::ServiceKey;

/// Who wants what. Where two services want different values in one place, the one whose name comes first has it, and the
/// other gets it when that one goes.
#[derive(Debug)]
pub(super) struct Ledger<K, V> {
    places: BTreeMap<K, BTreeMap<ServiceKey, V>>,
}

/// What became of a place: its value before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn<K, V> {
    /// The place.
    pub(crate) place: K,
    /// What was there.
    pub(crate) before: Option<V>,
    /// What is to be there.
    pub(crate) after: Option<V>,
}

// === impl Ledger ===

impl<K, V> Default for Ledger<K, V> {
    fn default() -> Self {
        Ledger { places: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, V: Eq + Clone> Ledger<K, V> {
    /// Replaces what a service wanted by what it wants now, and tells which places change by that.
    pub(super) fn replace(
        &mut self,
        service: &ServiceKey,
        old: impl IntoIterator<Item = K>,
        new: impl IntoIterator<Item = (K, V)>,
    ) -> Vec<Turn<K, V>> {
        let new: BTreeMap<K, V> = new.into_iter().collect();
        let mut touched: BTreeSet<K> = old.into_iter().collect();
        touched.extend(new.keys().cloned());
        let mut turns = Vec::new();
        for place in touched {
            let wishes = self.places.entry(place.clone()).or_default();
            let before = wishes.values().next().cloned();
            match new.get(&place) {
                Some(value) => drop(wishes.insert(service.clone(), value.clone())),
                None => drop(wishes.remove(service)),
            }
            let after = wishes.values().next().cloned();
            if wishes.is_empty() {
                self.places.remove(&place);
            }
            if before != after {
                turns.push(Turn { place, before, after });
            }
        }
        turns
    }

    /// Every place with its value.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.places.iter().filter_map(|(place, wishes)| Some((place, wishes.values().next()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("n", name)
    }

    fn turn(place: &str, before: Option<u8>, after: Option<u8>) -> Turn<String, u8> {
        Turn { place: place.to_owned(), before, after }
    }

    #[test]
    fn the_first_by_name_has_a_place_and_the_next_gets_it() {
        let mut ledger: Ledger<String, u8> = Ledger::default();
        let at = |place: &str, value: u8| (place.to_owned(), value);
        assert_eq!(ledger.replace(&key("b"), [], [at("x", 2)]), [turn("x", None, Some(2))]);
        assert_eq!(ledger.replace(&key("c"), [], [at("x", 3), at("y", 3)]), [turn("y", None, Some(3))]);
        assert_eq!(ledger.replace(&key("a"), [], [at("x", 1)]), [turn("x", Some(2), Some(1))]);
        assert_eq!(ledger.replace(&key("b"), ["x".to_owned()], []), [], "nobody saw it");
        assert_eq!(ledger.replace(&key("a"), ["x".to_owned()], []), [turn("x", Some(1), Some(3))]);
        let old = ["x".to_owned(), "y".to_owned()];
        assert_eq!(ledger.replace(&key("c"), old, [at("y", 3)]), [turn("x", Some(3), None)]);
        assert_eq!(ledger.iter().collect::<Vec<_>>(), [(&"y".to_owned(), &3)]);
    }
}
