//! Operations of a transaction (RFC 7047, section 5.2).

use std::borrow::Cow;

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{Datum, Uuid};

/// The name of a table or a column.
pub type Name = Cow<'static, str>;

/// Columns with the values they shall have.
pub type Columns = Vec<(Name, Datum)>;

/// One operation of a transaction. All take effect together or none does.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// Inserts a row under an identity chosen here. Repeating it after an unknown outcome cannot make a
    /// second row: the server refuses the identity a second time. Take [`Uuid::v5`] or a random one; the
    /// server's hash tables look at the first four bytes alone, so counting up makes it very slow.
    Insert {
        /// Where to.
        table: Name,
        /// The new row's identity.
        uuid: Uuid,
        /// Its columns; absent ones get their default.
        row: Columns,
    },
    /// Inserts a row whose identity the server chooses, and which [`crate::Atom::Named`] in the same
    /// transaction refers to.
    InsertNamed {
        /// Where to.
        table: Name,
        /// The name within this transaction.
        name: String,
        /// Its columns; absent ones get their default.
        row: Columns,
    },
    /// Sets columns of rows.
    Update {
        /// The table.
        table: Name,
        /// Which rows.
        filter: Filter,
        /// The columns to set.
        row: Columns,
    },
    /// Changes columns of rows by what they hold.
    Mutate {
        /// The table.
        table: Name,
        /// Which rows.
        filter: Filter,
        /// What to do.
        mutations: Vec<Mutation>,
    },
    /// Deletes rows.
    Delete {
        /// The table.
        table: Name,
        /// Which rows.
        filter: Filter,
    },
    /// Reads rows as they are at this point of the transaction.
    Select {
        /// The table.
        table: Name,
        /// Which rows.
        filter: Filter,
        /// Which columns; none named: all.
        columns: Vec<Name>,
    },
    /// Lets the transaction fail unless the rows are, or are not, as told.
    Wait {
        /// The table.
        table: Name,
        /// Which rows.
        filter: Filter,
        /// The columns compared.
        columns: Vec<Name>,
        /// Whether they shall be equal to `rows` (or else differ).
        equal: bool,
        /// What they are compared with.
        rows: Vec<Columns>,
        /// How long the server may wait for it, in milliseconds.
        timeout_ms: u64,
    },
    /// Lets the transaction fail unless this connection holds the lock.
    Assert {
        /// The lock's name.
        lock: String,
    },
    /// A remark for the server's journal.
    Comment(String),
    /// Undoes everything before it: shows the results of a transaction without making it.
    Abort,
}

/// Which rows of a table an operation concerns.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// The row of this identity.
    Row(Uuid),
    /// The rows that meet every condition; without conditions all rows.
    All(Vec<Condition>),
}

/// A condition on one column.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The column; `_uuid` is the identity.
    pub column: Name,
    /// How it is compared.
    pub function: Function,
    /// What it is compared with.
    pub value: Datum,
}

/// How a column is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// Holds all of these elements.
    Includes,
    /// Holds none of these elements.
    Excludes,
    /// `<`, numbers only.
    Less,
    /// `<=`, numbers only.
    LessOrEqual,
    /// `>`, numbers only.
    Greater,
    /// `>=`, numbers only.
    GreaterOrEqual,
}

/// A change of one column by what it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Mutation {
    /// The column.
    pub column: Name,
    /// What to do.
    pub mutator: Mutator,
    /// With what. For deleting from a map: pairs to delete, or a set of keys.
    pub value: Datum,
}

/// What a mutation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutator {
    /// Adds elements to a set; adds pairs to a map where the key is not there yet.
    Insert,
    /// Removes elements of a set, pairs or keys of a map.
    Delete,
    /// Adds to numbers.
    Add,
    /// Subtracts from numbers.
    Subtract,
}

// === impl Op ===

impl Op {
    /// Inserts a row under a chosen identity.
    pub fn insert(table: impl Into<Name>, uuid: Uuid, row: Columns) -> Op {
        Op::Insert { table: table.into(), uuid, row }
    }

    /// Sets columns of one row, or of the rows a filter names.
    pub fn update(table: impl Into<Name>, filter: impl Into<Filter>, row: Columns) -> Op {
        Op::Update { table: table.into(), filter: filter.into(), row }
    }

    /// Changes columns of one row, or of the rows a filter names, by what they hold.
    pub fn mutate(table: impl Into<Name>, filter: impl Into<Filter>, mutations: Vec<Mutation>) -> Op {
        Op::Mutate { table: table.into(), filter: filter.into(), mutations }
    }

    /// Deletes one row, or the rows a filter names.
    pub fn delete(table: impl Into<Name>, filter: impl Into<Filter>) -> Op {
        Op::Delete { table: table.into(), filter: filter.into() }
    }

    /// Reads columns (none named: all) of one row, or of the rows a filter names.
    pub fn select(table: impl Into<Name>, filter: impl Into<Filter>, columns: &[&'static str]) -> Op {
        let columns = columns.iter().map(|c| Name::Borrowed(c)).collect();
        Op::Select { table: table.into(), filter: filter.into(), columns }
    }

    /// Lets the transaction fail unless this row exists.
    pub fn require_row(table: impl Into<Name>, uuid: Uuid) -> Op {
        Op::Wait {
            table: table.into(),
            filter: Filter::Row(uuid),
            columns: vec![Name::Borrowed("_uuid")],
            equal: true,
            rows: vec![vec![(Name::Borrowed("_uuid"), uuid.into())]],
            timeout_ms: 0,
        }
    }

    /// Lets the transaction fail unless this row's columns have these values.
    pub fn require_values(table: impl Into<Name>, uuid: Uuid, row: Columns) -> Op {
        Op::Wait {
            table: table.into(),
            filter: Filter::Row(uuid),
            columns: row.iter().map(|(name, _)| name.clone()).collect(),
            equal: true,
            rows: vec![row],
            timeout_ms: 0,
        }
    }

    /// Lets the transaction fail if any row meets the filter.
    pub fn require_absent(table: impl Into<Name>, filter: impl Into<Filter>) -> Op {
        Op::Wait {
            table: table.into(),
            filter: filter.into(),
            columns: vec![Name::Borrowed("_uuid")],
            equal: true,
            rows: Vec::new(),
            timeout_ms: 0,
        }
    }

    /// A remark for the server's journal.
    pub fn comment(text: impl Into<String>) -> Op {
        Op::Comment(text.into())
    }

    /// The table it concerns, if any.
    pub fn table(&self) -> Option<&str> {
        match self {
            Op::Insert { table, .. }
            | Op::InsertNamed { table, .. }
            | Op::Update { table, .. }
            | Op::Mutate { table, .. }
            | Op::Delete { table, .. }
            | Op::Select { table, .. }
            | Op::Wait { table, .. } => Some(table),
            Op::Assert { .. } | Op::Comment(_) | Op::Abort => None,
        }
    }

    /// The row it concerns, if it is one row by identity.
    pub fn row(&self) -> Option<Uuid> {
        match self {
            Op::Insert { uuid, .. } => Some(*uuid),
            Op::Update { filter, .. }
            | Op::Mutate { filter, .. }
            | Op::Delete { filter, .. }
            | Op::Select { filter, .. }
            | Op::Wait { filter, .. } => match filter {
                Filter::Row(uuid) => Some(*uuid),
                Filter::All(_) => None,
            },
            _ => None,
        }
    }
}

impl Serialize for Op {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let (op, table, filter) = match self {
            Op::Insert { table, .. } | Op::InsertNamed { table, .. } => ("insert", Some(table), None),
            Op::Update { table, filter, .. } => ("update", Some(table), Some(filter)),
            Op::Mutate { table, filter, .. } => ("mutate", Some(table), Some(filter)),
            Op::Delete { table, filter } => ("delete", Some(table), Some(filter)),
            Op::Select { table, filter, .. } => ("select", Some(table), Some(filter)),
            Op::Wait { table, filter, .. } => ("wait", Some(table), Some(filter)),
            Op::Assert { .. } => ("assert", None, None),
            Op::Comment(_) => ("comment", None, None),
            Op::Abort => ("abort", None, None),
        };
        map.serialize_entry("op", op)?;
        if let Some(table) = table {
            map.serialize_entry("table", table)?;
        }
        if let Some(filter) = filter {
            map.serialize_entry("where", filter)?;
        }
        match self {
            Op::Insert { uuid, row, .. } => {
                map.serialize_entry("uuid", uuid)?;
                map.serialize_entry("row", &Object(row))?;
            }
            Op::InsertNamed { name, row, .. } => {
                map.serialize_entry("uuid-name", name)?;
                map.serialize_entry("row", &Object(row))?;
            }
            Op::Update { row, .. } => map.serialize_entry("row", &Object(row))?,
            Op::Mutate { mutations, .. } => map.serialize_entry("mutations", mutations)?,
            Op::Select { columns, .. } if !columns.is_empty() => map.serialize_entry("columns", columns)?,
            Op::Wait { columns, equal, rows, timeout_ms, .. } => {
                map.serialize_entry("timeout", timeout_ms)?;
                map.serialize_entry("columns", columns)?;
                map.serialize_entry("until", if *equal { "==" } else { "!=" })?;
                map.serialize_entry("rows", &rows.iter().map(Object).collect::<Vec<_>>())?;
            }
            Op::Assert { lock } => map.serialize_entry("lock", lock)?,
            Op::Comment(text) => map.serialize_entry("comment", text)?,
            Op::Delete { .. } | Op::Select { .. } | Op::Abort => {}
        }
        map.end()
    }
}

struct Object<'a>(&'a Columns);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

// === impl Filter ===

impl Filter {
    /// The rows whose column has exactly this value.
    pub fn equal(column: impl Into<Name>, value: impl Into<Datum>) -> Filter {
        Filter::All(vec![Condition::new(column, Function::Equal, value)])
    }

    /// The rows whose column holds these elements, among others perhaps.
    pub fn includes(column: impl Into<Name>, value: impl Into<Datum>) -> Filter {
        Filter::All(vec![Condition::new(column, Function::Includes, value)])
    }

    /// Every row of the table.
    pub fn every() -> Filter {
        Filter::All(Vec::new())
    }
}

impl From<Uuid> for Filter {
    fn from(uuid: Uuid) -> Filter {
        Filter::Row(uuid)
    }
}

impl From<Vec<Condition>> for Filter {
    fn from(conditions: Vec<Condition>) -> Filter {
        Filter::All(conditions)
    }
}

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Filter::Row(uuid) => [Condition::new("_uuid", Function::Equal, *uuid)].serialize(serializer),
            Filter::All(conditions) => conditions.serialize(serializer),
        }
    }
}

// === impl Condition ===

impl Condition {
    /// A condition on one column.
    pub fn new(column: impl Into<Name>, function: Function, value: impl Into<Datum>) -> Condition {
        Condition { column: column.into(), function, value: value.into() }
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let function = match self.function {
            Function::Equal => "==",
            Function::NotEqual => "!=",
            Function::Includes => "includes",
            Function::Excludes => "excludes",
            Function::Less => "<",
            Function::LessOrEqual => "<=",
            Function::Greater => ">",
            Function::GreaterOrEqual => ">=",
        };
        (&self.column, function, &self.value).serialize(serializer)
    }
}

// === impl Mutation ===

impl Mutation {
    /// Adds elements to a set, or new keys to a map.
    pub fn insert(column: impl Into<Name>, value: impl Into<Datum>) -> Mutation {
        Mutation { column: column.into(), mutator: Mutator::Insert, value: value.into() }
    }

    /// Removes elements of a set, or pairs of a map (given as pairs, or as a set of keys).
    pub fn delete(column: impl Into<Name>, value: impl Into<Datum>) -> Mutation {
        Mutation { column: column.into(), mutator: Mutator::Delete, value: value.into() }
    }

    /// Adds to a number, such as `next_cfg`.
    pub fn add(column: impl Into<Name>, value: impl Into<Datum>) -> Mutation {
        Mutation { column: column.into(), mutator: Mutator::Add, value: value.into() }
    }
}

impl Serialize for Mutation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mutator = match self.mutator {
            Mutator::Insert => "insert",
            Mutator::Delete => "delete",
            Mutator::Add => "+=",
            Mutator::Subtract => "-=",
        };
        (&self.column, mutator, &self.value).serialize(serializer)
    }
}
