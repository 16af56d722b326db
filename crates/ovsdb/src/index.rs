//! Indexes over the rows of one table.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{Atom, Datum, Name, Row, TableSchema, Uuid};

/// An index to keep beside those the schema declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSpec {
    /// The table.
    pub table: Name,
    /// What its rows are found by.
    pub key: IndexKey,
}

/// What rows are found by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexKey {
    /// The values of these columns together.
    Columns(Vec<Name>),
    /// The value that a map column holds under one key; rows without the key are not in the index.
    MapKey(Name, Name),
    /// Each element of a set column: finds the rows whose set holds an element.
    Elements(Name),
}

/// One index: hashes of keys with the rows that have them. A lookup checks the rows themselves, so an
/// index costs the same 24 bytes a row whatever the key.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    key: IndexKey,
    positions: Vec<usize>,
    entries: BTreeSet<(u64, Uuid)>,
}

// === impl IndexSpec ===

impl IndexSpec {
    /// By the value of one column.
    pub fn column(table: impl Into<Name>, column: impl Into<Name>) -> IndexSpec {
        IndexSpec { table: table.into(), key: IndexKey::Columns(vec![column.into()]) }
    }

    /// By the value under one key of a map column, such as `external_ids:iface-id`.
    pub fn map_key(table: impl Into<Name>, column: impl Into<Name>, key: impl Into<Name>) -> IndexSpec {
        IndexSpec { table: table.into(), key: IndexKey::MapKey(column.into(), key.into()) }
    }

    /// By each element of a set column, such as the ports of a switch.
    pub fn elements(table: impl Into<Name>, column: impl Into<Name>) -> IndexSpec {
        IndexSpec { table: table.into(), key: IndexKey::Elements(column.into()) }
    }
}

// === impl IndexKey ===

impl IndexKey {
    pub(crate) fn columns<'a>(names: impl Iterator<Item = &'a str>) -> IndexKey {
        IndexKey::Columns(names.map(|name| Name::Owned(name.to_owned())).collect())
    }
}

// === impl Index ===

impl Index {
    /// An empty index; none when the table lacks one of the columns.
    pub(crate) fn new(schema: &TableSchema, key: IndexKey) -> Option<Index> {
        let positions = match &key {
            IndexKey::Columns(columns) => {
                columns.iter().map(|c| schema.column_index(c)).collect::<Option<Vec<_>>>()?
            }
            IndexKey::MapKey(column, _) | IndexKey::Elements(column) => vec![schema.column_index(column)?],
        };
        Some(Index { key, positions, entries: BTreeSet::new() })
    }

    pub(crate) fn key(&self) -> &IndexKey {
        &self.key
    }

    pub(crate) fn insert(&mut self, row: &Row) {
        let uuid = row.uuid();
        let entries = &mut self.entries;
        each_hash(&self.key, &self.positions, row, |hash| {
            entries.insert((hash, uuid));
        });
    }

    pub(crate) fn remove(&mut self, row: &Row) {
        let uuid = row.uuid();
        let entries = &mut self.entries;
        each_hash(&self.key, &self.positions, row, |hash| {
            entries.remove(&(hash, uuid));
        });
    }

    /// Rows that may have these column values.
    pub(crate) fn with_values<'a>(&'a self, values: &[&Datum]) -> impl Iterator<Item = Uuid> + use<'a> {
        self.candidates(hash_of(values.iter().copied()))
    }

    /// Rows that may have this element or value under the key.
    pub(crate) fn with_atom<'a>(&'a self, atom: &Atom) -> impl Iterator<Item = Uuid> + use<'a> {
        self.candidates(hash_of([atom]))
    }

    fn candidates<'a>(&'a self, hash: u64) -> impl Iterator<Item = Uuid> + use<'a> {
        self.entries.range((hash, Uuid::NIL)..=(hash, Uuid::MAX)).map(|(_, uuid)| *uuid)
    }
}

fn each_hash(key: &IndexKey, positions: &[usize], row: &Row, mut each: impl FnMut(u64)) {
    match key {
        IndexKey::Columns(_) => each(hash_of(positions.iter().map(|at| row.at(*at)))),
        IndexKey::MapKey(_, key) => {
            for at in positions {
                if let Some(value) = row.at(*at).get_atom_by_str(key) {
                    each(hash_of([value]));
                }
            }
        }
        IndexKey::Elements(_) => {
            for atom in positions.iter().flat_map(|at| row.at(*at).atoms()) {
                each(hash_of([atom]));
            }
        }
    }
}

/// The same in every process, so that nothing depends on a random seed.
fn hash_of<'a, T: Hash + 'a>(values: impl IntoIterator<Item = &'a T>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for value in values {
        value.hash(&mut hasher);
    }
    hasher.finish()
}
