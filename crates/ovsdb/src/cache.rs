//! The cache: a copy of the monitored part of a database.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Datum, Row, RowChange, Schema, TableSchema, Update, Uuid,
    index::{Index, IndexKey, IndexSpec},
    update::{Change, RowUpdate},
};

mod lookup;

pub use lookup::Found;

/// The rows of all monitored tables. Its owner applies updates in the order they arrive.
///
/// Invariant: after every [`Cache::apply`] the indexes hold exactly the rows of the tables.
#[derive(Debug, Clone)]
pub struct Cache {
    schema: Arc<Schema>,
    specs: Vec<IndexSpec>,
    tables: Vec<Table>,
    inconsistencies: u64,
}

/// The rows of one table, iterated by UUID.
#[derive(Debug, Clone)]
pub struct Table {
    schema: Arc<TableSchema>,
    rows: BTreeMap<Uuid, Arc<Row>>,
    indexes: Vec<Index>,
}

// === impl Cache ===

impl Cache {
    /// An empty cache for the rows of `schema`; what the schema declares unique is indexed.
    pub fn new(schema: Arc<Schema>) -> Cache {
        Cache::with_indexes(schema, Vec::new())
    }

    /// An empty cache with more indexes than the schema's own.
    pub fn with_indexes(schema: Arc<Schema>, specs: Vec<IndexSpec>) -> Cache {
        let tables = schema.tables().iter().map(|table| Table::new(table, &specs)).collect();
        Cache { schema, specs, tables, inconsistencies: 0 }
    }

    /// The layout of its rows.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The table of this name; absent when the server has none or it is not monitored.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.schema.table_index(name).map(|at| &self.tables[at])
    }

    /// The row of this identity in this table.
    pub fn row(&self, table: &str, uuid: &Uuid) -> Option<&Arc<Row>> {
        self.table(table)?.get(uuid)
    }

    /// The rows of a table; none when the server has no such table.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = &Arc<Row>> {
        self.table(table).into_iter().flat_map(Table::iter)
    }

    /// All tables, sorted by name.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter()
    }

    /// How many updates named a row that was not there. Anything but zero means that this copy is wrong
    /// and must be loaded anew.
    pub fn inconsistencies(&self) -> u64 {
        self.inconsistencies
    }

    /// Applies what a monitor reported and tells what it changed.
    pub fn apply(&mut self, update: &Update) -> Vec<RowChange> {
        if !Arc::ptr_eq(&self.schema, &update.schema) && self.schema != update.schema {
            self.inconsistencies += 1;
            return Vec::new();
        }
        update.rows.iter().filter_map(|row| self.apply_row(row)).collect()
    }

    /// Replaces the whole content by `update`, also its layout, and tells the differences to what was there.
    pub fn reset(&mut self, update: &Update) -> Vec<RowChange> {
        let mut fresh = Cache::with_indexes(update.schema.clone(), self.specs.clone());
        for row in &update.rows {
            fresh.apply_row(row);
        }
        let old = std::mem::replace(self, fresh);
        let mut changes = Vec::new();
        for table in &old.tables {
            for (uuid, row) in table.rows.iter().filter(|(u, _)| self.row(&table.schema.name, u).is_none()) {
                let (table, old) = (table.schema.clone(), Some(row.clone()));
                changes.push(RowChange { table, uuid: *uuid, old, new: None });
            }
        }
        for table in &self.tables {
            for (uuid, row) in &table.rows {
                let old = old.row(&table.schema.name, uuid).cloned();
                if old.as_ref() != Some(row) {
                    let (table, new) = (table.schema.clone(), Some(row.clone()));
                    changes.push(RowChange { table, uuid: *uuid, old, new });
                }
            }
        }
        changes
    }

    fn apply_row(&mut self, update: &RowUpdate) -> Option<RowChange> {
        let table = self.tables.get_mut(usize::from(update.table))?;
        let old = table.rows.get(&update.uuid).cloned();
        let new = match (&update.change, &old) {
            (Change::Whole(row), _) => Some(row.clone()),
            (Change::Modify(cells), Some(old)) => Some(Arc::new(modified(old, cells))),
            (Change::Delete, Some(_)) => None,
            (Change::Modify(_) | Change::Delete, None) => {
                self.inconsistencies += 1;
                return None;
            }
        };
        if old == new {
            return None;
        }
        table.put(update.uuid, old.as_deref(), new.clone());
        Some(RowChange { table: table.schema.clone(), uuid: update.uuid, old, new })
    }
}

/// Applies a difference: the new value of a scalar column, the symmetric difference of a composite one.
fn modified(old: &Row, cells: &[(u16, Datum)]) -> Row {
    let columns = old.schema().columns();
    old.with(cells.iter().filter_map(|(at, difference)| {
        let column = columns.get(usize::from(*at))?;
        let value = if column.kind.is_composite() {
            crate::diff::toggle(old.at(usize::from(*at)), difference)
        } else {
            difference.clone()
        };
        Some((*at, value))
    }))
}

// === impl Table ===

impl Table {
    fn new(schema: &Arc<TableSchema>, specs: &[IndexSpec]) -> Table {
        let declared = schema.indexes.iter().map(|columns| IndexKey::columns(columns.iter().map(|c| &**c)));
        let wanted = specs.iter().filter(|spec| spec.table == *schema.name).map(|spec| spec.key.clone());
        let indexes = declared.chain(wanted).filter_map(|key| Index::new(schema, key)).collect();
        Table { schema: schema.clone(), rows: BTreeMap::new(), indexes }
    }

    /// The table's name, columns and declared indexes.
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows, by UUID.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Row>> {
        self.rows.values()
    }

    /// The row of this identity.
    pub fn get(&self, uuid: &Uuid) -> Option<&Arc<Row>> {
        self.rows.get(uuid)
    }

    fn put(&mut self, uuid: Uuid, old: Option<&Row>, new: Option<Arc<Row>>) {
        for index in &mut self.indexes {
            if let Some(old) = old {
                index.remove(old);
            }
            if let Some(new) = &new {
                index.insert(new);
            }
        }
        match new {
            Some(new) => self.rows.insert(uuid, new),
            None => self.rows.remove(&uuid),
        };
    }
}
