//! Which rules name which address sets. A set must outlive the rules that name it: northd and ovn-controller would
//! drop a whole rule over a name they cannot resolve.

use std::collections::{BTreeSet, HashMap};

use compile::{RowId, table};
use ovsdb::{RowChange, Uuid};

/// Rules by the names of the address sets in their matches.
#[derive(Debug, Default)]
pub(super) struct Mentions(HashMap<Box<str>, BTreeSet<Uuid>>);

impl Mentions {
    /// A rule changed. Names that no rule has any more come back as [`unmentioned`] rows.
    pub(super) fn change(&mut self, change: &RowChange) -> Vec<RowId> {
        let text = |row: &Option<std::sync::Arc<ovsdb::Row>>| {
            row.as_ref().and_then(|row| row.str("match")).unwrap_or_default().to_owned()
        };
        let (old, new) = (text(&change.old), text(&change.new));
        if old == new {
            return Vec::new();
        }
        for name in names(&new) {
            self.0.entry(name.into()).or_default().insert(change.uuid);
        }
        let kept: BTreeSet<&str> = names(&new).collect();
        let mut free = Vec::new();
        for name in names(&old).filter(|name| !kept.contains(name)) {
            let Some(rules) = self.0.get_mut(name) else { continue };
            rules.remove(&change.uuid);
            if rules.is_empty() {
                self.0.remove(name);
                free.push(unmentioned(name));
            }
        }
        free
    }

    /// The rules that name a set.
    pub(super) fn of(&self, name: &str) -> impl Iterator<Item = &Uuid> {
        self.0.get(name).into_iter().flatten()
    }
}

/// What a key waits for whose set is still named by a rule.
pub(super) fn unmentioned(name: &str) -> RowId {
    RowId::new(table::ADDRESS_SET, format!("unmentioned {name}"))
}

/// Names of address sets in a match.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_found_in_every_form() {
        let text = "ip4.src == {$a1, $a22} && tcp && (tcp.dst==1 && ip4.dst == $a3) && outport == @a4";
        assert_eq!(super::names(text).collect::<Vec<_>>(), ["a1", "a22", "a3"]);
        assert_eq!(super::names("ip4 && outport == @a4").count(), 0);
    }
}
