//! Updates: what a monitor reports, and what it did to the cache.

use std::{fmt, sync::Arc};

use crate::{Datum, Row, Schema, TableSchema, Uuid};

/// What one message of a monitor changes. Applied with [`crate::Cache::apply`].
#[derive(Clone)]
pub struct Update {
    pub(crate) schema: Arc<Schema>,
    pub(crate) rows: Vec<RowUpdate>,
}

/// What happens to one row.
#[derive(Clone, Debug)]
pub(crate) struct RowUpdate {
    pub(crate) table: u16,
    pub(crate) uuid: Uuid,
    pub(crate) change: Change,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The whole row, new or in place of what was there.
    Whole(Arc<Row>),
    /// Cells of a known row; composite ones as differences.
    Modify(Vec<(u16, Datum)>),
    /// Gone.
    Delete,
}

/// One row's change in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    /// The table.
    pub table: Arc<TableSchema>,
    /// The row.
    pub uuid: Uuid,
    /// What it was; absent for a new row.
    pub old: Option<Arc<Row>>,
    /// What it is; absent for a deleted row.
    pub new: Option<Arc<Row>>,
}

// === impl Update ===

impl Update {
    /// An update that changes nothing.
    pub fn empty(schema: Arc<Schema>) -> Update {
        Update { schema, rows: Vec::new() }
    }

    /// Adds a whole row, new or replacing the one of the same identity.
    pub fn put(&mut self, row: Row) {
        if let Some(table) = self.schema.table_index(row.table()) {
            let uuid = row.uuid();
            self.rows.push(RowUpdate { table: table as u16, uuid, change: Change::Whole(Arc::new(row)) });
        }
    }

    /// Adds the deletion of a row.
    pub fn remove(&mut self, table: &str, uuid: Uuid) {
        if let Some(table) = self.schema.table_index(table) {
            self.rows.push(RowUpdate { table: table as u16, uuid, change: Change::Delete });
        }
    }

    /// The layout of its rows.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// How many rows it touches.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it touches no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Debug for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |row: &RowUpdate| self.schema.tables().get(usize::from(row.table)).map(|t| t.name.clone());
        f.debug_list()
            .entries(self.rows.iter().map(|row| (name(row).unwrap_or_default(), row.uuid, &row.change)))
            .finish()
    }
}

// === impl RowChange ===

impl RowChange {
    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table.name
    }

    /// Whether the row is new.
    pub fn is_insert(&self) -> bool {
        self.old.is_none() && self.new.is_some()
    }

    /// Whether the row is gone.
    pub fn is_delete(&self) -> bool {
        self.new.is_none()
    }

    /// Whether a column's value differs between old and new; a row that came or went differs in all.
    pub fn changed(&self, column: &str) -> bool {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => old.get(column) != new.get(column),
            _ => true,
        }
    }
}
