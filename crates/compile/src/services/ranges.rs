//! Who may use a load balancer's addresses (`spec.loadBalancerSourceRanges`). The bridge to the outside asks clients from
//! outside; here the pods of this node are asked, before load balancing hides the address they use.

use kapi::Protocol;
use net::{Family, IpNet, nth_address};
use ovn::names::{self, ObjectIds};
use service::Service;
use world::NodeState;

use crate::desired::{Desired, RowId};
use crate::identity::SOURCE_RANGES;
use crate::table;

/// Tier before all policies: none of them may open what the service's owner closed.
const TIER: i64 = 0;
const PRIORITY: i64 = 1000;

/// Adds the rules of one service to the node's switch: one for each family of the load balancer's addresses.
pub(super) fn add(desired: &mut Desired, service: &Service, node: &NodeState) {
    if service.source_ranges.is_empty() {
        return;
    }
    for family in [Family::V4, Family::V6] {
        let vips = service.ingress_ips.iter().filter(|ip| Family::of(**ip) == family);
        let vips: Vec<String> = vips.map(ToString::to_string).collect();
        if vips.is_empty() {
            continue;
        }
        let ranges = service.source_ranges.iter().filter(|range| Family::of_net(range) == family);
        let mut allowed: Vec<String> = ranges.map(IpNet::to_string).collect();
        // The node itself may always: kubelet's and the administrator's checks come from here.
        let host = node.subnets.get(family).and_then(|subnet| nth_address(subnet, 2));
        allowed.extend(host.map(|ip| ip.to_string()));
        let word = family.ovn();
        let matching = format!(
            "{word}.dst == {{{}}} && ({}) && {word}.src != {{{}}}",
            vips.join(", "),
            ports(service),
            allowed.join(", ")
        );
        let name = format!("{}:{}", service.key.namespace(), service.key.name());
        let ids = ObjectIds::new(SOURCE_RANGES, &[(names::OBJECT_NAME, &name), ("ip-family", word)]);
        let row = desired.row(table::ACL, ids.primary());
        row.set("action", "drop")
            .set("direction", "from-lport")
            .set("match", matching)
            .set("priority", PRIORITY)
            .set("tier", TIER)
            .set("meter", names::ACL_METER)
            .entries("external_ids", ids.external_ids().iter().cloned());
        let child = row.id.clone();
        desired.member(RowId::new(table::SWITCH, &*node.name), "acls", child);
    }
}

fn ports(service: &Service) -> String {
    let of = |protocol: Protocol| {
        let ports = service.ports.iter().filter(move |port| port.protocol == protocol);
        let numbers: Vec<String> = ports.map(|port| port.port.to_string()).collect();
        (!numbers.is_empty()).then(|| format!("{}.dst == {{{}}}", protocol.lower(), numbers.join(", ")))
    };
    Protocol::ALL.into_iter().filter_map(of).collect::<Vec<_>>().join(" || ")
}
