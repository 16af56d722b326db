//! The connection to a server, as a task: keeps connected for ever, follows the monitored tables, makes
//! transactions. Needs a tokio runtime.
//!
//! # When the outcome of a transaction is unknown
//!
//! A connection lost between request and reply leaves open whether the transaction was made
//! ([`TxnError::Unknown`]). With identities chosen by the client nothing is ever doubled: after the next
//! [`Notice::Reset`] or [`Notice::Update`] the cache shows whether the rows are there; a caller that does not
//! look and repeats the transaction unchanged gets [`TxnError::Rejected`] with
//! [`Rejection::is_duplicate_uuid`] if the first attempt was made, and nothing of the repetition takes effect.

use std::{io, sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};

use crate::{Capabilities, IndexSpec, MonitorSpec, Op, OpResult, Rejection, Schema, Update};

mod driver;
mod endpoint;
mod link;
mod notices;
mod replica;
mod transport;

pub use endpoint::{Endpoint, EndpointError, TlsFiles};
pub use notices::Notices;
pub use replica::Replica;

/// How to connect and what to follow.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where servers are; tried in order, each in turn.
    pub endpoints: Vec<Endpoint>,
    /// The database, such as `OVN_Northbound`.
    pub database: String,
    /// What to follow.
    pub monitor: MonitorSpec,
    /// Indexes a [`Replica`] keeps beside those the schema declares.
    pub indexes: Vec<IndexSpec>,
    /// On a cluster: only talk to the leader, and follow it when it changes. Without a cluster no difference.
    pub leader_only: bool,
    /// Certificates for `ssl` endpoints.
    pub tls: Option<TlsFiles>,
    /// After this time without a message the server is asked for a sign of life, and given up when it has
    /// not answered for the same time again. Zero: never.
    pub probe_interval: Duration,
    /// How long connecting may take, TLS included.
    pub connect_timeout: Duration,
    /// How long the server may take to answer a request. Zero: for ever.
    pub rpc_timeout: Duration,
    /// The first wait after a failed attempt; doubled with each further one.
    pub backoff_min: Duration,
    /// The longest wait between attempts.
    pub backoff_max: Duration,
    /// How many rows may wait for the receiver of notices before the connection is no longer read.
    pub waiting_rows: usize,
}

/// What happened to the connection or to the data.
#[derive(Debug)]
pub enum Notice {
    /// Connected; transactions are possible, and a `Reset` or (after resuming) `Update`s follow.
    Up {
        /// The monitored part of the server's schema: the layout of the rows.
        schema: Arc<Schema>,
        /// What the server has.
        capabilities: Arc<Capabilities>,
    },
    /// The whole content; it replaces all that was known.
    Reset(Update),
    /// Changes to what is known.
    Update(Update),
    /// The connection is lost; what is known stays, but grows old.
    Down {
        /// Why, for the operator.
        reason: String,
    },
}

/// Why a transaction failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TxnError {
    /// There is no connection. Nothing was sent.
    #[error("not connected to the database")]
    NotConnected,
    /// The connection was lost, or the time was up, before the reply: it may have been made or not.
    #[error("the connection was lost before the reply: the transaction may or may not have been made")]
    Unknown,
    /// The server refused it; nothing of it took effect.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The server refused the request itself, or sent something that is not a reply.
    #[error("the server does not understand the transaction: {0}")]
    Protocol(String),
    /// The driver has stopped.
    #[error("the database client has been stopped")]
    Stopped,
}

/// Makes transactions. Cheap to clone; the connection ends when all clones and the receiver are dropped.
#[derive(Debug, Clone)]
pub struct Client {
    commands: mpsc::Sender<Command>,
}

#[derive(Debug)]
enum Command {
    Transact { ops: Vec<Op>, reply: oneshot::Sender<Result<Vec<OpResult>, TxnError>> },
    Reload,
}

/// Starts the driver task. It reconnects for ever, with capped backoff.
pub fn connect(options: Options) -> (Client, Notices) {
    let (queue, notices) = Notices::new();
    let (commands, requests) = mpsc::channel(64);
    tokio::spawn(driver::run(options, requests, driver::Sink::Queue(queue)));
    (Client { commands }, notices)
}

// === impl Options ===

impl Options {
    /// The defaults: follow nothing, probe every 5 s, backoff from 0.1 s to 8 s.
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>, database: impl Into<String>) -> Options {
        Options {
            endpoints: endpoints.into_iter().collect(),
            database: database.into(),
            monitor: MonitorSpec::none(),
            indexes: Vec::new(),
            leader_only: false,
            tls: None,
            probe_interval: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            rpc_timeout: Duration::from_secs(60),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(8),
            waiting_rows: 200_000,
        }
    }

    /// The defaults for a server on a unix socket.
    pub fn unix(path: impl Into<std::path::PathBuf>, database: impl Into<String>) -> Options {
        Options::new([Endpoint::Unix(path.into())], database)
    }

    /// Follows these tables.
    pub fn monitor(mut self, spec: MonitorSpec) -> Options {
        self.monitor = spec;
        self
    }

    /// Adds an index to what a [`Replica`] keeps.
    pub fn index(mut self, index: IndexSpec) -> Options {
        self.indexes.push(index);
        self
    }

    /// On a cluster, follow the leader.
    pub fn leader_only(mut self, yes: bool) -> Options {
        self.leader_only = yes;
        self
    }

    /// Uses these certificates for `ssl` endpoints.
    pub fn tls(mut self, files: TlsFiles) -> Options {
        self.tls = Some(files);
        self
    }

    /// Sets the inactivity probe; zero switches it off.
    pub fn probe_interval(mut self, interval: Duration) -> Options {
        self.probe_interval = interval;
        self
    }

    /// Sets the shortest and the longest wait between attempts to connect.
    pub fn backoff(mut self, min: Duration, max: Duration) -> Options {
        (self.backoff_min, self.backoff_max) = (min, max.max(min));
        self
    }
}

// === impl Client ===

impl Client {
    /// Makes a transaction, all of it or nothing. When this returns, the update that tells of it has been
    /// put before the receiver of notices. One result for each operation.
    pub async fn transact(&self, ops: Vec<Op>) -> Result<Vec<OpResult>, TxnError> {
        let (reply, result) = oneshot::channel();
        self.commands.send(Command::Transact { ops, reply }).await.map_err(|_| TxnError::Stopped)?;
        result.await.unwrap_or(Err(TxnError::Stopped))
    }

    /// Loads everything anew: a [`Notice::Reset`] follows. For when a cache turns out to be wrong.
    pub async fn reload(&self) {
        // A driver that has stopped has nothing left to load.
        let _ = self.commands.send(Command::Reload).await;
    }
}

// === impl TxnError ===

impl TxnError {
    /// What the server refused, if it did.
    pub fn rejection(&self) -> Option<&Rejection> {
        match self {
            TxnError::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }

    /// Whether the same transaction may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            TxnError::NotConnected | TxnError::Unknown => true,
            TxnError::Rejected(rejection) => rejection.is_transient(),
            TxnError::Protocol(_) | TxnError::Stopped => false,
        }
    }
}

impl From<TxnError> for io::Error {
    fn from(error: TxnError) -> io::Error {
        io::Error::other(error)
    }
}
