//! Services in normal form: what a Service and its EndpointSlices mean on one node.
//!
//! Three steps, each with its own types:
//!
//! 1. [`Service`] and [`Slice`] are the objects, read once, small, with everything resolved that needs no other
//!    object. What cannot be used is left out and named in their `problems`.
//! 2. [`Services`] joins them by the label on the slices. It owns both, and tells which service a change concerns.
//! 3. [`View`] answers, for one service seen from one [`Place`], which endpoints each port has: ready ones, or those
//!    that are going away but still serve when there are no others; each address and port once however many slices
//!    list it; near ones where hints say so; and separately those on this node, for the `Local` policies.
//!
//! A service that nobody balances (headless, ExternalName, given to another implementation by label) has no
//! [`Service`] at all. Addresses clients use are [`Service::frontends`]. Nothing here knows of OVN or of the host; which
//! endpoints are on a host's network is decided by the users, who know the cluster's ranges.

mod frontend;
mod names;
mod read;
mod slice;
mod table;
mod view;

pub use frontend::{Frontend, FrontendKind};
pub use read::{MAX_AFFINITY, Port, Service};
pub use slice::{Endpoint, Hints, Slice, SlicePort};
pub use table::{Changed, Services};
pub use view::{Backend, Place, PortView, View};
