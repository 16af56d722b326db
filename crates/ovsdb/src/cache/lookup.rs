//! Finding rows by what they hold.

use std::sync::Arc;

use super::Table;
use crate::{Atom, Datum, Row, index::IndexKey};

/// Rows found, by UUID.
pub type Found<'a> = Box<dyn Iterator<Item = &'a Arc<Row>> + 'a>;

impl Table {
    /// The rows whose column has exactly this value. Uses an index on the column, else looks at every row.
    pub fn find(&self, column: &str, value: impl Into<Datum>) -> Found<'_> {
        self.find_all(&[(column, value.into())])
    }

    /// The first row whose column has exactly this value: the row of a unique index.
    pub fn find_one(&self, column: &str, value: impl Into<Datum>) -> Option<&Arc<Row>> {
        self.find(column, value).next()
    }

    /// The rows that have all these column values. Uses an index on some of these columns, else looks at
    /// every row.
    pub fn find_all<'a>(&'a self, values: &[(&str, Datum)]) -> Found<'a> {
        let mut wanted = Vec::with_capacity(values.len());
        let candidates: Found<'a> = match self.best_index(values) {
            Some((at, key)) => {
                Box::new(self.indexes[at].with_values(&key).filter_map(|uuid| self.rows.get(&uuid)))
            }
            None => Box::new(self.rows.values()),
        };
        for (column, value) in values {
            match self.schema.column_index(column) {
                Some(at) => wanted.push((at, value.clone())),
                None => return Box::new(std::iter::empty()),
            }
        }
        Box::new(candidates.filter(move |row| wanted.iter().all(|(at, value)| row.at(*at) == value)))
    }

    /// The rows whose map column holds `value` under `key`.
    pub fn find_key(&self, column: &str, key: &str, value: &str) -> Found<'_> {
        let Some(at) = self.schema.column_index(column) else {
            return Box::new(std::iter::empty());
        };
        let index = self
            .indexes
            .iter()
            .find(|i| matches!(i.key(), IndexKey::MapKey(c, k) if *c == column && *k == key));
        let candidates: Found<'_> = match index {
            Some(index) => {
                Box::new(index.with_atom(&Atom::from(value)).filter_map(|uuid| self.rows.get(&uuid)))
            }
            None => Box::new(self.rows.values()),
        };
        let (key, value) = (key.to_owned(), value.to_owned());
        Box::new(candidates.filter(move |row| row.at(at).get(&key) == Some(&value)))
    }

    /// The rows whose set column holds this element, such as the switch that holds a port.
    pub fn find_element(&self, column: &str, element: impl Into<Atom>) -> Found<'_> {
        let Some(at) = self.schema.column_index(column) else {
            return Box::new(std::iter::empty());
        };
        let element = element.into();
        let index = self.indexes.iter().find(|i| matches!(i.key(), IndexKey::Elements(c) if *c == column));
        let candidates: Found<'_> = match index {
            Some(index) => Box::new(index.with_atom(&element).filter_map(|uuid| self.rows.get(&uuid))),
            None => Box::new(self.rows.values()),
        };
        Box::new(candidates.filter(move |row| row.at(at).contains(&element)))
    }

    fn best_index<'v>(&self, values: &'v [(&str, Datum)]) -> Option<(usize, Vec<&'v Datum>)> {
        let usable = |at: usize| {
            let IndexKey::Columns(columns) = self.indexes[at].key() else {
                return None;
            };
            let key = columns
                .iter()
                .map(|c| values.iter().find(|(name, _)| c == name).map(|(_, value)| value))
                .collect::<Option<Vec<_>>>()?;
            Some((at, key))
        };
        (0..self.indexes.len()).filter_map(usable).max_by_key(|(_, key)| key.len())
    }
}
