//! One connection's conversation, without the connection: bytes and commands in, bytes and events out.
//!
//! ```text
//!  start ── monitor _Server, get_schema ──▶ schema known, server acceptable ──▶ Up
//!        ── monitor_cond_since (or an older one) ──▶ Reset, or Update after resuming ──▶ live
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::{Value, json};

use crate::{
    Capabilities, MonitorSpec, Op, OpResult, Schema, Update, Uuid,
    decode::{Strings, row_update},
    frame::{FrameError, Framer, Piece},
    rpc::{self, Failure, Message},
    update::RowUpdate,
};

mod server;

use server::ServerState;

/// What a session follows and demands.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) database: String,
    pub(crate) monitor: MonitorSpec,
    pub(crate) leader_only: bool,
}

/// What outlives a connection, so that the next one continues where it broke off.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    schema: Option<Arc<Schema>>,
    monitored: Option<Arc<Schema>>,
    /// The last transaction whose changes have been handed out.
    last_txn: Option<Uuid>,
}

/// What the session has to tell.
#[derive(Debug)]
pub(crate) enum Event {
    Up { schema: Arc<Schema>, capabilities: Arc<Capabilities> },
    Reset(Update),
    Update(Update),
    Reply { token: u64, result: Result<Vec<OpResult>, Failure> },
}

/// Why a session cannot go on. The connection must be closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the peer does not speak OVSDB: {0}")]
    Frame(#[from] FrameError),
    #[error("malformed message: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Refused(String),
    /// Another server has to be asked.
    #[error("{0}")]
    WrongServer(String),
}

/// A request that has not been answered.
#[derive(Debug, Clone)]
enum Pending {
    Server,
    Schema,
    Monitor(Version),
    Transact { token: u64, tables: Vec<Option<Arc<str>>> },
    Echo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    CondSince,
    Cond,
    Plain,
}

/// One connection's conversation.
pub(crate) struct Session {
    plan: Plan,
    memory: Memory,
    framer: Framer,
    strings: Strings,
    server: ServerState,
    /// Rows of the message that is being read.
    rows: Vec<RowUpdate>,
    pending: BTreeMap<u64, Pending>,
    next_id: u64,
    out: Vec<u8>,
    events: VecDeque<Event>,
    up: bool,
    live: bool,
}

/// The name of our monitor. One connection has one for the database and one for `_Server`.
const MONITOR: &str = "rows";

// === impl Session ===

impl Session {
    /// Begins a conversation: the first requests are ready to be sent.
    pub(crate) fn start(plan: Plan, memory: Memory) -> Session {
        let mut session = Session {
            plan,
            memory,
            framer: Framer::default(),
            strings: Strings::default(),
            server: ServerState::new(),
            rows: Vec::new(),
            pending: BTreeMap::new(),
            next_id: 1,
            out: Vec::new(),
            events: VecDeque::new(),
            up: false,
            live: false,
        };
        session.request("monitor", server::monitor_params(), Pending::Server);
        session.request("get_schema", json!([session.plan.database]), Pending::Schema);
        session
    }

    /// Takes bytes the server sent.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        let mut framer = std::mem::take(&mut self.framer);
        let result = framer.push(bytes, |piece| match piece {
            Piece::Row { table, uuid, json } => self.row(table, uuid, json),
            Piece::Message(json) => {
                let message = Message::parse(json)?;
                let rows = std::mem::take(&mut self.rows);
                self.message(message, rows)
            }
        });
        self.framer = framer;
        result
    }

    /// The next thing to tell.
    pub(crate) fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Bytes to send; whatever has been sent is taken off by the caller.
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Whether transactions are possible.
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// Whether the content has been told.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// The number of the oldest request without an answer, if any.
    pub(crate) fn oldest_request(&self) -> Option<u64> {
        self.pending.keys().next().copied()
    }

    /// The number the next request gets.
    pub(crate) fn next_request(&self) -> u64 {
        self.next_id
    }

    /// Asks for a transaction; the answer comes as an event with this token.
    pub(crate) fn transact(&mut self, token: u64, ops: &[Op]) {
        let tables = ops.iter().map(|op| op.table().map(|name| self.strings.share(name))).collect();
        let id = self.next_id;
        self.next_id += 1;
        rpc::transact(&mut self.out, id, &self.plan.database, ops);
        self.pending.insert(id, Pending::Transact { token, tables });
    }

    /// Asks for a sign of life.
    pub(crate) fn probe(&mut self) {
        if !self.pending.values().any(|p| matches!(p, Pending::Echo)) {
            self.request("echo", json!([]), Pending::Echo);
        }
    }

    /// The conversation is over: what to continue from. `whole` tells that all content must be loaded anew.
    pub(crate) fn end(mut self, whole: bool) -> Memory {
        if whole {
            self.memory.last_txn = None;
        }
        self.memory
    }

    fn request(&mut self, method: &str, params: Value, pending: Pending) {
        let id = self.next_id;
        self.next_id += 1;
        rpc::request(&mut self.out, id, method, params);
        self.pending.insert(id, pending);
    }

    fn row(&mut self, table: &[u8], uuid: Uuid, json: &[u8]) -> Result<(), SessionError> {
        let Ok(table) = std::str::from_utf8(table) else {
            return Ok(());
        };
        let found = self.memory.monitored.as_ref().and_then(|s| Some((s, s.table_index(table)?)));
        if let Some((schema, at)) = found {
            self.rows.push(row_update(schema, at, uuid, json, &mut self.strings)?);
        } else if table == server::TABLE {
            self.server.row(uuid, json, &mut self.strings)?;
        }
        Ok(())
    }

    fn message(&mut self, message: Message, rows: Vec<RowUpdate>) -> Result<(), SessionError> {
        match message {
            Message::Reply { id, outcome } => match self.pending.remove(&id) {
                Some(pending) => self.reply(pending, outcome, rows),
                None => Err(SessionError::Refused("the server answered what nobody asked".to_owned())),
            },
            Message::Request { method, params, id } => {
                if method == "echo" {
                    rpc::answer(&mut self.out, &id, &params);
                }
                Ok(())
            }
            Message::Notification { method, params } => self.notification(&method, &params, rows),
        }
    }

    fn notification(
        &mut self,
        method: &str,
        params: &Value,
        rows: Vec<RowUpdate>,
    ) -> Result<(), SessionError> {
        if !matches!(method, "update" | "update2" | "update3") {
            return Ok(());
        }
        if params[0] != MONITOR {
            return self.check_server();
        }
        if method == "update3" {
            self.memory.last_txn = txn_id(&params[1]);
        }
        if let Some(schema) = &self.memory.monitored
            && !rows.is_empty()
        {
            self.events.push_back(Event::Update(Update { schema: schema.clone(), rows }));
        }
        Ok(())
    }

    fn reply(
        &mut self,
        pending: Pending,
        outcome: Result<Value, Value>,
        rows: Vec<RowUpdate>,
    ) -> Result<(), SessionError> {
        match (pending, outcome) {
            // Servers before 2.9 have no such database, and no clusters either.
            (Pending::Server, outcome) => {
                self.server.answered(outcome.is_ok());
                self.check_server()
            }
            (Pending::Schema, Ok(schema)) => self.schema(schema),
            (Pending::Schema, Err(error)) => Err(SessionError::Refused(format!(
                "the server does not serve database {}: {}",
                self.plan.database,
                rpc::brief(&error)
            ))),
            (Pending::Monitor(version), Ok(result)) => {
                self.monitoring(version, &result, rows);
                Ok(())
            }
            (Pending::Monitor(version), Err(error)) => match version {
                Version::CondSince => {
                    self.monitor(Version::Cond);
                    Ok(())
                }
                Version::Cond => {
                    self.monitor(Version::Plain);
                    Ok(())
                }
                Version::Plain => Err(SessionError::Refused(format!(
                    "the server does not let us follow database {}: {}",
                    self.plan.database,
                    rpc::brief(&error)
                ))),
            },
            (Pending::Transact { token, tables }, outcome) => {
                let table =
                    |at: usize| tables.get(at).cloned().flatten().as_deref().unwrap_or_default().to_owned();
                let result = rpc::results(outcome, table, tables.len());
                self.events.push_back(Event::Reply { token, result });
                Ok(())
            }
            (Pending::Echo, _) => Ok(()),
        }
    }

    fn schema(&mut self, json: Value) -> Result<(), SessionError> {
        let schema = Schema::from_value(json).map_err(|error| SessionError::Refused(error.to_string()))?;
        if self.memory.schema.as_deref() != Some(&schema) {
            let monitored = Arc::new(schema.monitored(&self.plan.monitor));
            self.memory =
                Memory { schema: Some(Arc::new(schema)), monitored: Some(monitored), last_txn: None };
        }
        self.check_server()
    }

    /// Goes on once the schema is known and the server is one we want; gives up when it is not.
    fn check_server(&mut self) -> Result<(), SessionError> {
        match self.server.verdict(&self.plan.database, self.plan.leader_only) {
            None => return Ok(()),
            Some(Err(reason)) => return Err(SessionError::WrongServer(reason)),
            Some(Ok(())) => {}
        }
        if self.up || self.pending.values().any(|p| matches!(p, Pending::Schema)) {
            return Ok(());
        }
        let (Some(schema), Some(monitored)) = (&self.memory.schema, &self.memory.monitored) else {
            return Ok(());
        };
        self.up = true;
        let capabilities = Arc::new(schema.capabilities());
        let monitored = monitored.clone();
        self.events.push_back(Event::Up { schema: monitored.clone(), capabilities });
        if monitored.tables().is_empty() {
            self.live = true;
            self.events.push_back(Event::Reset(Update::empty(monitored)));
        } else {
            self.monitor(Version::CondSince);
        }
        Ok(())
    }

    fn monitor(&mut self, version: Version) {
        let Some(schema) = &self.memory.monitored else {
            return;
        };
        let mut tables = serde_json::Map::new();
        for table in schema.tables() {
            let columns: Vec<&str> = table.columns().iter().map(|c| &*c.name).collect();
            let request = json!({ "columns": columns });
            let request = if version == Version::Plain { request } else { json!([request]) };
            tables.insert(table.name.to_string(), request);
        }
        let mut params = json!([self.plan.database, MONITOR, tables]);
        let method = match version {
            Version::CondSince => {
                if let Value::Array(params) = &mut params {
                    params.push(self.memory.last_txn.unwrap_or(Uuid::NIL).to_string().into());
                }
                "monitor_cond_since"
            }
            Version::Cond => "monitor_cond",
            Version::Plain => "monitor",
        };
        self.request(method, params, Pending::Monitor(version));
    }

    fn monitoring(&mut self, version: Version, result: &Value, rows: Vec<RowUpdate>) {
        let Some(schema) = self.memory.monitored.clone() else {
            return;
        };
        let resumed = version == Version::CondSince && result[0] == true && self.memory.last_txn.is_some();
        self.memory.last_txn = match version {
            Version::CondSince => txn_id(&result[1]),
            _ => None,
        };
        let update = Update { schema, rows };
        self.live = true;
        self.events.push_back(if resumed { Event::Update(update) } else { Event::Reset(update) });
    }
}

/// A transaction's identity; none for servers that keep no history.
fn txn_id(value: &Value) -> Option<Uuid> {
    value.as_str().and_then(|text| Uuid::parse(text.as_bytes())).filter(|uuid| !uuid.is_nil())
}

#[cfg(test)]
mod tests;
