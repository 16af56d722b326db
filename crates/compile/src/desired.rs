//! Rows as a feature asks for them: by name, with symbolic references, not knowing what exists already.

use std::collections::BTreeMap;
use std::fmt;

use ovsdb::Datum;

use crate::table::Table;

/// A row by table and identity (see [`crate::identity::name`]).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// The table.
    pub table: Table,
    /// What tells the row from others of the table.
    pub name: String,
}

impl RowId {
    /// The row `name` of `table`.
    pub fn new(table: Table, name: impl Into<String>) -> RowId {
        RowId { table, name: name.into() }
    }
}

impl fmt::Debug for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.table.name, self.name)
    }
}

/// What a column shall hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Exactly this.
    Exact(Datum),
    /// A map with at least these entries; other keys may be somebody else's.
    Entries(BTreeMap<String, String>),
    /// References to exactly these rows.
    Refs(Vec<RowId>),
}

/// One row that shall exist.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSpec {
    /// Which row.
    pub id: RowId,
    /// Its columns; those not named are left alone.
    pub columns: Vec<(&'static str, Value)>,
}

/// One row that shall be listed in another row's column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The row that lists.
    pub parent: RowId,
    /// In which column.
    pub column: &'static str,
    /// The row listed.
    pub child: RowId,
    /// Whether the row must not exist without being listed there.
    pub required: bool,
}

/// Everything one key wants.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Desired {
    /// Rows that shall exist.
    pub rows: Vec<RowSpec>,
    /// Where they are listed.
    pub members: Vec<Member>,
    /// Rows of others that must exist first, because these rows name them.
    pub needs: Vec<RowId>,
}

impl Desired {
    /// Asks for a row; columns are added to what is returned.
    pub fn row(&mut self, table: Table, name: impl Into<String>) -> &mut RowSpec {
        self.rows.push(RowSpec { id: RowId::new(table, name), columns: Vec::new() });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    /// Asks for `child` to be listed in `column` of `parent`.
    pub fn member(&mut self, parent: RowId, column: &'static str, child: RowId) {
        self.members.push(Member { parent, column, child, required: false });
    }

    /// Like [`Desired::member`], for a `child` that must not exist before it is listed.
    pub fn required_member(&mut self, parent: RowId, column: &'static str, child: RowId) {
        self.members.push(Member { parent, column, child, required: true });
    }
}

impl RowSpec {
    /// The column holds exactly `value`.
    pub fn set(&mut self, column: &'static str, value: impl Into<Datum>) -> &mut RowSpec {
        self.columns.push((column, Value::Exact(value.into())));
        self
    }

    /// The map column holds exactly these entries.
    pub fn map<K: Into<String>, V: Into<String>>(
        &mut self,
        column: &'static str,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> &mut RowSpec {
        let pairs = entries.into_iter().map(|(key, value)| (key.into(), value.into()));
        self.set(column, Datum::map::<String, String>(pairs))
    }

    /// The map column holds these entries besides others.
    pub fn entries<K: Into<String>, V: Into<String>>(
        &mut self,
        column: &'static str,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> &mut RowSpec {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        self.columns.push((column, Value::Entries(entries)));
        self
    }

    /// In the map column asked for exactly, `key` has this value instead.
    pub fn put_entry(&mut self, column: &'static str, key: &str, value: &str) -> &mut RowSpec {
        for (_, wanted) in self.columns.iter_mut().filter(|(name, _)| *name == column) {
            if let Value::Exact(datum) = wanted {
                let mut map = datum.to_str_map();
                map.insert(key.to_owned(), value.to_owned());
                *datum = Datum::map::<String, String>(map);
            }
        }
        self
    }

    /// The set column holds exactly these strings.
    pub fn strings<S: Into<String>>(
        &mut self,
        column: &'static str,
        items: impl IntoIterator<Item = S>,
    ) -> &mut RowSpec {
        self.set(column, Datum::set::<String>(items.into_iter().map(Into::into)))
    }

    /// The column refers to exactly these rows.
    pub fn refs(&mut self, column: &'static str, rows: impl IntoIterator<Item = RowId>) -> &mut RowSpec {
        self.columns.push((column, Value::Refs(rows.into_iter().collect())));
        self
    }
}
