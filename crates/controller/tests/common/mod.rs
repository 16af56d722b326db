//! What the tests of this crate share: a database in memory, objects, and a small world around the core.

pub(crate) mod database;
pub(crate) mod objects;
pub(crate) mod world;
