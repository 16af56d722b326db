//! The cluster as tables: what the API holds, parsed once, with a record of which parts changed.
//!
//! Changes go in through `apply_*`, `remove_*` and `replace_*`; each marks the [`Key`]s whose desired rows may
//! differ now. Nothing here knows of OVN.

mod key;
mod labels;
mod namespaces;
mod nodes;
mod pods;
pub mod policies;
mod services;
mod tables;

pub use key::Key;
pub use labels::Labels;
pub use namespaces::NamespaceState;
pub use nodes::NodeState;
pub use pods::PodState;
pub use policies::{Policies, RuleKey};
pub use tables::World;
