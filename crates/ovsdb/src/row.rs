//! Rows of the cache.

use std::{fmt, sync::Arc};

use crate::{ColumnSchema, Datum, TableSchema, Uuid};

/// One row as the database holds it. Immutable: a change makes a new row that shares the unchanged text.
///
/// Only columns that differ from their default take memory; most columns of most rows do not.
#[derive(Clone)]
pub struct Row {
    schema: Arc<TableSchema>,
    uuid: Uuid,
    // Sorted by column position; never holds a default value, so equal rows have equal cells.
    cells: Box<[(u16, Datum)]>,
}

// === impl Row ===

impl Row {
    /// A row with these columns; columns the table lacks are left out, absent ones hold their default.
    pub fn new<N: AsRef<str>>(
        schema: &Arc<TableSchema>,
        uuid: Uuid,
        columns: impl IntoIterator<Item = (N, Datum)>,
    ) -> Row {
        let cells = columns
            .into_iter()
            .filter_map(|(name, value)| {
                let at = schema.column_index(name.as_ref())?;
                Some((u16::try_from(at).ok()?, value))
            })
            .collect();
        Row::from_cells(schema.clone(), uuid, cells)
    }

    pub(crate) fn from_cells(schema: Arc<TableSchema>, uuid: Uuid, mut cells: Vec<(u16, Datum)>) -> Row {
        cells.retain(|(at, value)| {
            schema.columns().get(usize::from(*at)).is_some_and(|column| column.default != *value)
        });
        cells.sort_by_key(|(at, _)| *at);
        cells.dedup_by_key(|(at, _)| *at);
        Row { schema, uuid, cells: cells.into_boxed_slice() }
    }

    /// The row's identity.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The table it belongs to, reduced to the monitored columns.
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.schema.name
    }

    /// The value of a column. Absent when the server has no such column or it is not monitored.
    pub fn get(&self, column: &str) -> Option<&Datum> {
        self.schema.column_index(column).map(|at| self.at(at))
    }

    /// The text of a string column.
    pub fn str(&self, column: &str) -> Option<&str> {
        self.get(column)?.as_str()
    }

    /// The number of an integer column.
    pub fn int(&self, column: &str) -> Option<i64> {
        self.get(column)?.as_int()
    }

    /// The truth value of a boolean column; absent also for an empty optional one.
    pub fn bool(&self, column: &str) -> Option<bool> {
        self.get(column)?.as_bool()
    }

    /// The string that a map column holds under `key`.
    pub fn key(&self, column: &str, key: &str) -> Option<&str> {
        self.get(column)?.get(key)
    }

    /// Every monitored column with its value, by name.
    pub fn columns(&self) -> impl Iterator<Item = (&ColumnSchema, &Datum)> {
        self.schema.columns().iter().enumerate().map(|(at, column)| (column, self.at(at)))
    }

    /// The value at a position of [`TableSchema::columns`]; the position must come from this row's schema.
    pub(crate) fn at(&self, at: usize) -> &Datum {
        match self.cells.binary_search_by_key(&at, |(position, _)| usize::from(*position)) {
            Ok(cell) => &self.cells[cell].1,
            Err(_) => &self.schema.columns()[at].default,
        }
    }

    /// This row with some cells replaced.
    pub(crate) fn with(&self, changed: impl IntoIterator<Item = (u16, Datum)>) -> Row {
        let mut cells: Vec<_> = changed.into_iter().collect();
        // Stable sorting and keeping the first of a position makes the changed cell win.
        cells.extend(self.cells.iter().cloned());
        cells.sort_by_key(|(at, _)| *at);
        cells.dedup_by_key(|(at, _)| *at);
        Row::from_cells(self.schema.clone(), self.uuid, cells)
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.uuid == other.uuid
            && if Arc::ptr_eq(&self.schema, &other.schema) || self.schema == other.schema {
                self.cells == other.cells
            } else {
                self.schema.name == other.schema.name
                    && self.schema.columns().len() == other.schema.columns().len()
                    && self.columns().zip(other.columns()).all(|(a, b)| a.0.name == b.0.name && a.1 == b.1)
            }
    }
}

impl Eq for Row {}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.schema.name, self.uuid)?;
        f.debug_map()
            .entries(
                self.cells.iter().map(|(at, value)| (&*self.schema.columns()[usize::from(*at)].name, value)),
            )
            .finish()
    }
}
