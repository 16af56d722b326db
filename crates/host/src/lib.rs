//! Linux plumbing: network namespaces, links, addresses, routes, rules, neighbours, sysctls, offloads, tracked connections.
//!
//! Everything is synchronous. A [`Handle`] is a route-netlink socket bound for ever to the namespace it was
//! opened in, so it may be used from any thread; only what the kernel ties to the *calling thread's* namespace
//! (opening sockets, `/proc/sys/net`) goes through [`netns::NetNs::run`], which uses a thread of its own.
//!
//! ```text
//!   NetNs::open(path) ──handle()──▶ Handle ──▶ links · addresses · routes · rules · neighbours · ethtool
//!        └──run(|| …) on a dedicated thread ──▶ sysctl · announce · anything else
//! ```
//!
//! The netlink encoding is our own (see `wire`): a dozen messages are needed, unknown attributes of newer kernels
//! must never be an error, and the CNI shim that links this crate has to stay small.

pub mod addr;
pub mod announce;
pub mod attach;
pub mod conntrack;

mod error;
pub mod ethtool;
pub mod firewall;
pub mod link;
pub mod memory;
pub mod monitor;
pub mod neigh;
pub mod netns;
pub mod process;
pub mod route;
pub mod rule;
mod sock;
pub mod sysctl;
mod wire;

pub use error::{Error, Result};
pub use netns::NetNs;
pub use sock::Handle;

/// A hardware address as the kernel wants it.
pub type MacBytes = [u8; 6];
