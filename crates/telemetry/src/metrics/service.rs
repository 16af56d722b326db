//! Services: how long changes take to reach OVN.

use super::{
    Counter, Histogram,
    registry::{Declare, exponential},
};
use std::time::{Duration, SystemTime};

/// Metrics of services.
#[derive(Clone)]
pub struct ServiceMetrics {
    /// Services that asked for something the database refused; they are tried again.
    pub requeued: Counter,
    synced: Counter,
    latency: Histogram,
    programming: Histogram,
    started: SystemTime,
}

impl ServiceMetrics {
    pub(super) fn declare(d: &mut Declare<'_>) -> Self {
        let name = |n: &str| format!("ovnkube_controller_{n}");
        Self {
            requeued: d.counter(&name("requeue_service_total"), "Services that had to be tried again."),
            synced: d.counter(&name("sync_service_total"), "Changes of services that were written."),
            latency: d.histogram(
                &name("sync_service_latency_seconds"),
                "Time from a change of a service or its endpoints until the database holds it.",
                exponential(0.001, 2.0, 17),
            ),
            // The name is the one load tests look for, whichever program serves Services.
            programming: d.histogram(
                "kubeproxy_network_programming_duration_seconds",
                "Time from the change of a Pod or Service until its endpoints are programmed.",
                programming_buckets(),
            ),
            started: SystemTime::now(),
        }
    }

    /// Changes of a service are written: `took` since they were heard of, `triggers` when that happened which made its
    /// endpoints change. Times before the start of this process tell nothing about it and do not count.
    pub fn programmed(&self, took: Duration, triggers: &[SystemTime], now: SystemTime) {
        self.synced.inc();
        self.latency.observe(took);
        for trigger in triggers.iter().filter(|trigger| **trigger >= self.started) {
            self.programming.observe(now.duration_since(*trigger).unwrap_or_default());
        }
    }
}

/// Bounds that resolve quarters of a second at first, then seconds up to a minute, then up to five minutes coarser.
fn programming_buckets() -> Vec<f64> {
    let steps = |first: u32, step: u32, count: u32| (0..count).map(move |n| f64::from(first + n * step));
    let mut bounds = vec![0.25, 0.5];
    bounds.extend(steps(1, 1, 59).chain(steps(60, 5, 12)).chain(steps(120, 30, 7)));
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rise_to_five_minutes() {
        let bounds = programming_buckets();
        assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{bounds:?}");
        assert_eq!(bounds.last(), Some(&300.0));
    }
}
