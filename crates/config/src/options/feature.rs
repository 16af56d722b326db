//! Switches of features.

use crate::codec::*;
use crate::spec::section;
use std::time::Duration;

section! {
    /// `[ovnkubernetesfeature]`
    Features, "Features";
    /// AdminNetworkPolicy and BaselineAdminNetworkPolicy.
    admin_network_policy: bool [Bool] = "enable-admin-network-policy", ["ovnkubernetesfeature.enable-admin-network-policy"], "false" { feature: Some("admin-network-policy") };
    /// EgressIP.
    egress_ip: bool [Bool] = "enable-egress-ip", ["ovnkubernetesfeature.enable-egress-ip"], "false" { feature: Some("egress-ip") };
    /// Time after which an egress node that does not answer counts as gone; 0 disables the check.
    egressip_reachability_total_timeout: Duration [Seconds] = "egressip-reachability-total-timeout", ["ovnkubernetesfeature.egressip-reachability-total-timeout"], "1" { feature: Some("egress-ip") };
    /// Port on which egress nodes are checked; 0 takes the discard port.
    egressip_node_healthcheck_port: u16 [Number<0, 65535, u16>] = "egressip-node-healthcheck-port", ["ovnkubernetesfeature.egressip-node-healthcheck-port"], "0" { placeholder: "PORT", feature: Some("egress-ip") };
    /// EgressFirewall.
    egress_firewall: bool [Bool] = "enable-egress-firewall", ["ovnkubernetesfeature.enable-egress-firewall"], "false" { feature: Some("egress-firewall") };
    /// EgressQoS.
    egress_qos: bool [Bool] = "enable-egress-qos", ["ovnkubernetesfeature.enable-egress-qos"], "false" { feature: Some("egress-qos") };
    /// EgressService.
    egress_service: bool [Bool] = "enable-egress-service", ["ovnkubernetesfeature.enable-egress-service"], "false" { feature: Some("egress-service") };
    /// Secondary networks.
    multi_network: bool [Bool] = "enable-multi-network", ["ovnkubernetesfeature.enable-multi-network"], "false" { feature: Some("multi-network") };
    /// MultiNetworkPolicy.
    multi_networkpolicy: bool [Bool] = "enable-multi-networkpolicy", ["ovnkubernetesfeature.enable-multi-networkpolicy"], "false" { feature: Some("multi-network") };
    /// User-defined networks; needs enable-multi-network.
    network_segmentation: bool [Bool] = "enable-network-segmentation", ["ovnkubernetesfeature.enable-network-segmentation"], "false" { feature: Some("network-segmentation") };
    /// ClusterNetworkConnect.
    network_connect: bool [Bool] = "enable-network-connect", ["ovnkubernetesfeature.enable-network-connect"], "false" { feature: Some("network-segmentation") };
    /// Uplink; needs enable-network-segmentation.
    uplink: bool [Bool] = "enable-uplink", ["ovnkubernetesfeature.enable-uplink"], "false" { feature: Some("network-segmentation") };
    /// Addresses chosen by the user on primary user-defined networks.
    preconfigured_udn_addresses: bool [Bool] = "enable-preconfigured-udn-addresses", ["ovnkubernetesfeature.enable-preconfigured-udn-addresses"], "false" { feature: Some("network-segmentation") };
    /// RouteAdvertisements over BGP.
    route_advertisements: bool [Bool] = "enable-route-advertisements", ["ovnkubernetesfeature.enable-route-advertisements"], "false" { feature: Some("route-advertisements") };
    /// EVPN; needs enable-route-advertisements.
    evpn: bool [Bool] = "enable-evpn", ["ovnkubernetesfeature.enable-evpn"], "false" { feature: Some("route-advertisements") };
    /// How advertised user-defined networks are kept apart: strict or loose.
    advertised_udn_isolation_mode: IsolationMode [Choice<IsolationMode>] = "advertised-udn-isolation-mode", ["ovnkubernetesfeature.advertised-udn-isolation-mode"], "strict" { feature: Some("route-advertisements") };
    /// AdminPolicyBasedExternalRoute.
    multi_external_gateway: bool [Bool] = "enable-multi-external-gateway", ["ovnkubernetesfeature.enable-multi-external-gateway"], "false" { feature: Some("multi-external-gateway") };
    /// NetworkPolicy without connection tracking, where a policy asks for it.
    stateless_netpol: bool [Bool] = "enable-stateless-netpol", ["ovnkubernetesfeature.enable-stateless-netpol"], "false" { feature: Some("network-policy") };
    /// Let ICMP pass policies that isolate a pod.
    allow_icmp_network_policy: bool [Bool] = "allow-icmp-network-policy", ["ovnkubernetesfeature.allow-icmp-network-policy"], "false" { feature: Some("network-policy") };
    /// Addresses that outlive a pod (IPAMClaim).
    persistent_ips: bool [Bool] = "enable-persistent-ips", ["ovnkubernetesfeature.enable-persistent-ips"], "false" { feature: Some("persistent-ips") };
    /// Resolve names of EgressFirewall through DNSNameResolver objects.
    dns_name_resolver: bool [Bool] = "enable-dns-name-resolver", ["ovnkubernetesfeature.enable-dns-name-resolver"], "false" { feature: Some("egress-firewall") };
    /// Load balancer templates.
    svc_template_support: bool [Bool] = "enable-svc-template-support", ["ovnkubernetesfeature.enable-svc-template-support"], "false" { feature: Some("services") };
    /// Samples of policy decisions.
    observability: bool [Bool] = "enable-observability", ["ovnkubernetesfeature.enable-observability"], "false" { feature: Some("observability") };
    /// NetworkQoS.
    network_qos: bool [Bool] = "enable-network-qos", ["ovnkubernetesfeature.enable-network-qos"], "false" { feature: Some("network-qos") };
    /// Set up a user-defined network only on nodes that need it; needs enable-network-segmentation.
    dynamic_udn_allocation: bool [Bool] = "enable-dynamic-udn-allocation", ["ovnkubernetesfeature.enable-dynamic-udn-allocation"], "false" { feature: Some("network-segmentation") };
    /// Time an unneeded user-defined network stays on a node.
    udn_deletion_grace_period: Duration [GoDuration] = "udn-deletion-grace-period", ["ovnkubernetesfeature.udn-deletion-grace-period"], "120s" { feature: Some("network-segmentation") };
}
