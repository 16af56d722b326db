//! Policies, the pods they are about, and what of them a change concerns.
//!
//! Every distinct selection of pods, as subject or as peer of a rule, is kept once with its members. A pod's change
//! is looked up by its namespace and labels, so it costs by the selections that hold the pod, not by the policies
//! or pods there are.

mod index;
mod layout;
mod named;
mod peer;
mod selected;
mod table;

pub use layout::Layout;
pub use named::{PortSet, ResolvedPort};
pub use peer::PeerPod;
pub use table::Policies;

use policy::{Direction, PolicyId};

/// One rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleKey {
    /// The policy.
    pub policy: PolicyId,
    /// The rule's direction.
    pub direction: Direction,
    /// The rule's place among those of its direction.
    pub index: usize,
}
