//! The whole cluster manager against an API server over a socket.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod leading;
mod nodes;
