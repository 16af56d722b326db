//! The databases of OVN and Open vSwitch: typed rows generated from their schemas, and the names of our objects.

pub mod names;
pub mod nb;
pub mod row;
pub mod sb;
pub mod vswitch;

pub use row::Table;
