//! The client against real ovsdb-servers.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without must fail it")]

mod blocking;
mod cluster;
mod reconnect;
mod server;
mod tls;
mod transactions;
