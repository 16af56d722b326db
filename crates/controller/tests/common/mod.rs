//! What the tests of this crate share: a database in memory, objects, and a small world around the core.

#![expect(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod balance;
pub(crate) mod clients;
pub(crate) mod database;
pub(crate) mod dice;
pub(crate) mod objects;
pub(crate) mod service_history;
pub(crate) mod world;
