//! A database's contents, found by what we call rows and by whose they are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use compile::identity::{self, Lookup};
use compile::table::{self, MEMBERSHIPS};
use compile::{Db, RowId, Settings, Table};
use ovsdb::{Cache, Row, RowChange, Schema, Update, Uuid};
use world::Key;

use super::few::Few;

use super::mentions::Mentions;

/// A place where a row is listed: which of [`MEMBERSHIPS`], and the row that lists it.
pub(super) type Listing = (usize, Uuid);

/// A database's contents with an index by name, owner and membership.
#[derive(Debug)]
pub struct Mirror {
    db: Db,
    settings: Arc<Settings>,
    cache: Cache,
    known: HashMap<Uuid, Known>,
    names: HashMap<Table, HashMap<Arc<str>, Few<Uuid>>>,
    owned: BTreeMap<Key, Few<(Table, Uuid)>>,
    listed: HashMap<Uuid, Few<Listing>>,
    mentions: Mentions,
}

#[derive(Debug)]
struct Known {
    table: Table,
    name: Option<Arc<str>>,
    owner: Option<Key>,
}

struct View<'a> {
    cache: &'a Cache,
    listed: &'a HashMap<Uuid, Few<Listing>>,
}

impl Lookup for View<'_> {
    fn row(&self, table: Table, uuid: &Uuid) -> Option<&Row> {
        self.cache.row(table.name, uuid).map(Arc::as_ref)
    }

    fn routers_of(&self, uuid: &Uuid) -> Vec<&str> {
        let listings = self.listed.get(uuid).into_iter().flatten();
        let routers = listings.filter(|(at, _)| MEMBERSHIPS[*at].0 == table::ROUTER);
        routers.filter_map(|(_, router)| self.row(table::ROUTER, router)?.str("name")).collect()
    }
}

impl Mirror {
    /// An empty mirror of `db` in the zone `settings` describes.
    pub fn new(db: Db, settings: Arc<Settings>) -> Mirror {
        Mirror {
            db,
            settings,
            cache: Cache::new(Arc::new(Schema::empty(db.name()))),
            known: HashMap::new(),
            names: HashMap::new(),
            owned: BTreeMap::new(),
            listed: HashMap::new(),
            mentions: Mentions::default(),
        }
    }

    /// The database mirrored.
    pub fn db(&self) -> Db {
        self.db
    }

    /// Replaces everything by a fresh load. Returns the names of the rows that are new.
    pub fn reset(&mut self, update: &Update) -> Vec<RowId> {
        let changes = self.cache.reset(update);
        self.index(&changes)
    }

    /// Applies changes. Returns the names of the rows that are new, and what keys wait for whose sets are free now.
    pub fn apply(&mut self, update: &Update) -> Vec<RowId> {
        let changes = self.cache.apply(update);
        self.index(&changes)
    }

    /// Whether every change fitted what was known. If not, the contents must be loaded anew.
    pub fn is_sound(&self) -> bool {
        self.cache.inconsistencies() == 0
    }

    /// The schema rows follow: what the server has of what we watch.
    pub fn schema(&self) -> &Arc<Schema> {
        self.cache.schema()
    }

    /// Every key that owns a row.
    pub fn owners(&self) -> impl Iterator<Item = &Key> {
        self.owned.keys()
    }

    /// The rows of a key.
    pub fn rows_of<'a>(&'a self, key: &Key) -> impl Iterator<Item = (Table, &'a Row)> + use<'a> {
        let rows = self.owned.get(key).into_iter().flatten();
        rows.filter_map(|(table, uuid)| Some((*table, self.row(*table, uuid)?)))
    }

    /// All rows of a table.
    pub fn rows(&self, table: Table) -> impl Iterator<Item = &Row> {
        self.cache.rows(table.name).map(Arc::as_ref)
    }

    /// The row of this UUID.
    pub fn row(&self, table: Table, uuid: &Uuid) -> Option<&Row> {
        self.cache.row(table.name, uuid).map(Arc::as_ref)
    }

    /// Whether a row of this UUID exists in any table we watch.
    pub(super) fn has_uuid(&self, uuid: &Uuid) -> bool {
        self.known.contains_key(uuid)
    }

    pub(super) fn owned_by(&self, key: &Key) -> impl Iterator<Item = (Table, Uuid)> {
        self.owned.get(key).into_iter().flatten().copied()
    }

    pub(super) fn listings(&self, uuid: &Uuid) -> impl Iterator<Item = Listing> {
        self.listed.get(uuid).into_iter().flatten().copied()
    }

    /// The rules that name an address set.
    pub(super) fn mentions(&self, set: &str) -> impl Iterator<Item = &Uuid> {
        self.mentions.of(set)
    }

    /// The row called `id`. Of several the one `key` owns already is taken, then the first.
    pub fn find(&self, id: &RowId, key: Option<&Key>) -> Option<Uuid> {
        let candidates = self.names.get(&id.table)?.get(&*id.name)?;
        let owned = key.and_then(|key| self.owned.get(key));
        let is_owned = |uuid: &&Uuid| owned.is_some_and(|set| set.contains(&(id.table, **uuid)));
        candidates.iter().find(is_owned).or_else(|| candidates.first()).copied()
    }

    fn index(&mut self, changes: &[RowChange]) -> Vec<RowId> {
        let mut moved = BTreeSet::new();
        for change in changes {
            let Some(table) = self.table(change.table()) else { continue };
            for (at, (holder, column)) in MEMBERSHIPS.iter().enumerate() {
                if *holder == table
                    && (change.old.is_none() || change.new.is_none() || change.changed(column))
                {
                    self.relist(at, column, change, &mut moved);
                }
            }
        }
        let mut fresh = Vec::new();
        for change in changes {
            let Some(table) = self.table(change.table()) else { continue };
            if table == table::ACL {
                fresh.extend(self.mentions.change(change));
            }
            moved.remove(&change.uuid);
            self.forget(&change.uuid);
            let Some(row) = &change.new else { continue };
            if let Some(name) = self.learn(table, row)
                && change.old.is_none()
            {
                fresh.push(RowId::new(table, &*name));
            }
        }
        // Whose a route is can follow from the router that lists it.
        for uuid in moved {
            let Some(table) = self.known.get(&uuid).map(|known| known.table) else { continue };
            let Some(row) = self.cache.row(table.name, &uuid).cloned() else { continue };
            self.forget(&uuid);
            self.learn(table, &row);
        }
        fresh
    }

    /// Files a row under its name and owner; returns the name.
    fn learn(&mut self, table: Table, row: &Row) -> Option<Arc<str>> {
        let uuid = row.uuid();
        let name: Option<Arc<str>> = identity::name(table, row).map(Into::into);
        let view = View { cache: &self.cache, listed: &self.listed };
        let owner = identity::owner(table, row, &self.settings, &view);
        if let Some(name) = &name {
            self.names.entry(table).or_default().entry(name.clone()).or_default().insert(uuid);
        }
        if let Some(owner) = &owner {
            self.owned.entry(owner.clone()).or_default().insert((table, uuid));
        }
        self.known.insert(uuid, Known { table, name: name.clone(), owner });
        name
    }

    fn table(&self, name: &str) -> Option<Table> {
        table::ALL.iter().find(|table| table.db == self.db && table.name == name).copied()
    }

    fn relist(&mut self, at: usize, column: &str, change: &RowChange, moved: &mut BTreeSet<Uuid>) {
        let items = |row: &Option<Arc<Row>>| -> BTreeSet<Uuid> {
            row.iter().flat_map(|row| row.get(column)).flat_map(|datum| datum.uuids()).collect()
        };
        let (old, new) = (items(&change.old), items(&change.new));
        moved.extend(old.symmetric_difference(&new));
        for gone in old.difference(&new) {
            if let Some(set) = self.listed.get_mut(gone) {
                set.remove(&(at, change.uuid));
                if set.is_empty() {
                    self.listed.remove(gone);
                }
            }
        }
        for added in new.difference(&old) {
            self.listed.entry(*added).or_default().insert((at, change.uuid));
        }
    }

    fn forget(&mut self, uuid: &Uuid) {
        let Some(known) = self.known.remove(uuid) else { return };
        if let Some(name) = &known.name
            && let Some(names) = self.names.get_mut(&known.table)
            && let Some(set) = names.get_mut(name)
        {
            set.remove(uuid);
            if set.is_empty() {
                names.remove(name);
            }
        }
        if let Some(owner) = &known.owner
            && let Some(set) = self.owned.get_mut(owner)
        {
            set.remove(&(known.table, *uuid));
            if set.is_empty() {
                self.owned.remove(owner);
            }
        }
    }
}
