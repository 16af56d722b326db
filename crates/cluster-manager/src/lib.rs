//! What exactly one process of the cluster decides: node subnets, node ids and transit addresses.
//!
//! [`core`] is the pure part: it takes node events and patch results and says which patches and Events follow.
//! [`run`] joins it to the API: leader election, the watch on nodes, patches with many in flight.

pub mod core;
mod driver;
mod observe;
mod plan;

pub use driver::{Settings, StartError, run};
pub use observe::{NoMetrics, Observe};
pub use plan::{NetworkPlan, PlanError};
