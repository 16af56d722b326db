//! Which selections can hold a pod, by its namespace and labels.

use std::collections::BTreeMap;

use kapi::{LabelSelector, Operator};
use policy::Selection;

use super::selected::SelectedId;
use crate::Labels;

/// A label that every pod of some selections has.
type Anchor = (String, String);

/// The selections of one namespace.
#[derive(Debug, Default)]
struct Place {
    anchored: BTreeMap<Anchor, Vec<SelectedId>>,
    rest: Vec<SelectedId>,
}

/// Selections by namespace and a label their pods must have.
#[derive(Debug, Default)]
pub(super) struct Index {
    places: BTreeMap<String, Place>,
}

impl Index {
    /// The selection now looks into the namespace.
    pub(super) fn insert(&mut self, namespace: &str, id: SelectedId, selection: &Selection) {
        let place = self.places.entry(namespace.to_owned()).or_default();
        match anchors(selection) {
            Some(anchors) => {
                for anchor in anchors {
                    place.anchored.entry(anchor).or_default().push(id);
                }
            }
            None => place.rest.push(id),
        }
    }

    /// The selection no longer looks into the namespace.
    pub(super) fn remove(&mut self, namespace: &str, id: SelectedId, selection: &Selection) {
        let Some(place) = self.places.get_mut(namespace) else { return };
        match anchors(selection) {
            Some(anchors) => {
                for anchor in anchors {
                    if let Some(list) = place.anchored.get_mut(&anchor) {
                        list.retain(|other| *other != id);
                        if list.is_empty() {
                            place.anchored.remove(&anchor);
                        }
                    }
                }
            }
            None => place.rest.retain(|other| *other != id),
        }
        if place.anchored.is_empty() && place.rest.is_empty() {
            self.places.remove(namespace);
        }
    }

    /// The selections that may hold a pod of the namespace with these labels; each once.
    pub(super) fn candidates<'a>(
        &'a self,
        namespace: &str,
        labels: &'a Labels,
    ) -> impl Iterator<Item = SelectedId> + 'a {
        self.places.get(namespace).into_iter().flat_map(move |place| {
            let anchored = labels
                .iter()
                .filter_map(|(key, value)| place.anchored.get(&(key.clone(), value.clone())))
                .flatten();
            anchored.chain(&place.rest).copied()
        })
    }
}

/// Labels of which every pod of the selection has exactly one.
fn anchors(selection: &Selection) -> Option<Vec<Anchor>> {
    let selector: &LabelSelector = selection.pods.as_ref()?;
    if let Some((key, value)) = selector.match_labels.iter().next() {
        return Some(vec![(key.clone(), value.clone())]);
    }
    let listed = selector.match_expressions.iter().find(|one| one.operator == Operator::In)?;
    let mut values = listed.values.clone();
    values.sort();
    values.dedup();
    Some(values.into_iter().map(|value| (listed.key.clone(), value)).collect())
}
