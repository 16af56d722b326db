//! The CNI server against a real Open vSwitch, each test in a namespace of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attach;
mod bandwidth;
mod burst;
mod del;
mod faults;
mod rig;
mod sandboxes;
mod versions;
