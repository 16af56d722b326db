//! What the reference implementation wrote for given inputs, and the comparison of our rows with it.
//!
//! `data/` holds recorded scenarios: the objects applied, the annotations and statuses that resulted, and each
//! node's Northbound database in canonical form. `pending.txt` lists rows of features that are still to come,
//! `differences.txt` what differs on purpose.

mod canonical;
mod compare;
mod record;

pub use canonical::{Rows, canonical};
pub use compare::{Report, compare};
pub use record::Scenario;
