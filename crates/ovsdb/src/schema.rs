//! Database schemas (RFC 7047, section 3.2): what tables and columns a server has.

use std::{collections::BTreeMap, sync::Arc};

use crate::{Atom, ColumnValues, Datum, Real, Uuid};

mod parse;

/// The tables of one database, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// The database's name, such as `OVN_Northbound`.
    pub name: Arc<str>,
    /// Its version, `x.y.z`.
    pub version: Arc<str>,
    tables: Vec<Arc<TableSchema>>,
}

/// The columns of one table, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSchema {
    /// The table's name.
    pub name: Arc<str>,
    /// Rows live by themselves; rows of other tables are removed when nothing refers to them.
    pub is_root: bool,
    /// Sets of columns whose values no two rows share.
    pub indexes: Vec<Vec<Arc<str>>>,
    /// How many rows it may have at most.
    pub max_rows: Option<u64>,
    columns: Vec<ColumnSchema>,
}

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSchema {
    /// The column's name.
    pub name: Arc<str>,
    /// What it holds.
    pub kind: ColumnType,
    /// Whether it may change after the insert.
    pub mutable: bool,
    /// Whether it is lost when the server restarts.
    pub ephemeral: bool,
    /// What a row holds that was inserted without this column.
    pub default: Datum,
}

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnType {
    /// The type of its atoms, or of a map's keys.
    pub key: BaseType,
    /// The type of a map's values; absent for sets.
    pub value: Option<BaseType>,
    /// How many atoms or pairs it has at least: 0 or 1.
    pub min: usize,
    /// How many it has at most; absent when unlimited.
    pub max: Option<usize>,
}

/// The type of one atom and what it may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseType {
    /// The kind of atom.
    pub kind: AtomKind,
    /// The only values allowed, if they are listed.
    pub one_of: Vec<Atom>,
    /// For UUIDs: the table whose rows it names.
    pub ref_table: Option<Arc<str>>,
    /// For references: the row named must exist and lives as long as it is named.
    pub strong: bool,
}

/// The kinds of atoms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomKind {
    /// 64-bit signed integer.
    Integer,
    /// Floating-point number.
    Real,
    /// Boolean.
    Boolean,
    /// String.
    String,
    /// UUID.
    Uuid,
}

/// A schema that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The text is not a schema in the form of RFC 7047.
    #[error("malformed database schema: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A column's type is not one RFC 7047 knows.
    #[error("malformed database schema: column {column} of table {table}: {reason}")]
    Column {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Which tables and columns a server has; decides which features can be used on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    columns: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    version: Arc<str>,
}

/// The columns of a table to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Columns {
    /// All the server has.
    All,
    /// These, as far as the server has them.
    Only(Vec<&'static str>),
}

/// The tables and columns to follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MonitorSpec {
    /// Tables by name; tables the server lacks are left out. Empty: follow nothing.
    pub tables: Vec<(&'static str, Columns)>,
    all: bool,
}

// === impl Schema ===

impl Schema {
    /// Reads a schema in the JSON form of RFC 7047.
    pub fn parse(json: &[u8]) -> Result<Schema, SchemaError> {
        parse::schema(json)
    }

    /// A schema without tables: what is known of a database before the first connection.
    pub fn empty(name: &str) -> Schema {
        Schema { name: name.into(), version: "".into(), tables: Vec::new() }
    }

    pub(crate) fn from_value(json: serde_json::Value) -> Result<Schema, SchemaError> {
        parse::schema_value(json)
    }

    /// The tables, sorted by name.
    pub fn tables(&self) -> &[Arc<TableSchema>] {
        &self.tables
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Option<&Arc<TableSchema>> {
        self.table_index(name).map(|at| &self.tables[at])
    }

    pub(crate) fn table_index(&self, name: &str) -> Option<usize> {
        self.tables.binary_search_by(|t| (*t.name).cmp(name)).ok()
    }

    /// What this schema offers.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            columns: self
                .tables
                .iter()
                .map(|t| (t.name.clone(), t.columns.iter().map(|c| c.name.clone()).collect()))
                .collect(),
            version: self.version.clone(),
        }
    }

    /// This schema reduced to what `spec` follows: the layout of the rows a monitor reports.
    pub fn monitored(&self, spec: &MonitorSpec) -> Schema {
        let tables = if spec.all {
            self.tables.clone()
        } else {
            self.tables
                .iter()
                .filter_map(|table| {
                    let (_, columns) = spec.tables.iter().find(|(name, _)| *name == &*table.name)?;
                    Some(match columns {
                        Columns::All => table.clone(),
                        Columns::Only(names) => Arc::new(TableSchema {
                            columns: table
                                .columns
                                .iter()
                                .filter(|c| names.contains(&&*c.name))
                                .cloned()
                                .collect(),
                            ..(**table).clone()
                        }),
                    })
                })
                .collect()
        };
        Schema { name: self.name.clone(), version: self.version.clone(), tables }
    }
}

// === impl TableSchema ===

impl TableSchema {
    /// The columns, sorted by name.
    pub fn columns(&self) -> &[ColumnSchema] {
        &self.columns
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&ColumnSchema> {
        self.column_index(name).map(|at| &self.columns[at])
    }

    /// The position of a column in [`TableSchema::columns`].
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.binary_search_by(|c| (*c.name).cmp(name)).ok()
    }
}

// === impl ColumnType ===

impl ColumnType {
    /// Whether it holds a map.
    pub fn is_map(&self) -> bool {
        self.value.is_some()
    }

    /// Whether it holds exactly one atom.
    pub fn is_scalar(&self) -> bool {
        self.value.is_none() && self.min == 1 && self.max == Some(1)
    }

    /// Whether it holds one atom or none.
    pub fn is_optional(&self) -> bool {
        self.value.is_none() && self.min == 0 && self.max == Some(1)
    }

    /// Whether a change is told as a difference: more than one element can be there.
    pub(crate) fn is_composite(&self) -> bool {
        self.max != Some(1)
    }

    fn default(&self) -> Datum {
        match (&self.value, self.min) {
            (None, 0) => Datum::empty(),
            (None, _) => Datum::scalar(self.key.default()),
            (Some(_), 0) => Datum::empty_map(),
            (Some(value), _) => Datum::map([(self.key.default(), value.default())]),
        }
    }
}

// === impl BaseType ===

impl BaseType {
    fn default(&self) -> Atom {
        match self.kind {
            AtomKind::Integer => Atom::Int(0),
            AtomKind::Real => Atom::Real(Real::new(0.0)),
            AtomKind::Boolean => Atom::Bool(false),
            AtomKind::String => Atom::from(""),
            AtomKind::Uuid => Atom::Uuid(Uuid::NIL),
        }
    }
}

// === impl Capabilities ===

impl Capabilities {
    /// Whether the server has this column of this table.
    pub fn has(&self, table: &str, column: &str) -> bool {
        self.columns.get(table).is_some_and(|columns| columns.iter().any(|c| &**c == column))
    }

    /// Whether the server has this table.
    pub fn has_table(&self, table: &str) -> bool {
        self.columns.contains_key(table)
    }

    /// Those of these columns that the server has.
    pub fn known(&self, table: &str, mut columns: ColumnValues) -> ColumnValues {
        columns.retain(|(name, _)| self.has(table, name));
        columns
    }

    /// The schema's version, `x.y.z`.
    pub fn version(&self) -> &str {
        &self.version
    }
}

// === impl MonitorSpec ===

impl MonitorSpec {
    /// Follows nothing; only transactions.
    pub fn none() -> MonitorSpec {
        MonitorSpec::default()
    }

    /// Follows every table and column the server has.
    pub fn all() -> MonitorSpec {
        MonitorSpec { tables: Vec::new(), all: true }
    }

    /// Adds a table with these columns; no columns means all of them.
    pub fn table(mut self, table: &'static str, columns: &[&'static str]) -> MonitorSpec {
        let columns = if columns.is_empty() { Columns::All } else { Columns::Only(columns.to_vec()) };
        self.tables.push((table, columns));
        self
    }

    /// Whether nothing is followed.
    pub fn is_empty(&self) -> bool {
        !self.all && self.tables.is_empty()
    }
}
