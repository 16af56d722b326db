//! The network controller of one zone: gives pods addresses and keeps OVN's databases as the cluster's objects
//! ask.
//!
//! [`Core`] decides and does no I/O; [`run`] connects it with the API server and the databases.

mod core;
mod driver;
mod feed;
mod io;
mod ledger;
mod observer;
mod pipeline;
pub mod planner;

pub use crate::core::{Core, Progress, watched};
pub use compile::Settings;
pub use driver::{Error, Options, run};
pub use io::{Change, Input, Output, PatchError, TxnFailure, Unreadable};
pub use ledger::{Ledger, Refusal, Verdict};
pub use observer::{Event, Observer};
