//! The way out of the node.

use crate::codec::*;
use crate::spec::section;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::IpAddr;

section! {
    /// `[gateway]`
    Gateway, "Gateway";
    /// How traffic leaves the node; unset disables the gateway.
    mode: Option<GatewayMode> [OptionalChoice<GatewayMode>] = "gateway-mode", ["gateway.mode"], "" { feature: Some("gateway") };
    /// Interface or bridge that leads out; unset is the one of the default route.
    interface: Option<String> [OptionalText] = "gateway-interface", ["gateway.interface"], "" { placeholder: "INTERFACE", feature: Some("gateway") };
    /// Accelerated interface behind the gateway bridge.
    accelerated_interface: Option<String> [OptionalText] = "gateway-accelerated-interface", ["gateway.gateway-accelerated-interface"], "" { placeholder: "INTERFACE", feature: Some("dpu") };
    /// Representor of the host's gateway interface on the data processing unit.
    dpu_host_gateway_representor_interface: Option<String> [OptionalText] = "dpu-host-gateway-representor-interface", ["gateway.dpu-host-gateway-representor-interface"], "" { placeholder: "INTERFACE", feature: Some("dpu") };
    /// Second interface, for pods with their own external gateways.
    egw_interface: Option<String> [OptionalText] = "exgw-interface", ["gateway.egw-interface"], "" { placeholder: "INTERFACE", feature: Some("gateway") };
    /// Next hops, one a family; unset are those of the default routes.
    next_hop: Vec<IpAddr> [Addresses] = "gateway-nexthop", ["gateway.next-hop"], "" { feature: Some("gateway") };
    /// VLAN of the gateway interface, only in shared mode; 0 for none.
    vlan_id: Option<u16> [VlanId] = "gateway-vlanid", ["gateway.vlan-id"], "0" { feature: Some("gateway") };
    /// Serve node ports.
    nodeport: bool [Bool] = "nodeport", ["gateway.nodeport"], "false" { feature: Some("gateway") };
    /// Let pods with several gateways keep their own address.
    disable_snat_multiple_gws: bool [Bool] = "disable-snat-multiple-gws", ["gateway.disable-snat-multiple-gws"], "false" { feature: Some("gateway") };
    /// Forward only the cluster's own traffic (takes effect for IPv6).
    disable_forwarding: bool [Bool] = "disable-forwarding", ["gateway.disable-forwarding"], "false" { feature: Some("gateway") };
    /// IPv4 prefix between the cluster router and the gateway routers.
    v4_join_subnet: Ipv4Net [SubnetV4<30>] = "gateway-v4-join-subnet", ["gateway.v4-join-subnet"], "100.64.0.0/16";
    /// IPv6 prefix between the cluster router and the gateway routers.
    v6_join_subnet: Ipv6Net [SubnetV6<126>] = "gateway-v6-join-subnet", ["gateway.v6-join-subnet"], "fd98::/64";
    /// IPv4 addresses between host and gateway router.
    v4_masquerade_subnet: Ipv4Net [SubnetV4<29>] = "gateway-v4-masquerade-subnet", ["gateway.v4-masquerade-subnet"], "169.254.169.0/29";
    /// IPv6 addresses between host and gateway router.
    v6_masquerade_subnet: Ipv6Net [SubnetV6<125>] = "gateway-v6-masquerade-subnet", ["gateway.v6-masquerade-subnet"], "fd69::/125";
    /// Do not answer too large packets with "fragmentation needed".
    disable_pkt_mtu_check: bool [Bool] = "disable-pkt-mtu-check", ["gateway.disable-pkt-mtu-check"], "false" { feature: Some("gateway") };
    /// Prefix from which gateway routers get addresses on a data processing unit.
    router_subnet: Option<IpNet> [OptionalNet] = "gateway-router-subnet", ["gateway.router-subnet"], "" { feature: Some("dpu") };
    /// The cluster has only one node.
    single_node: bool [Bool] = "single-node", ["gateway.single-node"], "false";
    /// Let the gateway bridge be without an uplink.
    allow_no_uplink: bool [Bool] = "allow-no-uplink", ["gateway.allow-no-uplink"], "false" { feature: Some("gateway") };
    /// Source ports for masqueraded traffic; unset is the kernel's range.
    ephemeral_port_range: Option<PortRange> [Ports] = "ephemeral-port-range", ["gateway.ephemeral-port-range"], "" { feature: Some("gateway") };
}
