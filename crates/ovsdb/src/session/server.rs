//! What the server says about itself: the `Database` rows of its `_Server` database.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Value, json};

use crate::{
    Row, Schema, Uuid,
    decode::{Strings, row_update},
    update::Change,
};

pub(super) const TABLE: &str = "Database";

/// The server's databases as far as it has told of them.
pub(super) struct ServerState {
    rows: BTreeMap<Uuid, std::sync::Arc<Row>>,
    answer: Answer,
}

#[derive(PartialEq)]
enum Answer {
    Awaited,
    Known,
    /// It has no `_Server` database.
    Silent,
}

// The few columns read here have not changed since the database came to be.
static SCHEMA: LazyLock<Option<Schema>> = LazyLock::new(|| {
    Schema::parse(
        br#"{"name":"_Server","version":"1","tables":{"Database":{"columns":{
            "name":{"type":"string"},"model":{"type":"string"},
            "connected":{"type":"boolean"},"leader":{"type":"boolean"}}}}}"#,
    )
    .ok()
});

pub(super) fn monitor_params() -> Value {
    let columns = ["name", "model", "connected", "leader"];
    json!(["_Server", "server", { TABLE: { "columns": columns } }])
}

// === impl ServerState ===

impl ServerState {
    pub(super) fn new() -> ServerState {
        ServerState { rows: BTreeMap::new(), answer: Answer::Awaited }
    }

    pub(super) fn row(
        &mut self,
        uuid: Uuid,
        json: &[u8],
        strings: &mut Strings,
    ) -> Result<(), serde_json::Error> {
        let Some(schema) = &*SCHEMA else {
            return Ok(());
        };
        match row_update(schema, 0, uuid, json, strings)?.change {
            Change::Whole(row) => {
                self.rows.insert(uuid, row);
            }
            Change::Delete => {
                self.rows.remove(&uuid);
            }
            // Only newer monitors tell differences, and this is none.
            Change::Modify(_) => {}
        }
        Ok(())
    }

    pub(super) fn answered(&mut self, known: bool) {
        self.answer = if known { Answer::Known } else { Answer::Silent };
    }

    /// Whether this server is the one to talk to; none while it has not told.
    pub(super) fn verdict(&self, database: &str, leader_only: bool) -> Option<Result<(), String>> {
        match self.answer {
            Answer::Awaited => return None,
            Answer::Silent => return Some(Ok(())),
            Answer::Known => {}
        }
        let Some(row) = self.rows.values().find(|row| row.str("name") == Some(database)) else {
            return Some(Err(format!("the server does not serve database {database}")));
        };
        if row.str("model") == Some("standalone") {
            return Some(Ok(()));
        }
        // A member that lost the cluster answers reads from the past and holds writes for ever.
        if row.bool("connected") != Some(true) {
            return Some(Err(format!("the server has lost its cluster for database {database}")));
        }
        if leader_only && row.str("model") == Some("clustered") && row.bool("leader") != Some(true) {
            return Some(Err(format!("the server is not the leader of database {database}")));
        }
        Some(Ok(()))
    }
}
