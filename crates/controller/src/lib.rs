//! The network controller of one zone: gives pods addresses and keeps OVN's databases as the cluster's objects
//! ask.
//!
//! [`Core`] decides and does no I/O; [`run`] connects it with the API server and the databases.

mod core;
mod io;
mod ledger;
mod pipeline;
pub mod planner;

pub use crate::core::{Core, Progress, watched};
pub use io::{Change, Input, Output, PatchError, TxnFailure};
pub use ledger::{Ledger, Refusal, Verdict};
