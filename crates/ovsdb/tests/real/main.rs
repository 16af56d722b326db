//! The client against real ovsdb-servers.

mod server;
mod transactions;
