//! What the network policy APIs mean, written down once more, for tests.
//!
//! The model reads manifests as they are and answers for one connection whether it passes and which rule decides. It is
//! slow and plain on purpose, follows the words of the API's documentation, and shares no code with the compiler: where the
//! two disagree, one of them is wrong. [`random`] makes clusters and policies to disagree about.

mod admin;
mod cluster;
mod json;
mod network_policy;
pub mod random;
mod selector;
pub mod tables;
mod verdict;

pub use cluster::{Cluster, ContainerPort, End, Node, Party, Pod, Protocol, Traffic};
pub use verdict::{Decision, Direction, PolicyName, Rule, Verdict, Why, verdict};
