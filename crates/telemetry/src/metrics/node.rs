//! `ovnkube_node_*`

use super::{
    BuildInfo, Gauge,
    registry::{Declare, exponential},
};
use prometheus::HistogramVec;
use std::{path::PathBuf, time::Duration};

/// Metrics of the node agent.
#[derive(Clone)]
pub struct NodeMetrics {
    /// Process start to ready, in seconds.
    pub ready_duration: Gauge,
    /// 1 if node ports are served.
    pub nodeport_enabled: Gauge,
    cni_request_duration: HistogramVec,
}

impl NodeMetrics {
    pub(super) fn declare(d: &mut Declare<'_>, build: BuildInfo, log_files: &[PathBuf]) -> Self {
        d.build_info("node", build);
        log_sizes(d, "node", log_files);
        Self {
            ready_duration: d.gauge(
                "ovnkube_node_ready_duration_seconds",
                "Seconds from the start of the process until the node agent was ready.",
            ),
            nodeport_enabled: d.gauge("ovnkube_node_nodeport_enabled", "1 if node ports are served, else 0."),
            cni_request_duration: d.histograms(
                "ovnkube_node_cni_request_duration_seconds",
                "Time of CNI requests as the shim measured it.",
                &["command", "err"],
                exponential(0.1, 2.0, 15),
            ),
        }
    }

    /// The shim was busy this long with one CNI command (`ADD`, `DEL`, …; anything else counts as `other`).
    pub fn cni_request(&self, command: &str, failed: bool, took: Duration) {
        const COMMANDS: [&str; 7] = ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "UPDATE"];
        let command = COMMANDS.into_iter().find(|c| *c == command).unwrap_or("other");
        let err = if failed { "true" } else { "false" };
        self.cni_request_duration.with_label_values(&[command, err]).observe(took.as_secs_f64());
    }
}

/// Sizes of log files, read at each scrape.
pub(super) fn log_sizes(d: &mut Declare<'_>, subsystem: &str, files: &[PathBuf]) {
    let sizes = d.gauges(
        &format!("ovnkube_{subsystem}_logfile_size_bytes"),
        "Size of a log file.",
        &["logfile_name"],
    );
    let files = files.to_vec();
    d.hook(move || {
        for path in &files {
            let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
            match std::fs::metadata(path) {
                Ok(metadata) => sizes.with_label_values(&[&name]).set(metadata.len() as f64),
                // A file that is gone has no series; there is nothing to do about one that never had.
                Err(_) => _ = sizes.remove_label_values(&[&name]),
            }
        }
    });
}
