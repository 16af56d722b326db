//! Which events are written.

use std::sync::atomic::{AtomicU8, Ordering};
use tracing::{Level, Metadata, level_filters::LevelFilter};

/// First part of the targets of crates that speak about their own inner workings; below [`FOREIGN`] only their warnings are news.
const QUIET: &[&str] = &[
    "hyper",
    "hyper_util",
    "h2",
    "kube",
    "kube_client",
    "kube_runtime",
    "mio",
    "rustls",
    "tokio",
    "tokio_util",
    "tower",
    "want",
];

/// From this level on the quiet crates are heard too.
const FOREIGN: u8 = 6;

/// The level, changeable by any thread.
#[derive(Debug)]
pub(crate) struct Verbosity(AtomicU8);

impl Verbosity {
    pub(crate) fn new(level: u8) -> Self {
        Self(AtomicU8::new(level))
    }

    pub(crate) fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, level: u8) {
        self.0.store(level, Ordering::Relaxed);
    }

    /// The most verbose tracing level that anything may have.
    pub(crate) fn most(&self) -> LevelFilter {
        match self.get() {
            0..=2 => LevelFilter::ERROR,
            3 => LevelFilter::WARN,
            4 => LevelFilter::INFO,
            5 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        }
    }

    pub(crate) fn writes(&self, metadata: &Metadata<'_>) -> bool {
        let level = *metadata.level();
        let krate = metadata.target().split("::").next().unwrap_or_default();
        let heard = level <= Level::WARN || self.get() >= FOREIGN || !QUIET.contains(&krate);
        heard && level <= self.most()
    }
}
