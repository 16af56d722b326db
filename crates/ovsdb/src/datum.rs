//! Datums: the value of one column of one row.

use std::{collections::BTreeMap, fmt};

use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::{Atom, Uuid};

/// The value of a column: a set of atoms or a map between atoms.
///
/// A scalar column holds a set of exactly one, an optional column a set of none or one. Sets and maps are
/// always sorted and free of duplicates, so equal values compare equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Datum(Repr);

// A set of one is by far the most frequent value; it lives without an allocation of its own. Sets of any
// other size are `Set`, never a `Set` of one: equality relies on it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    One(Atom),
    Set(Box<[Atom]>),
    Map(Box<[(Atom, Atom)]>),
}

// === impl Datum ===

impl Datum {
    /// The empty set.
    pub fn empty() -> Datum {
        Datum(Repr::Set(Box::default()))
    }

    /// The empty map.
    pub fn empty_map() -> Datum {
        Datum(Repr::Map(Box::default()))
    }

    /// A set of one atom: the value of a scalar column.
    pub fn scalar(atom: impl Into<Atom>) -> Datum {
        Datum(Repr::One(atom.into()))
    }

    /// A set of any size; order and duplicates do not matter.
    pub fn set<A: Into<Atom>>(atoms: impl IntoIterator<Item = A>) -> Datum {
        Datum::from_atoms(atoms.into_iter().map(Into::into).collect())
    }

    /// A map; of pairs with the same key the last one counts.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Datum {
        Datum::from_pairs(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }

    pub(crate) fn from_atoms(mut atoms: Vec<Atom>) -> Datum {
        atoms.sort_unstable();
        atoms.dedup();
        if atoms.len() == 1
            && let Some(atom) = atoms.pop()
        {
            return Datum(Repr::One(atom));
        }
        Datum(Repr::Set(atoms.into_boxed_slice()))
    }

    pub(crate) fn from_pairs(mut pairs: Vec<(Atom, Atom)>) -> Datum {
        pairs.reverse();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, kept| later.0 == kept.0);
        Datum(Repr::Map(pairs.into_boxed_slice()))
    }

    /// Whether this is a map (also an empty one).
    pub fn is_map(&self) -> bool {
        matches!(self.0, Repr::Map(_))
    }

    /// The atoms of a set, sorted; nothing for a map.
    pub fn atoms(&self) -> &[Atom] {
        match &self.0 {
            Repr::One(atom) => std::slice::from_ref(atom),
            Repr::Set(atoms) => atoms,
            Repr::Map(_) => &[],
        }
    }

    /// The pairs of a map, sorted by key; nothing for a set.
    pub fn pairs(&self) -> &[(Atom, Atom)] {
        match &self.0 {
            Repr::Map(pairs) => pairs,
            _ => &[],
        }
    }

    /// How many atoms or pairs it holds.
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::One(_) => 1,
            Repr::Set(atoms) => atoms.len(),
            Repr::Map(pairs) => pairs.len(),
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The only atom of a set of one.
    pub fn one(&self) -> Option<&Atom> {
        match &self.0 {
            Repr::One(atom) => Some(atom),
            _ => None,
        }
    }

    /// The text, if this is exactly one string.
    pub fn as_str(&self) -> Option<&str> {
        self.one()?.as_str()
    }

    /// The number, if this is exactly one integer.
    pub fn as_int(&self) -> Option<i64> {
        self.one()?.as_int()
    }

    /// The number, if this is exactly one real.
    pub fn as_real(&self) -> Option<f64> {
        self.one()?.as_real()
    }

    /// The truth value, if this is exactly one boolean.
    pub fn as_bool(&self) -> Option<bool> {
        self.one()?.as_bool()
    }

    /// The identity, if this is exactly one UUID.
    pub fn as_uuid(&self) -> Option<Uuid> {
        self.one()?.as_uuid()
    }

    /// The strings of a set, sorted.
    pub fn strs(&self) -> impl Iterator<Item = &str> {
        self.atoms().iter().filter_map(Atom::as_str)
    }

    /// The integers of a set, sorted.
    pub fn ints(&self) -> impl Iterator<Item = i64> {
        self.atoms().iter().filter_map(Atom::as_int)
    }

    /// The UUIDs of a set, sorted.
    pub fn uuids(&self) -> impl Iterator<Item = Uuid> {
        self.atoms().iter().filter_map(Atom::as_uuid)
    }

    /// The string pairs of a map, sorted by key.
    pub fn str_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().iter().filter_map(|(k, v)| Some((k.as_str()?, v.as_str()?)))
    }

    /// The string a map holds under `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.get_atom_by_str(key)?.as_str()
    }

    /// The value a map holds under `key`, of any type.
    pub fn get_atom(&self, key: &Atom) -> Option<&Atom> {
        let pairs = self.pairs();
        pairs.binary_search_by(|(k, _)| k.cmp(key)).ok().map(|at| &pairs[at].1)
    }

    pub(crate) fn get_atom_by_str(&self, key: &str) -> Option<&Atom> {
        let pairs = self.pairs();
        let at = pairs.binary_search_by(|(k, _)| k.as_str().cmp(&Some(key))).ok()?;
        Some(&pairs[at].1)
    }

    /// Whether a set holds this atom.
    pub fn contains(&self, atom: &Atom) -> bool {
        self.atoms().binary_search(atom).is_ok()
    }

    /// Whether a set holds this string.
    pub fn contains_str(&self, text: &str) -> bool {
        self.atoms().binary_search_by(|a| a.as_str().cmp(&Some(text))).is_ok()
    }

    /// A map of strings as a standard map.
    pub fn to_str_map(&self) -> BTreeMap<String, String> {
        self.str_pairs().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }
}

impl fmt::Debug for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::One(atom) => atom.fmt(f),
            Repr::Set(atoms) => f.debug_list().entries(atoms.iter()).finish(),
            Repr::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish(),
        }
    }
}

impl Serialize for Datum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut outer = match &self.0 {
            Repr::One(atom) => return atom.serialize(serializer),
            _ => serializer.serialize_seq(Some(2))?,
        };
        match &self.0 {
            Repr::Map(pairs) => {
                outer.serialize_element("map")?;
                outer.serialize_element(&pairs)?;
            }
            _ => {
                outer.serialize_element("set")?;
                outer.serialize_element(self.atoms())?;
            }
        }
        outer.end()
    }
}

impl<A: Into<Atom>> From<A> for Datum {
    fn from(atom: A) -> Datum {
        Datum::scalar(atom)
    }
}

impl From<&Datum> for Datum {
    fn from(datum: &Datum) -> Datum {
        datum.clone()
    }
}

impl<A: Into<Atom>> From<Option<A>> for Datum {
    fn from(atom: Option<A>) -> Datum {
        Datum::set(atom)
    }
}

impl<A: Into<Atom>> FromIterator<A> for Datum {
    fn from_iter<I: IntoIterator<Item = A>>(atoms: I) -> Datum {
        Datum::set(atoms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_and_maps_are_canonical() {
        assert_eq!(Datum::set(["b", "a", "b"]), Datum::set(["a", "b"]));
        assert_eq!(Datum::set(["a"]), Datum::from("a"));
        assert_eq!(Datum::set(["a", "a"]), Datum::scalar("a"));
        assert_eq!(Datum::from(None::<i64>), Datum::empty());
        assert_ne!(Datum::empty(), Datum::empty_map());
        let map = Datum::map([("k", "1"), ("a", "2"), ("k", "3")]);
        assert_eq!(map.get("k"), Some("3"));
        assert_eq!(map.get("b"), None);
        assert_eq!(map.len(), 2);
        assert!(Datum::set(["x", "y"]).contains_str("y"));
    }

    #[test]
    fn wire_form() {
        let text = |d: &Datum| serde_json::to_string(d).unwrap();
        assert_eq!(text(&Datum::from("a")), r#""a""#);
        assert_eq!(text(&Datum::empty()), r#"["set",[]]"#);
        assert_eq!(text(&Datum::set([2i64, 1])), r#"["set",[1,2]]"#);
        assert_eq!(text(&Datum::map([("a", "b")])), r#"["map",[["a","b"]]]"#);
        assert_eq!(text(&Datum::empty_map()), r#"["map",[]]"#);
        assert_eq!(text(&Datum::from(Uuid::NIL)), r#"["uuid","00000000-0000-0000-0000-000000000000"]"#);
    }

    #[test]
    fn small_in_memory() {
        assert_eq!(size_of::<Atom>(), 24);
        assert_eq!(size_of::<Datum>(), 24);
    }
}
