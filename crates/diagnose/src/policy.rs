//! Network policies explained: is this packet allowed, by what, and what would a change change.
//!
//! Everything is judged on [`policy::Policy`], the form the compiler works from, so what is said here is what the rows in
//! the database mean.

mod acl;
mod classes;
mod cluster;
mod decide;
mod describe;
mod diff;
mod explain;
mod load;
mod party;
mod ports;
mod reach;
mod suggest;

pub use acl::AclName;
pub use cluster::{Cluster, Settings};
pub use decide::{Answer, Decision, PolicyName, Reason, RuleName, Verdict, check};
pub use diff::{Change, Diff, diff};
pub use explain::{Explanation, Isolation, Reach, RuleText, Selected, explain};
pub use load::{LoadError, Loaded};
pub use party::{Party, PartyError, Question, Traffic};
pub use ports::PortSet;
