//! Figures for the outside, without a metrics library in this crate.

use std::time::Duration;

use net::Family;

/// Receives the figures behind the `ovnkube_clustermanager_*` metrics. All calls are quick and must not block.
pub trait Observe: Send + Sync + 'static {
    /// Whether this process leads (`leader`).
    fn leader(&self, leads: bool);

    /// Node subnets of a network and family: handed out (`allocated_v4_host_subnets` …) and how many the CIDRs
    /// hold (`num_v4_host_subnets` …). Called when a figure changed.
    fn host_subnets(&self, network: &str, family: Family, allocated: u64, capacity: u64);

    /// Start until ready (`ready_duration_seconds`), once: leading with all nodes looked at, or standing by.
    fn ready(&self, after: Duration);
}

/// Takes no notice.
pub struct NoMetrics;

impl Observe for NoMetrics {
    fn leader(&self, _leads: bool) {}

    fn host_subnets(&self, _network: &str, _family: Family, _allocated: u64, _capacity: u64) {}

    fn ready(&self, _after: Duration) {}
}
