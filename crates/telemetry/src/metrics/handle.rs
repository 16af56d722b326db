//! Plain handles.

use std::time::Duration;

/// A number that only grows.
#[derive(Clone)]
pub struct Counter(pub(super) prometheus::IntCounter);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.0.inc();
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.inc_by(n);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A number that goes up and down.
#[derive(Clone)]
pub struct Gauge(pub(super) prometheus::Gauge);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, value: f64) {
        self.0.set(value);
    }

    /// 1 or 0.
    pub fn set_bool(&self, value: bool) {
        self.0.set(f64::from(u8::from(value)));
    }

    /// The value now.
    pub fn get(&self) -> f64 {
        self.0.get()
    }
}

/// A distribution of durations, in seconds.
#[derive(Clone)]
pub struct Histogram(pub(super) prometheus::Histogram);

impl Histogram {
    /// Adds one duration.
    pub fn observe(&self, duration: Duration) {
        self.0.observe(duration.as_secs_f64());
    }

    /// How many were observed.
    pub fn count(&self) -> u64 {
        self.0.get_sample_count()
    }
}
