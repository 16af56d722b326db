//! Which features exist in this build.

/// A feature that flags switch on or tune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Short name, as in [`crate::spec::Spec::feature`].
    pub name: &'static str,
    /// What operators call it.
    pub title: &'static str,
    /// Whether this build has it. Settings of the others are accepted with a warning.
    pub built: bool,
}

const fn later(name: &'static str, title: &'static str) -> Feature {
    Feature { name, title, built: false }
}

/// All features, by name. Turn `built` on with the change that builds one.
pub const FEATURES: &[Feature] = &[
    Feature { name: "acl-logging", title: "logging of policy decisions", built: true },
    Feature { name: "admin-network-policy", title: "AdminNetworkPolicy", built: true },
    later("config-duration", "measuring configuration durations"),
    later("dpu", "data processing units"),
    later("egress-firewall", "EgressFirewall"),
    later("egress-ip", "EgressIP"),
    later("egress-qos", "EgressQoS"),
    later("egress-service", "EgressService"),
    later("empty-lb-events", "events for Services without endpoints"),
    later("flow-export", "NetFlow, sFlow and IPFIX"),
    Feature { name: "gateway", title: "the gateway", built: true },
    later("hybrid-overlay", "the hybrid overlay"),
    later("multi-external-gateway", "AdminPolicyBasedExternalRoute"),
    later("multi-network", "secondary networks"),
    later("multicast", "multicast"),
    Feature { name: "network-policy", title: "NetworkPolicy", built: true },
    later("network-qos", "NetworkQoS"),
    later("network-segmentation", "user-defined networks"),
    later("no-overlay", "transport without overlay"),
    later("node-identity", "certificates of the node's own"),
    later("observability", "observability samples"),
    later("ovs-metrics", "metrics of Open vSwitch"),
    later("ovsdb-log", "a separate log of database transactions"),
    later("persistent-ips", "persistent addresses"),
    later("route-advertisements", "RouteAdvertisements"),
    later("scale-metrics", "metrics for scale"),
    Feature { name: "services", title: "Service load balancers", built: true },
    later("udp-aggregation", "UDP aggregation"),
];

/// The feature of that name.
pub fn feature(name: &str) -> Option<&'static Feature> {
    FEATURES.iter().find(|f| f.name == name)
}
