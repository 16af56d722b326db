//! From desired rows and what a database holds to the least transaction between them.
//!
//! A [`Mirror`] is a database's contents with an index by our names and owners. [`Mirror::plan`] compares, owner
//! by owner: rows asked for are inserted or corrected, rows of the owner nobody asks for go. Start-up, resync and
//! the taking over of another implementation's rows are the same comparison.

mod few;
mod index;
mod mentions;
mod plan;

pub use index::Mirror;
pub use plan::Plan;
