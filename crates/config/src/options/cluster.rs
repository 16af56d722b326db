//! The cluster manager and the ways to join the cluster with other networks.

use crate::codec::*;
use crate::spec::section;
use ipnet::{Ipv4Net, Ipv6Net};
use std::time::Duration;

section! {
    /// `[clustermanager]`
    ClusterManager, "Pod network";
    /// IPv4 prefix of the switch that joins the nodes.
    v4_transit_subnet: Ipv4Net [SubnetV4<30>] = "cluster-manager-v4-transit-subnet", ["clustermanager.v4-transit-subnet"], "100.88.0.0/16";
    /// IPv6 prefix of the switch that joins the nodes.
    v6_transit_subnet: Ipv6Net [SubnetV6<126>] = "cluster-manager-v6-transit-subnet", ["clustermanager.v6-transit-subnet"], "fd97::/64";
}

section! {
    /// `[clustermgrha]`: leader election of the cluster manager.
    ClusterManagerHa, "Leader election";
    /// Time after which another instance may take over.
    lease_duration: Duration [Seconds] = "cluster-manager-ha-election-lease-duration", ["clustermgrha.election-lease-duration"], "137";
    /// Time the leader tries to renew before it gives up.
    renew_deadline: Duration [Seconds] = "cluster-manager-ha-election-renew-deadline", ["clustermgrha.election-renew-deadline"], "107";
    /// Time between attempts.
    retry_period: Duration [Seconds] = "cluster-manager-ha-election-retry-period", ["clustermgrha.election-retry-period"], "26";
}

section! {
    /// `[hybridoverlay]`: VXLAN to nodes without OVN.
    HybridOverlay, "Hybrid overlay";
    /// Reach nodes that do not run OVN over VXLAN.
    enabled: bool [Bool] = "enable-hybrid-overlay", ["hybridoverlay.enabled"], "false" { feature: Some("hybrid-overlay") };
    /// Prefixes of those nodes' pods.
    cluster_subnets: Vec<ClusterSubnet> [HybridSubnets] = "hybrid-overlay-cluster-subnets", ["hybridoverlay.cluster-subnets"], "" { feature: Some("hybrid-overlay") };
    /// UDP port of the tunnels to them.
    vxlan_port: u16 [Number<1, 65535, u16>] = "hybrid-overlay-vxlan-port", ["hybridoverlay.hybrid-overlay-vxlan-port"], "4789" { placeholder: "PORT", feature: Some("hybrid-overlay") };
}

section! {
    /// `[no-overlay]`
    NoOverlay, "No overlay";
    /// Whether traffic out of the cluster is masqueraded: enabled or disabled.
    outbound_snat: Option<OutboundSnat> [OptionalChoice<OutboundSnat>] = "no-overlay-outbound-snat", ["no-overlay.outbound-snat"], "" { flag: false, feature: Some("no-overlay") };
    /// Who sets up routing: managed or unmanaged.
    routing: Option<NoOverlayRouting> [OptionalChoice<NoOverlayRouting>] = "no-overlay-routing", ["no-overlay.routing"], "" { flag: false, feature: Some("no-overlay") };
}

section! {
    /// `[bgp-managed]`
    BgpManaged, "No overlay";
    /// Autonomous system of the cluster.
    as_number: u32 [Number<1, 4_294_967_295, u32>] = "bgp-managed-as-number", ["bgp-managed.as-number"], "64512" { flag: false, feature: Some("no-overlay") };
    /// Shape of the BGP sessions.
    topology: Option<BgpTopology> [OptionalChoice<BgpTopology>] = "bgp-managed-topology", ["bgp-managed.topology"], "full-mesh" { flag: false, feature: Some("no-overlay") };
    /// Namespace of the FRR configurations.
    frr_namespace: Option<String> [OptionalText] = "bgp-managed-frr-namespace", ["bgp-managed.frr-namespace"], "" { flag: false, feature: Some("no-overlay") };
}
