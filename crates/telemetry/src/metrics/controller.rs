//! `ovnkube_controller_*`

use super::{
    BuildInfo, Counter, Gauge, Histogram,
    node::log_sizes,
    registry::{Declare, exponential},
};
use prometheus::{GaugeVec, IntCounterVec};
use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceEvent {
    /// It appeared.
    Add,
    /// It changed.
    Update,
    /// It went.
    Delete,
}

/// Metrics of the network controller.
#[derive(Clone)]
pub struct ControllerMetrics {
    /// Process start to ready, in seconds.
    pub ready_duration: Gauge,
    /// 1 in local gateway mode.
    pub egress_routing_via_host: Gauge,
    /// 1 where traffic between nodes is encrypted.
    pub ipsec_enabled: Gauge,
    /// UNIX time last written to NB_Global.
    pub nb_e2e_timestamp: Gauge,
    /// UNIX time last seen in SB_Global.
    pub sb_e2e_timestamp: Gauge,
    /// Objects given up after the last retry.
    pub retry_failures: Counter,
    /// The steps of a pod's port until it is up.
    pub pod_steps: PodSteps,
    sync_duration: GaugeVec,
    resource_update: IntCounterVec,
    latencies: [Histogram; 3],
    pod_creation_latency: Histogram,
    started: SystemTime,
}

/// The four histograms from a pod's first sight to its port being up.
///
/// Observe only pods whose addition this process saw as an event, never those of the first list: they would count old pods
/// again after each restart.
#[derive(Clone)]
pub struct PodSteps {
    /// First seen → logical switch port created.
    pub first_seen_to_port: Histogram,
    /// Logical switch port created → port binding seen.
    pub port_to_binding: Histogram,
    /// Port binding seen → bound to a chassis.
    pub binding_to_chassis: Histogram,
    /// Bound to a chassis → up.
    pub chassis_to_up: Histogram,
}

impl ControllerMetrics {
    pub(super) fn declare(d: &mut Declare<'_>, build: BuildInfo, log_files: &[PathBuf]) -> Self {
        let name = |n: &str| format!("ovnkube_controller_{n}");
        let slow = || exponential(0.1, 2.0, 15);
        let quick = || exponential(0.01, 2.0, 15);
        d.build_info("controller", build);
        log_sizes(d, "controller", log_files);
        Self {
            ready_duration: d.gauge(
                &name("ready_duration_seconds"),
                "Seconds from the start of the process until the controller was ready.",
            ),
            egress_routing_via_host: d.gauge(
                &name("egress_routing_via_host"),
                "1 if traffic leaves through the host's network stack (local gateway mode), else 0.",
            ),
            ipsec_enabled: d
                .gauge(&name("ipsec_enabled"), "1 if traffic between nodes is encrypted, else 0."),
            nb_e2e_timestamp: d
                .gauge(&name("nb_e2e_timestamp"), "UNIX time last written to the Northbound database."),
            sb_e2e_timestamp: d.gauge(
                &name("sb_e2e_timestamp"),
                "UNIX time of the Northbound database last seen in the Southbound database.",
            ),
            retry_failures: d.counter(
                "ovnkube_resource_retry_failures_total",
                "Objects that were given up after the last retry.",
            ),
            pod_steps: PodSteps {
                first_seen_to_port: d.histogram(
                    &name("pod_first_seen_lsp_created_duration_seconds"),
                    "Time from the first sight of a pod until its logical switch port exists.",
                    quick(),
                ),
                port_to_binding: d.histogram(
                    &name("pod_lsp_created_port_binding_duration_seconds"),
                    "Time from a pod's logical switch port until its port binding exists.",
                    quick(),
                ),
                binding_to_chassis: d.histogram(
                    &name("pod_port_binding_port_binding_chassis_duration_seconds"),
                    "Time from a pod's port binding until it has a chassis.",
                    quick(),
                ),
                chassis_to_up: d.histogram(
                    &name("pod_port_binding_chassis_port_binding_up_duration_seconds"),
                    "Time from the chassis of a pod's port binding until it is up.",
                    quick(),
                ),
            },
            sync_duration: d.gauges(
                &name("sync_duration_seconds"),
                "Seconds the first synchronisation of a kind of object took.",
                &["resource_name"],
            ),
            resource_update: d.counters(
                &name("resource_update_total"),
                "Events of objects that were handled.",
                &["name", "event"],
            ),
            latencies: ["add", "update", "delete"].map(|event| {
                let help = format!("Time to handle one event ({event}) of an object.");
                d.histogram(&name(&format!("resource_{event}_latency_seconds")), &help, slow())
            }),
            pod_creation_latency: d.histogram(
                &name("pod_creation_latency_seconds"),
                "Time from the scheduling of a pod until its logical switch port is set up.",
                slow(),
            ),
            started: SystemTime::now(),
        }
    }

    /// How long the first synchronisation of a kind took.
    pub fn synced(&self, resource: &'static str, took: Duration) {
        self.sync_duration.with_label_values(&[resource]).set(took.as_secs_f64());
    }

    /// One event of an object of this kind was handled. Kinds are fixed words, so the number of series is bounded.
    pub fn resource_handled(&self, kind: &'static str, event: ResourceEvent, took: Duration) {
        let (word, latency) = match event {
            ResourceEvent::Add => ("add", &self.latencies[0]),
            ResourceEvent::Update => ("update", &self.latencies[1]),
            ResourceEvent::Delete => ("delete", &self.latencies[2]),
        };
        self.resource_update.with_label_values(&[kind, word]).inc();
        latency.observe(took);
    }

    /// A pod scheduled at `scheduled` has its port at `done`.
    ///
    /// Pods scheduled before this process started are left out: a restart meets them all again, and their age is not the
    /// time we took. Returns whether it was counted.
    pub fn pod_created(&self, scheduled: SystemTime, done: SystemTime) -> bool {
        // The API's times are whole seconds: a pod of our first second may seem to be from before it.
        let counted = scheduled + Duration::from_secs(1) > self.started;
        if counted {
            self.pod_creation_latency.observe(done.duration_since(scheduled).unwrap_or_default());
        }
        counted
    }

    /// How many creations were counted.
    pub fn pods_created(&self) -> u64 {
        self.pod_creation_latency.count()
    }
}
