//! An OVSDB database in memory, as strict as the server where it matters here: strong references keep rows
//! alive, dangling strong references and doubled index values fail the transaction, weak references vanish with
//! their target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ovsdb::{Atom, Datum, Filter, Mutator, Op, Rejection, Row, Schema, Update, Uuid};

type Rows = BTreeMap<(String, Uuid), BTreeMap<String, Datum>>;

#[derive(Debug, Clone)]
pub(crate) struct Database {
    pub(crate) schema: Arc<Schema>,
    rows: Rows,
    /// Operations committed so far.
    pub(crate) ops: usize,
}

impl Database {
    pub(crate) fn new(schema: Arc<Schema>) -> Database {
        Database { schema, rows: Rows::new(), ops: 0 }
    }

    /// The whole contents, as after connecting.
    pub(crate) fn dump(&self) -> Update {
        let mut update = Update::empty(self.schema.clone());
        for ((table, uuid), columns) in &self.rows {
            update.put(self.row(table, *uuid, columns));
        }
        update
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
    }

    pub(crate) fn rows(&self, table: &str) -> Vec<Row> {
        let of_table = self.rows.iter().filter(|((name, _), _)| name == table);
        of_table.map(|((name, uuid), columns)| self.row(name, *uuid, columns)).collect()
    }

    fn row(&self, table: &str, uuid: Uuid, columns: &BTreeMap<String, Datum>) -> Row {
        let schema = self.schema.table(table).expect("a table of the schema");
        Row::new(schema, uuid, columns.iter().map(|(name, value)| (name.as_str(), value.clone())))
    }

    /// Makes a transaction and returns what a monitor would report.
    pub(crate) fn transact(&mut self, ops: &[Op]) -> Result<Update, Rejection> {
        let mut rows = self.rows.clone();
        for (index, op) in ops.iter().enumerate() {
            self.apply(&mut rows, op).map_err(|(table, error, details)| Rejection {
                op_index: Some(index),
                table,
                error,
                details,
            })?;
        }
        self.settle(&mut rows)?;
        let mut update = Update::empty(self.schema.clone());
        for ((table, uuid), columns) in &rows {
            if self.rows.get(&(table.clone(), *uuid)) != Some(columns) {
                update.put(self.row(table, *uuid, columns));
            }
        }
        for (table, uuid) in self.rows.keys().filter(|key| !rows.contains_key(*key)) {
            update.remove(table, *uuid);
        }
        self.rows = rows;
        self.ops += ops.len();
        Ok(update)
    }

    fn apply(&self, rows: &mut Rows, op: &Op) -> Result<(), (String, String, String)> {
        let fail = |table: &str, error: &str, details: String| (table.to_owned(), error.to_owned(), details);
        match op {
            Op::Insert { table, uuid, row } => {
                let schema = self
                    .schema
                    .table(table)
                    .ok_or_else(|| fail(table, "syntax error", "no such table".into()))?;
                if rows.keys().any(|(_, known)| known == uuid) {
                    return Err(fail(table, "duplicate uuid", uuid.to_string()));
                }
                let mut columns: BTreeMap<String, Datum> = schema
                    .columns()
                    .iter()
                    .map(|column| (column.name.to_string(), column.default.clone()))
                    .collect();
                for (name, value) in row {
                    if columns.insert(name.to_string(), value.clone()).is_none() {
                        return Err(fail(table, "unknown column", name.to_string()));
                    }
                }
                rows.insert((table.to_string(), *uuid), columns);
            }
            Op::Update { table, filter, row } => {
                for columns in selected(rows, table, filter) {
                    for (name, value) in row {
                        columns.insert(name.to_string(), value.clone());
                    }
                }
            }
            Op::Mutate { table, filter, mutations } => {
                for columns in selected(rows, table, filter) {
                    for mutation in mutations {
                        let old = columns.get(mutation.column.as_ref()).cloned().unwrap_or_else(Datum::empty);
                        let new = mutated(&old, mutation.mutator, &mutation.value);
                        columns.insert(mutation.column.to_string(), new);
                    }
                }
            }
            Op::Delete { table, filter } => {
                let Filter::Row(uuid) = filter else { panic!("only deletes by UUID are made") };
                rows.remove(&(table.to_string(), *uuid));
            }
            other => panic!("unexpected operation {other:?}"),
        }
        Ok(())
    }

    /// Collects unreferenced rows, drops weak references to what is gone, checks references and indexes.
    fn settle(&self, rows: &mut Rows) -> Result<(), Rejection> {
        let refuse = |table: &str, error: &str, details: String| Rejection {
            op_index: None,
            table: table.to_owned(),
            error: error.to_owned(),
            details,
        };
        loop {
            let mut referenced = BTreeSet::new();
            for ((table, _), columns) in rows.iter() {
                for (name, value) in columns {
                    if self.reference(table, name).is_some_and(|(_, strong)| strong) {
                        referenced.extend(value.uuids());
                    }
                }
            }
            let before = rows.len();
            rows.retain(|(table, uuid), _| {
                self.schema.table(table).is_some_and(|schema| schema.is_root) || referenced.contains(uuid)
            });
            if rows.len() == before {
                break;
            }
        }
        let present: BTreeSet<(String, Uuid)> = rows.keys().cloned().collect();
        for ((table, uuid), columns) in rows.iter_mut() {
            for (name, value) in columns.iter_mut() {
                let Some((target, strong)) = self.reference(table, name) else { continue };
                let exists = |uuid: &Uuid| present.contains(&(target.clone(), *uuid));
                if value.uuids().all(|uuid| exists(&uuid)) {
                    continue;
                }
                if strong {
                    return Err(refuse(
                        table,
                        "referential integrity violation",
                        format!("{uuid} {name} -> {target}"),
                    ));
                }
                *value = Datum::set::<Uuid>(value.uuids().filter(exists).collect::<Vec<_>>());
            }
        }
        for schema in self.schema.tables() {
            for index in &schema.indexes {
                let mut seen = BTreeSet::new();
                for ((_, uuid), columns) in rows.iter().filter(|((table, _), _)| **table == *schema.name) {
                    let key: Vec<&Datum> = index.iter().filter_map(|column| columns.get(&**column)).collect();
                    if !seen.insert(format!("{key:?}")) {
                        return Err(refuse(
                            &schema.name,
                            "constraint violation",
                            format!("{uuid} doubles {key:?}"),
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn reference(&self, table: &str, column: &str) -> Option<(String, bool)> {
        let kind = &self.schema.table(table)?.column(column)?.kind;
        let base = [Some(&kind.key), kind.value.as_ref()]
            .into_iter()
            .flatten()
            .find(|base| base.ref_table.is_some())?;
        Some((base.ref_table.as_ref()?.to_string(), base.strong))
    }
}

fn selected<'a>(
    rows: &'a mut Rows,
    table: &str,
    filter: &Filter,
) -> impl Iterator<Item = &'a mut BTreeMap<String, Datum>> {
    let Filter::Row(uuid) = filter else { panic!("only changes by UUID are made") };
    rows.get_mut(&(table.to_owned(), *uuid)).into_iter()
}

fn mutated(old: &Datum, mutator: Mutator, value: &Datum) -> Datum {
    match (old.is_map(), mutator) {
        (true, Mutator::Insert) => {
            let mut map: BTreeMap<Atom, Atom> = old.pairs().iter().cloned().collect();
            for (key, atom) in value.pairs() {
                map.entry(key.clone()).or_insert_with(|| atom.clone());
            }
            Datum::map::<Atom, Atom>(map)
        }
        (true, Mutator::Delete) => {
            let gone = |pair: &(Atom, Atom)| value.pairs().contains(pair) || value.atoms().contains(&pair.0);
            Datum::map::<Atom, Atom>(
                old.pairs().iter().filter(|pair| !gone(pair)).cloned().collect::<Vec<_>>(),
            )
        }
        (false, Mutator::Insert) => {
            Datum::set::<Atom>(old.atoms().iter().chain(value.atoms()).cloned().collect::<Vec<_>>())
        }
        (false, Mutator::Delete) => Datum::set::<Atom>(
            old.atoms().iter().filter(|atom| !value.contains(atom)).cloned().collect::<Vec<_>>(),
        ),
        other => panic!("unexpected mutation {other:?}"),
    }
}

/// Reading a database file of ovsdb-server: a journal of JSON records (ovsdb(5)).
impl Database {
    /// Replays the journal of a database file.
    pub(crate) fn load_log(&mut self, file: &[u8]) {
        let text = std::str::from_utf8(file).expect("UTF-8");
        for record in text.lines().filter(|line| !line.starts_with("OVSDB ")).skip(1) {
            let record: serde_json::Value = serde_json::from_str(record).expect("a JSON record");
            for (table, changes) in record.as_object().expect("an object") {
                let Some(schema) = self.schema.table(table).cloned() else { continue };
                for (uuid, change) in changes.as_object().expect("rows") {
                    let key = (table.clone(), uuid.parse::<Uuid>().expect("a UUID"));
                    let Some(change) = change.as_object() else {
                        self.rows.remove(&key);
                        continue;
                    };
                    let columns = self.rows.entry(key).or_insert_with(|| {
                        schema
                            .columns()
                            .iter()
                            .map(|column| (column.name.to_string(), column.default.clone()))
                            .collect()
                    });
                    for (name, value) in change {
                        let Some(column) = schema.column(name) else { continue };
                        columns.insert(
                            name.clone(),
                            ovsdb::decode_datum(&value.to_string(), &column.kind).expect("a datum"),
                        );
                    }
                }
            }
        }
    }
}
