//! What the outside sees of the process: log, metrics, health and the servers for them.
//!
//! ```text
//!   tracing events ──▶ log ──▶ standard error or a rotated file      level: PUT /debug/flags/v
//!   roles ──▶ metrics (typed handles) ──▶ registry ──┐
//!   roles ──▶ health (named checks) ─────────────────┴──▶ admin: /metrics /healthz /readyz, on a thread of its own
//! ```
//!
//! No other crate needs the prometheus crate: handles are cheap clones with plain methods.

pub mod admin;
mod clock;
pub mod health;
pub mod log;
pub mod metrics;

pub use admin::{Admin, AdminSettings};
pub use health::{Check, Health};
pub use log::{LogControl, LogSettings};
pub use metrics::{BuildInfo, Metrics, Roles};

/// Everything a role needs to be observed.
#[derive(Clone)]
pub struct Telemetry {
    /// Changes the log level.
    pub log: LogControl,
    /// Handles of all metrics.
    pub metrics: Metrics,
    /// Named checks of liveness and readiness.
    pub health: Health,
}
