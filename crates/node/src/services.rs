//! Services on the host: node ports, external addresses, health checks, and connections to what is gone.
//!
//! ```text
//!  Services, EndpointSlices ──▶ ServiceBoard ──▶ HostService ─┬─▶ firewall entries   (pure, wants)
//!        (the controller's watch, or our own)                 ├─▶ bridge flows       (pure, gateway::service_flows)
//!                                                             ├─▶ open ports, health check servers
//!                                                             └─▶ connections to forget
//! ```
//! What two services want in one place goes to one of them (`ledger`). A change of a service writes what it changes and
//! nothing else; the passes of the agent compare the whole.

pub(crate) mod board;
mod claims;
mod forget;
mod health;
pub(crate) mod host_service;
mod ledger;
#[cfg(test)]
mod recorded;
pub(crate) mod state;
pub(crate) mod wants;

pub use board::ServiceBoard;
pub use host_service::{Endpoints, HostService};
pub(crate) use ledger::Turn;
pub(crate) use state::{Around, Delta, HostServices};
