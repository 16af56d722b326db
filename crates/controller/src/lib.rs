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
mod policy_status;

pub use crate::core::{Core, Progress, watched};
pub use compile::{PolicySettings, Settings};
pub use driver::{Error, Options, run};
pub use io::{Change, Input, Output, PatchError, PolicyCondition, PolicyObject, TxnFailure, Unreadable};
pub use ledger::{Ledger, Refusal, Verdict};
pub use observer::{Event, Observer};
