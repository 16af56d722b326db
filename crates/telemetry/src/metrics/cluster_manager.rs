//! `ovnkube_clustermanager_*`

use super::{BuildInfo, Gauge, registry::Declare};
use prometheus::GaugeVec;

/// Metrics of the cluster manager.
#[derive(Clone)]
pub struct ClusterManagerMetrics {
    /// 1 while this instance leads.
    pub leader: Gauge,
    /// Process start to ready, in seconds.
    pub ready_duration: Gauge,
    /// Possible node subnets of each network: IPv4, IPv6.
    subnets: [GaugeVec; 2],
    /// Node subnets handed out of each network: IPv4, IPv6.
    allocated: [GaugeVec; 2],
}

impl ClusterManagerMetrics {
    pub(super) fn declare(d: &mut Declare<'_>, build: BuildInfo) -> Self {
        let name = |n: &str| format!("ovnkube_clustermanager_{n}");
        d.build_info("clustermanager", build);
        Self {
            leader: d.gauge(&name("leader"), "1 while this instance leads, else 0."),
            ready_duration: d.gauge(
                &name("ready_duration_seconds"),
                "Seconds from the start of the process until the cluster manager was ready.",
            ),
            subnets: ["v4", "v6"].map(|family| {
                let help = format!("Node subnets (IP{family}) that the prefixes of a network can yield.");
                d.gauges(&name(&format!("num_{family}_host_subnets")), &help, &["network_name"])
            }),
            allocated: ["v4", "v6"].map(|family| {
                let help = format!("Node subnets (IP{family}) of a network that nodes hold.");
                d.gauges(&name(&format!("allocated_{family}_host_subnets")), &help, &["network_name"])
            }),
        }
    }

    /// Node subnets of a network: how many there can be and how many are handed out, by family.
    pub fn host_subnets(&self, network: &str, v6: bool, possible: f64, allocated: f64) {
        let family = usize::from(v6);
        self.subnets[family].with_label_values(&[network]).set(possible);
        self.allocated[family].with_label_values(&[network]).set(allocated);
    }

    /// The network is gone and so are its series.
    pub fn forget_network(&self, network: &str) {
        for family in self.subnets.iter().chain(&self.allocated) {
            // It fails only where there was no series.
            let _ = family.remove_label_values(&[network]);
        }
    }
}
