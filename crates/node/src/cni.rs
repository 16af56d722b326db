//! The CNI server: requests of the shim on a unix socket, and everything a pod's attachment needs on this node.
//!
//! ```text
//!  shim ──HTTP──▶ server ──▶ turns (one request of a pod at a time, the newest sandbox wins)
//!                              └──▶ add · del · check · gc · status
//!                                    │ waits: PodBoard (annotation, UID), Ports (ovn-installed)
//!                                    └ writes: host (veth, addresses), Ports (one OVSDB transaction)
//! ```
//!
//! Every wait ends by an event; the whole of an ADD is bounded by [`CniSettings::add_timeout`], and whatever it made
//! is undone if it fails or if its caller goes away.

mod add;
pub mod bandwidth;
mod check;
mod context;
mod del;
pub mod diagnose;
mod failure;
mod forget;
mod gc;
mod handle;
mod limits;
mod links;
mod observe;
mod plug;
mod ports;
mod progress;
mod server;
mod settings;
mod socket;
mod stale;
mod turns;
mod undo;

pub use context::{CniServer, Readiness};
pub use observe::{NoObserver, Observer, Stage};
pub use ports::Ports;
pub use server::serve;
pub use settings::CniSettings;
