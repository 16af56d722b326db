//! What people read: `--help`, the effective configuration, the reference page, shell completion.

mod complete;
mod help;
mod reference;
mod show;

pub use complete::{Shell, completion};
pub use help::help;
pub use reference::reference;
pub use show::{Format, show};
