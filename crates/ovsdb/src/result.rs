//! Results of transactions.

use crate::{Uuid, decode::Fields};

/// What one operation gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpResult {
    /// The rows an update, mutate or delete found.
    pub count: u64,
    /// The identity of the row inserted.
    pub uuid: Option<Uuid>,
    /// The rows a select found.
    pub rows: Vec<Fields>,
}

/// Why the server did not make a transaction. Nothing of it took effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {error}{}", place(.op_index, .table), if details.is_empty() { String::new() } else { format!(" ({details})") })]
pub struct Rejection {
    /// The operation that failed; absent when it was the commit as a whole.
    pub op_index: Option<usize>,
    /// The table it concerned.
    pub table: String,
    /// The error as RFC 7047 names it, such as `constraint violation`.
    pub error: String,
    /// What the server says about it.
    pub details: String,
}

fn place(op_index: &Option<usize>, table: &str) -> String {
    match op_index {
        Some(index) if table.is_empty() => format!("operation {index} refused"),
        Some(index) => format!("operation {index} on {table} refused"),
        None => "transaction refused at commit".to_owned(),
    }
}

// === impl Rejection ===

impl Rejection {
    /// Whether an insert was refused because its identity exists: an earlier attempt of the same
    /// transaction has been made after all, or the identity is taken.
    pub fn is_duplicate_uuid(&self) -> bool {
        self.error == "duplicate uuid"
    }

    /// Whether a wait was not met: the database is not as the transaction assumed, which has to be made anew
    /// from what the database holds now.
    pub fn is_stale(&self) -> bool {
        self.error == "timed out"
    }

    /// Whether repeating the same transaction may succeed, because the server could not make it now.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.error.as_str(),
            "not leader"
                | "cluster error"
                | "disconnected"
                | "resources exhausted"
                | "I/O error"
                | "canceled"
        )
    }
}
