//! One transaction for many keys.

use std::collections::{BTreeMap, BTreeSet};

use compile::table::{self, MEMBERSHIPS};
use compile::{Desired, Member, RowId, RowSpec, Table, Value, identity};
use ovsdb::{Atom, Datum, Mutation, Mutator, Name, Op, TableSchema, Uuid};
use world::Key;

use super::index::Mirror;
use super::mentions::{names, unmentioned};

/// Identities of rows are UUIDs (version 5) of this name space over database, table and name, so that an insert
/// whose outcome is unknown can be repeated without making a second row.
const ROW_IDENTITIES: Uuid = Uuid::from_bytes(*b"ovnkube-rs rows\0");

/// What turns a database into what keys ask for.
#[derive(Debug, Default)]
pub struct Plan {
    /// The transaction; empty when there is nothing to do.
    pub ops: Vec<Op>,
    /// Keys whose wishes it fulfils.
    pub keys: Vec<Key>,
    /// Keys put off, wholly or in part, until a row they refer to exists.
    pub waiting: Vec<(Key, RowId)>,
}

impl Mirror {
    /// The least transaction after which the database holds what each key asks for and nothing else of theirs.
    pub fn plan<'a>(&self, wanted: impl IntoIterator<Item = (&'a Key, &'a Desired)>) -> Plan {
        let mut planner = Planner {
            mirror: self,
            inserted: BTreeMap::new(),
            lists: BTreeMap::new(),
            body: Vec::new(),
            claimed: BTreeSet::new(),
            unwanted: Vec::new(),
            rewritten: BTreeMap::new(),
            plan: Plan::default(),
        };
        for (key, desired) in wanted {
            planner.key(key, desired);
        }
        planner.finish()
    }
}

/// What is added to a list, and what is taken from it.
type ListChange = (BTreeSet<Uuid>, BTreeSet<Uuid>);

struct Planner<'a> {
    mirror: &'a Mirror,
    inserted: BTreeMap<RowId, Uuid>,
    /// Additions to and removals from lists, by listing row and column.
    lists: BTreeMap<(Table, Uuid, &'static str), ListChange>,
    body: Vec<Op>,
    /// Rows some key asks for. Another key that owned them by their old contents does not take them away.
    claimed: BTreeSet<Uuid>,
    /// Rows nobody asked for so far, with the keys that own them.
    unwanted: Vec<(Key, Table, Uuid)>,
    /// New matches of rules.
    rewritten: BTreeMap<Uuid, Datum>,
    plan: Plan,
}

impl Planner<'_> {
    fn key(&mut self, key: &Key, desired: &Desired) {
        let rows: Vec<&RowSpec> =
            desired.rows.iter().filter(|row| row.id.table.db == self.mirror.db()).collect();
        if let Some(missing) = self.missing(&rows, desired) {
            self.plan.waiting.push((key.clone(), missing));
            return;
        }
        let mut kept = BTreeSet::new();
        let mut created = BTreeMap::new();
        for spec in &rows {
            match self.mirror.find(&spec.id, Some(key)) {
                Some(uuid) => {
                    kept.insert((spec.id.table, uuid));
                    self.claimed.insert(uuid);
                }
                None => {
                    let uuid =
                        self.inserted.get(&spec.id).copied().unwrap_or_else(|| self.fresh_uuid(&spec.id));
                    created.insert(&spec.id, uuid);
                    self.inserted.insert(spec.id.clone(), uuid);
                }
            }
        }
        for spec in &rows {
            match created.get(&spec.id) {
                Some(uuid) => self.insert(spec, *uuid),
                None => self.correct(spec, key),
            }
        }
        let wanted = self.members(key, desired);
        self.prune(key, &kept, &wanted);
        self.plan.keys.push(key.clone());
    }

    /// The first row `rows` or `members` refer to that neither exists nor is made by this transaction, leaving
    /// out memberships that hold no row alive: those are added when the group appears.
    fn missing(&self, rows: &[&RowSpec], desired: &Desired) -> Option<RowId> {
        let own: BTreeSet<&RowId> = rows.iter().map(|row| &row.id).collect();
        let available = |id: &RowId| own.contains(id) || self.resolve(id).is_some();
        let refs = rows.iter().flat_map(|row| &row.columns).filter_map(|(_, value)| match value {
            Value::Refs(refs) => Some(refs),
            _ => None,
        });
        let strict = |member: &&Member| member.required || holds_alive(member);
        let parents = desired.members.iter().filter(strict).map(|member| &member.parent);
        let parents = parents.chain(&desired.needs);
        let parents = parents.filter(|parent| parent.table.db == self.mirror.db());
        refs.flatten().chain(parents).find(|id| !available(id)).cloned()
    }

    fn resolve(&self, id: &RowId) -> Option<Uuid> {
        self.inserted.get(id).copied().or_else(|| self.mirror.find(id, None))
    }

    fn fresh_uuid(&self, id: &RowId) -> Uuid {
        let base = format!("{}/{}/{}", id.table.db.name(), id.table.name, id.name);
        let first = Uuid::v5(&ROW_IDENTITIES, base.as_bytes());
        let others = (2..100).map(|n| Uuid::v5(&ROW_IDENTITIES, format!("{base}#{n}").as_bytes()));
        let taken =
            |uuid: &Uuid| self.mirror.has_uuid(uuid) || self.inserted.values().any(|used| used == uuid);
        std::iter::once(first).chain(others).find(|uuid| !taken(uuid)).unwrap_or(first)
    }

    fn schema(&self, table: Table) -> Option<&TableSchema> {
        self.mirror.schema().table(table.name).map(AsRef::as_ref)
    }

    fn insert(&mut self, spec: &RowSpec, uuid: Uuid) {
        let Some(schema) = self.schema(spec.id.table) else { return };
        let mut row = Vec::with_capacity(spec.columns.len());
        for (column, value) in &spec.columns {
            let Some(column_schema) = schema.column(column) else { continue };
            let datum = match value {
                Value::Exact(datum) => datum.clone(),
                Value::Entries(entries) => Datum::map::<String, String>(entries.clone()),
                Value::Refs(refs) => Datum::set::<Uuid>(refs.iter().filter_map(|id| self.resolve(id))),
            };
            if datum != column_schema.default {
                row.push((Name::Borrowed(*column), datum));
            }
        }
        self.body.push(Op::insert(spec.id.table.name, uuid, row));
    }

    fn correct(&mut self, spec: &RowSpec, key: &Key) {
        let table = spec.id.table;
        let Some(uuid) = self.mirror.find(&spec.id, Some(key)) else { return };
        let Some(row) = self.mirror.row(table, &uuid) else { return };
        let mut wanted = Vec::new();
        for (column, value) in &spec.columns {
            let Some(current) = row.get(column) else { continue };
            let datum = match value {
                Value::Exact(datum) => datum.clone(),
                Value::Entries(entries) => {
                    let mut merged = current.to_str_map();
                    merged.extend(entries.clone());
                    Datum::map::<String, String>(merged)
                }
                Value::Refs(refs) => Datum::set::<Uuid>(refs.iter().filter_map(|id| self.resolve(id))),
            };
            if table == table::ACL && *column == "match" {
                self.rewritten.insert(uuid, datum.clone());
            }
            wanted.push((Name::Borrowed(*column), datum));
        }
        self.body.extend(ovsdb::diff(row, &wanted));
    }

    /// Adds the memberships asked for that are not there yet; returns all of them, resolved.
    fn members(&mut self, key: &Key, desired: &Desired) -> BTreeSet<(Table, Uuid, &'static str, Uuid)> {
        let mut wanted = BTreeSet::new();
        for member in desired.members.iter().filter(|member| member.parent.table.db == self.mirror.db()) {
            let Some(parent) = self.resolve(&member.parent) else {
                self.plan.waiting.push((key.clone(), member.parent.clone()));
                continue;
            };
            let child = self.mirror.find(&member.child, Some(key)).or_else(|| self.resolve(&member.child));
            let Some(child) = child else { continue };
            wanted.insert((member.parent.table, parent, member.column, child));
            let listed = self.mirror.row(member.parent.table, &parent).and_then(|row| row.get(member.column));
            if !listed.is_some_and(|list| list.contains(&Atom::Uuid(child))) {
                self.list(member.parent.table, parent, member.column).0.insert(child);
            }
        }
        wanted
    }

    fn list(&mut self, table: Table, row: Uuid, column: &'static str) -> &mut ListChange {
        self.lists.entry((table, row, column)).or_default()
    }

    /// Takes away what the key owns but does not ask for, and memberships of what it keeps.
    fn prune(
        &mut self,
        key: &Key,
        kept: &BTreeSet<(Table, Uuid)>,
        wanted: &BTreeSet<(Table, Uuid, &'static str, Uuid)>,
    ) {
        for (_, uuid) in kept {
            for (at, parent) in self.mirror.listings(uuid) {
                let (holder, column) = MEMBERSHIPS[at];
                let ours =
                    self.mirror.row(holder, &parent).is_some_and(|row| identity::lists_are_ours(holder, row));
                if ours && !wanted.contains(&(holder, parent, column, *uuid)) {
                    self.list(holder, parent, column).1.insert(*uuid);
                }
            }
        }
        let owned = self.mirror.owned_by(key).filter(|row| !kept.contains(row));
        self.unwanted.extend(owned.map(|(table, uuid)| (key.clone(), table, uuid)));
    }

    /// The name of an address set that rules will still name after this transaction.
    fn still_named(&self, table: Table, uuid: &Uuid, gone: &BTreeSet<Uuid>) -> Option<String> {
        if table != table::ADDRESS_SET {
            return None;
        }
        let name = self.mirror.row(table, uuid)?.str("name")?.to_owned();
        let stays = |rule: &Uuid| match self.rewritten.get(rule) {
            Some(matching) => matching.as_str().is_some_and(|text| names(text).any(|one| one == name)),
            None => self.claimed.contains(rule) || !gone.contains(rule),
        };
        let named = self.mirror.mentions(&name).any(stays);
        named.then_some(name)
    }

    fn discard(&mut self) -> Vec<Op> {
        let mut deletes = Vec::new();
        let unwanted = std::mem::take(&mut self.unwanted);
        let gone: BTreeSet<Uuid> = unwanted.iter().map(|(_, _, uuid)| *uuid).collect();
        for (key, table, uuid) in unwanted {
            if self.claimed.contains(&uuid) {
                continue;
            }
            if let Some(name) = self.still_named(table, &uuid, &gone) {
                self.plan.waiting.push((key, unmentioned(&name)));
                continue;
            }
            if !table.owned {
                deletes.push(Op::delete(table.name, uuid));
                // A list this transaction adds to loses the row by name: once it was seen to keep a deleted one.
                for (at, parent) in self.mirror.listings(&uuid) {
                    let (holder, column) = MEMBERSHIPS[at];
                    let list = self.lists.get_mut(&(holder, parent, column));
                    if let Some((_, remove)) = list.filter(|(add, _)| !add.is_empty()) {
                        remove.insert(uuid);
                    }
                }
                continue;
            }
            // A row that lives by being listed goes when its last listing goes.
            for (at, parent) in self.mirror.listings(&uuid) {
                let (holder, column) = MEMBERSHIPS[at];
                if holder != table::PORT_GROUP || column != "ports" {
                    self.list(holder, parent, column).1.insert(uuid);
                }
            }
        }
        deletes
    }

    fn finish(mut self) -> Plan {
        let mut deletes = self.discard();
        let mut ops = std::mem::take(&mut self.body);
        for ((table, row, column), (mut add, mut remove)) in std::mem::take(&mut self.lists) {
            // One key's wish to keep a row listed outweighs another's wish to unlist it.
            remove.retain(|uuid| !add.contains(uuid));
            add.retain(|uuid| !remove.contains(uuid));
            let mut mutations = Vec::new();
            for (mutator, set) in [(Mutator::Insert, add), (Mutator::Delete, remove)] {
                if !set.is_empty() {
                    let value = Datum::set::<Uuid>(set);
                    mutations.push(Mutation { column: Name::Borrowed(column), mutator, value });
                }
            }
            if !mutations.is_empty() {
                ops.push(Op::mutate(table.name, row, mutations));
            }
        }
        ops.append(&mut deletes);
        self.plan.ops = ops;
        self.plan
    }
}

/// Whether the membership keeps the listed row alive (a strong reference), unlike that of a port in a group.
fn holds_alive(member: &Member) -> bool {
    !(member.parent.table == table::PORT_GROUP && member.column == "ports")
}
