//! The node agent.

use crate::codec::*;
use crate::spec::section;
use std::time::Duration;

section! {
    /// `[ovnkubenode]`
    OvnkubeNode, "Node agent";
    /// Where the node agent runs: full, dpu or dpu-host.
    mode: NodeMode [Choice<NodeMode>] = "ovnkube-node-mode", ["ovnkubenode.mode"], "full" { feature: Some("dpu") };
    /// Interface to use as management port.
    mgmt_port_netdev: Option<String> [OptionalText] = "ovnkube-node-mgmt-port-netdev", ["ovnkubenode.mgmt-port-netdev"], "" { placeholder: "INTERFACE", feature: Some("dpu") };
    /// Device plugin resource from which to take management ports.
    mgmt_port_dp_resource_name: Option<String> [OptionalText] = "ovnkube-node-mgmt-port-dp-resource-name", ["ovnkubenode.mgmt-port-dp-resource-name"], "" { placeholder: "RESOURCE", feature: Some("dpu") };
    /// How often a data processing unit renews its lease.
    dpu_node_lease_renew_interval: Duration [Seconds] = "dpu-node-lease-renew-interval", ["ovnkubenode.dpu-node-lease-renew-interval"], "10" { feature: Some("dpu") };
    /// How long that lease holds; 0 disables it.
    dpu_node_lease_duration: Duration [Seconds] = "dpu-node-lease-duration", ["ovnkubenode.dpu-node-lease-duration"], "40" { feature: Some("dpu") };
    /// Act as a data processing unit without one.
    simulate_dpu: bool [Bool] = "simulate-dpu", ["ovnkubenode.simulate-dpu"], "false" { feature: Some("dpu") };
    /// First routing table for user-defined networks.
    routing_table_id_start: u32 [Number<1000, 2_147_483_647, u32>] = "ovnkube-node-routing-table-id-start", ["ovnkubenode.routing-table-id-start"], "1000" { feature: Some("network-segmentation") };
}
