//! A client without a runtime, for short-lived programs: one connection over a unix socket, one request at a
//! time, every call with a deadline.

use std::{
    fmt,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    Fields, Filter, Name, Op, OpResult, Rejection,
    frame::{FrameError, Framer, Piece},
    rpc::{self, Failure, Message},
};

/// A connection to one database.
pub struct Connection {
    stream: UnixStream,
    database: String,
    framer: Framer,
    next_id: u64,
    /// Messages that have arrived and have not been looked at.
    arrived: Vec<Message>,
    /// Whether monitored rows have changed since this was last cleared.
    changed: bool,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be used.
    #[error("database {database}: {source}")]
    Io {
        /// The database asked for.
        database: String,
        /// What the system says.
        source: io::Error,
    },
    /// The time was up. A transaction that was sent may have been made.
    #[error("database {0}: no answer in time")]
    TimedOut(String),
    /// The server refused the transaction; nothing of it took effect.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// What came is not what was asked for.
    #[error("not an answer of a database server: {0}")]
    Protocol(String),
}

// === impl Connection ===

impl Connection {
    /// Connects to a server's unix socket. Nothing is sent yet.
    pub fn open(socket: &Path, database: &str) -> Result<Connection, Error> {
        let database = database.to_owned();
        match UnixStream::connect(socket) {
            Ok(stream) => Ok(Connection {
                stream,
                database,
                framer: Framer::default(),
                next_id: 1,
                arrived: Vec::new(),
                changed: false,
            }),
            Err(source) => {
                let source = io::Error::new(source.kind(), format!("{}: {source}", socket.display()));
                Err(Error::Io { database, source })
            }
        }
    }

    /// Makes a transaction: all of it or nothing. One result for each operation.
    pub fn transact(&mut self, ops: &[Op], deadline: Instant) -> Result<Vec<OpResult>, Error> {
        let mut out = Vec::new();
        let id = self.number();
        rpc::transact(&mut out, id, &self.database, ops);
        self.send(&out, deadline)?;
        let outcome = self.reply(id, deadline)?;
        let table = |at: usize| ops.get(at).and_then(Op::table).unwrap_or_default().to_owned();
        rpc::results(outcome, table, ops.len()).map_err(|failure| match failure {
            Failure::Rejected(rejection) => Error::Rejected(rejection),
            Failure::Protocol(reason) => Error::Protocol(reason),
        })
    }

    /// The rows that meet a filter; no columns named: all of them.
    pub fn select(
        &mut self,
        table: &'static str,
        filter: impl Into<Filter>,
        columns: &[&'static str],
        deadline: Instant,
    ) -> Result<Vec<Fields>, Error> {
        let results = self.transact(&[Op::select(table, filter, columns)], deadline)?;
        Ok(results.into_iter().flat_map(|result| result.rows).collect())
    }

    /// Looks at the rows that meet a filter, now and whenever one of these columns changes, until `look`
    /// finds what it wants.
    pub fn wait_for<R>(
        &mut self,
        table: &'static str,
        filter: impl Into<Filter>,
        columns: &[&'static str],
        deadline: Instant,
        mut look: impl FnMut(&[Fields]) -> Option<R>,
    ) -> Result<R, Error> {
        let filter = filter.into();
        let columns: Vec<Name> = columns.iter().map(|column| Name::Borrowed(*column)).collect();
        let monitor = format!("wait-{}", self.number());
        let request = json!({ table: [{ "columns": columns, "where": filter }] });
        self.call("monitor_cond", &json!([self.database, monitor, request]), deadline)?;
        let found = loop {
            self.changed = false;
            let select = Op::Select { table: table.into(), filter: filter.clone(), columns: columns.clone() };
            let rows = self.transact(&[select], deadline)?.into_iter().flat_map(|r| r.rows);
            if let Some(found) = look(&rows.collect::<Vec<_>>()) {
                break found;
            }
            while !self.changed {
                self.read(deadline)?;
            }
        };
        self.call("monitor_cancel", &json!([monitor]), deadline)?;
        Ok(found)
    }

    fn call(&mut self, method: &str, params: &Value, deadline: Instant) -> Result<Value, Error> {
        let mut out = Vec::new();
        let id = self.number();
        rpc::request(&mut out, id, method, params);
        self.send(&out, deadline)?;
        self.reply(id, deadline)?
            .map_err(|error| Error::Protocol(format!("{method}: {}", rpc::brief(&error))))
    }

    fn number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn reply(&mut self, wanted: u64, deadline: Instant) -> Result<Result<Value, Value>, Error> {
        loop {
            for message in std::mem::take(&mut self.arrived) {
                match message {
                    // One request is open at a time, so nothing else waits for what is left here.
                    Message::Reply { id, outcome } if id == wanted => return Ok(outcome),
                    _ => {}
                }
            }
            self.read(deadline)?;
        }
    }

    fn send(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), Error> {
        let left = self.left(deadline)?;
        let sent = self.stream.set_write_timeout(Some(left)).and_then(|()| self.stream.write_all(bytes));
        sent.map_err(|source| self.failed(source))
    }

    /// Reads what has arrived, waiting for it up to the deadline; answers the server's own requests.
    fn read(&mut self, deadline: Instant) -> Result<(), Error> {
        let mut buffer = [0; 16 << 10];
        let left = self.left(deadline)?;
        let count = self
            .stream
            .set_read_timeout(Some(left))
            .and_then(|()| self.stream.read(&mut buffer))
            .map_err(|source| self.failed(source))?;
        if count == 0 {
            return Err(self.failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut messages = Vec::new();
        self.framer.push(&buffer[..count], |piece| {
            if let Piece::Message(json) = piece {
                messages.push(Message::parse(json).map_err(|error| Error::Protocol(error.to_string()))?);
            }
            Ok::<(), Error>(())
        })?;
        for message in messages {
            match message {
                Message::Request { method, params, id } if method == "echo" => {
                    let mut out = Vec::new();
                    rpc::answer(&mut out, &id, &params);
                    self.send(&out, deadline)?;
                }
                Message::Notification { .. } => self.changed = true,
                other => self.arrived.push(other),
            }
        }
        Ok(())
    }

    fn left(&self, deadline: Instant) -> Result<Duration, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Error::TimedOut(self.database.clone())) } else { Ok(left) }
    }

    fn failed(&self, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::TimedOut(self.database.clone()),
            _ => Error::Io { database: self.database.clone(), source },
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("database", &self.database).finish_non_exhaustive()
    }
}

impl From<FrameError> for Error {
    fn from(error: FrameError) -> Error {
        Error::Protocol(error.to_string())
    }
}
