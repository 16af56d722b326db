//! The management port `ovn-k8s-mp0`: the host's own place on the node's logical switch, through which kubelet
//! probes and host processes reach pods.
//!
//! ```text
//!  node-subnets ──▶ Facts ──▶ ovs::port  (port and interface rows on br-int)
//!                        └──▶ HostPlan   (addresses, routes, rule, neighbours, sysctls)
//! ```
//! The interface belongs to the agent alone, so whatever else sits on it is removed; everywhere else only the
//! named objects are touched.

mod host;

use std::net::IpAddr;

use ipnet::IpNet;
use net::{Mac, nth_address};

pub(crate) use self::host::nothing;
pub use self::host::{SERVICE_MARK, SERVICE_RULE, SERVICE_TABLE, desired};
use crate::error::NodeError;

/// Name of the interface.
pub const NAME: &str = "ovn-k8s-mp0";

/// The name older releases gave the port: `k8s-` and the first 11 characters of the node's name.
pub fn legacy_name(node: &str) -> String {
    let mut name = String::from("k8s-");
    name.extend(node.chars().take(11));
    name
}

/// What the node's subnets say about the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// `.2` of each subnet, with the subnet's prefix length.
    pub addresses: Vec<IpNet>,
    /// `.1` of each subnet: the cluster router.
    pub gateways: Vec<IpAddr>,
    /// The interface's MAC.
    pub mac: Mac,
    /// The router's MAC.
    pub router_mac: Mac,
}

impl Facts {
    /// Derives the port's addresses from the node's subnets. MACs follow the IPv4 address where there is one.
    pub fn from_subnets(node: &str, subnets: &[IpNet]) -> Result<Facts, NodeError> {
        let bad = |reason: String| NodeError::BadSubnets { node: node.to_owned(), reason };
        let mut ordered: Vec<IpNet> = subnets.iter().map(IpNet::trunc).collect();
        ordered.sort_by_key(|net| net.addr().is_ipv6());
        let mut addresses = Vec::new();
        let mut gateways = Vec::new();
        for net in &ordered {
            match (nth_address(net, 1), nth_address(net, 2)) {
                (Some(gateway), Some(own)) => {
                    gateways.push(gateway);
                    addresses.push(IpNet::new(own, net.prefix_len()).map_err(|e| bad(e.to_string()))?);
                }
                _ => return Err(bad(format!("{net} is too small for a gateway and a management port"))),
            }
        }
        match (addresses.first(), gateways.first()) {
            (Some(own), Some(gateway)) => {
                let (mac, router_mac) = (Mac::from_ip(own.addr()), Mac::from_ip(*gateway));
                Ok(Facts { addresses, gateways, mac, router_mac })
            }
            _ => Err(bad("it lists no subnet".to_owned())),
        }
    }

    /// The router's address of the family of `ip`.
    pub fn gateway_for(&self, ip: IpAddr) -> Option<IpAddr> {
        self.gateways.iter().copied().find(|g| g.is_ipv4() == ip.is_ipv4())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_the_recorded_dual_stack_node() {
        let subnets = ["fd00:10:244:1::/64".parse().unwrap(), "10.244.0.0/24".parse().unwrap()];
        let facts = Facts::from_subnets("node1", &subnets).unwrap();
        let addresses: Vec<_> = facts.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.244.0.2/24", "fd00:10:244:1::2/64"]);
        assert_eq!(facts.mac.to_string(), "0a:58:0a:f4:00:02");
        assert_eq!(facts.router_mac.to_string(), "0a:58:0a:f4:00:01");
        assert_eq!(facts.gateway_for("fd00::9".parse().unwrap()), Some("fd00:10:244:1::1".parse().unwrap()));
    }

    #[test]
    fn unusable_subnets_are_refused_with_the_cause() {
        let tiny = Facts::from_subnets("n", &["10.0.0.0/32".parse().unwrap()]).unwrap_err().to_string();
        assert!(tiny.contains("10.0.0.0/32") && tiny.contains("node-subnets"), "{tiny}");
        assert!(Facts::from_subnets("n", &[]).is_err());
    }

    #[test]
    fn old_names_are_cut_by_characters() {
        assert_eq!(legacy_name("node1"), "k8s-node1");
        assert_eq!(legacy_name("ip-10-0-131-77.ec2"), "k8s-ip-10-0-131");
    }
}
