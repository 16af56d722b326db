//! OVSDB (RFC 7047 and ovsdb-server's `monitor_cond_since`): values, schemas, a cache with indexes,
//! transactions; with feature `client` the connection that keeps a cache current.
//!
//! ```text
//!  server ══ bytes ══▶ frame ── row by row ──▶ decode ──▶ Update ──▶ Cache::apply ──▶ RowChange
//!         ◀══ bytes ══ Op ◀── diff(row, wanted columns)
//! ```
//!
//! Everything outside [`client`] and [`blocking`] is pure: no sockets, no clock, no randomness.
#![cfg_attr(not(feature = "client"), expect(dead_code, reason = "only the client drives a session"))]

mod atom;
pub mod blocking;
mod cache;
#[cfg(feature = "client")]
pub mod client;
mod datum;
mod decode;
mod diff;
mod frame;
mod index;
mod op;
mod result;
mod row;
mod rpc;
mod schema;
mod session;
mod update;
mod uuid;

pub use atom::{Atom, Real};
pub use cache::{Cache, Found, Table};
#[cfg(feature = "client")]
pub use client::{Client, Endpoint, Notice, Notices, Options, Replica, TlsFiles, TxnError, connect};
pub use datum::Datum;
pub use decode::{Fields, datum as decode_datum};
pub use diff::diff;
pub use index::{IndexKey, IndexSpec};
pub use op::{Columns as ColumnValues, Condition, Filter, Function, Mutation, Mutator, Name, Op};
pub use result::{OpResult, Rejection};
pub use row::Row;
pub use schema::{
    AtomKind, BaseType, Capabilities, ColumnSchema, ColumnType, Columns, MonitorSpec, Schema, SchemaError,
    TableSchema,
};
pub use update::{RowChange, Update};
pub use uuid::{Uuid, UuidError};
