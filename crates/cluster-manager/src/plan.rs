//! The address plan of the cluster and the rule that its ranges do not overlap.

use std::net::IpAddr;

use kapi::LabelSelector;
use net::{ClusterCidr, Dual, Family, IpNet, overlap};

/// The ranges the cluster manager works with.
#[derive(Debug, Clone)]
pub struct NetworkPlan {
    /// Cluster CIDRs, used in this order, with the prefix length of node subnets.
    pub cluster: Vec<ClusterCidr>,
    /// Service CIDRs.
    pub services: Vec<IpNet>,
    /// Join subnets; a node's join address is the base plus its id.
    pub join: Dual<IpNet>,
    /// Transit subnets; a node's transit address is the base plus its id.
    pub transit: Dual<IpNet>,
    /// Masquerade subnets.
    pub masquerade: Dual<IpNet>,
    /// Nodes that match get no subnet and no id.
    pub no_subnet_nodes: Option<LabelSelector>,
}

/// A plan that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Two ranges share addresses.
    #[error("{a_name} {a} and {b_name} {b} overlap: give them separate ranges")]
    Overlap {
        /// What the first range is for, e.g. `cluster subnet`.
        a_name: &'static str,
        /// The first range.
        a: IpNet,
        /// What the second range is for.
        b_name: &'static str,
        /// The second range.
        b: IpNet,
    },
    /// A host prefix that cannot be cut out of its CIDR.
    #[error(
        "cluster subnet {cidr} cannot be cut into /{host_prefix} node subnets: the node prefix must be longer than \
         the cluster's and leave room for pods (at most /{longest})"
    )]
    HostPrefix {
        /// The cluster CIDR.
        cidr: IpNet,
        /// The prefix length of node subnets.
        host_prefix: u8,
        /// The longest one that makes sense.
        longest: u8,
    },
    /// Nothing to hand out.
    #[error("no cluster subnet is configured")]
    NoClusterSubnet,
}

/// The smallest node subnet holds a gateway, a management port and a few pods.
pub(crate) const HOST_BITS: u8 = 3;

impl NetworkPlan {
    /// Whether the plan can work at all; every process checks it at start.
    pub fn validate(&self) -> Result<(), PlanError> {
        if self.cluster.is_empty() {
            return Err(PlanError::NoClusterSubnet);
        }
        for &ClusterCidr { cidr, host_prefix } in &self.cluster {
            let longest = cidr.max_prefix_len() - HOST_BITS;
            if host_prefix < cidr.prefix_len() || host_prefix > longest {
                return Err(PlanError::HostPrefix { cidr, host_prefix, longest });
            }
        }
        let ranges: Vec<(&'static str, IpNet)> = self.ranges().collect();
        for (at, (a_name, a)) in ranges.iter().enumerate() {
            for (b_name, b) in &ranges[at + 1..] {
                if overlap(a, b) {
                    return Err(PlanError::Overlap { a_name, a: *a, b_name, b: *b });
                }
            }
        }
        Ok(())
    }

    /// The range a node's own address falls into, if any: such a node cannot be reached from pods.
    pub fn range_with(&self, address: IpAddr) -> Option<(&'static str, IpNet)> {
        self.ranges().find(|(_, net)| net.contains(&address))
    }

    /// The families pods get, IPv4 first.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        let has = |family| self.cluster.iter().any(|range| Family::of_net(&range.cidr) == family);
        [Family::V4, Family::V6].into_iter().filter(move |family| has(*family))
    }

    fn ranges(&self) -> impl Iterator<Item = (&'static str, IpNet)> {
        let named = |name| move |net: &IpNet| (name, net.trunc());
        let cluster = self.cluster.iter().map(|range| ("cluster subnet", range.cidr.trunc()));
        cluster
            .chain(self.services.iter().map(named("service subnet")))
            .chain(self.join.iter().map(named("join subnet")))
            .chain(self.transit.iter().map(named("transit subnet")))
            .chain(self.masquerade.iter().map(named("masquerade subnet")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::fixtures::{dual_plan, v4_plan};

    #[test]
    fn the_default_plans_are_sound() {
        assert_eq!(v4_plan().validate(), Ok(()));
        assert_eq!(dual_plan().validate(), Ok(()));
        assert_eq!(v4_plan().families().collect::<Vec<_>>(), [Family::V4]);
        assert_eq!(dual_plan().families().collect::<Vec<_>>(), [Family::V4, Family::V6]);
    }

    #[test]
    fn every_pair_of_ranges_is_compared_and_both_are_named() {
        type Change = fn(&mut NetworkPlan);
        let cases: [(Change, &str); 6] = [
            (
                |p| p.services[0] = "10.244.7.0/24".parse().unwrap(),
                "cluster subnet 10.244.0.0/16 and service subnet 10.244.7.0/24",
            ),
            (
                |p| p.join.v4 = "10.244.0.0/16".parse().ok(),
                "cluster subnet 10.244.0.0/16 and join subnet 10.244.0.0/16",
            ),
            (
                |p| p.transit.v4 = "100.64.128.0/17".parse().ok(),
                "join subnet 100.64.0.0/16 and transit subnet 100.64.128.0/17",
            ),
            (
                |p| p.masquerade.v4 = "10.96.0.0/29".parse().ok(),
                "service subnet 10.96.0.0/16 and masquerade subnet 10.96.0.0/29",
            ),
            (
                |p| p.masquerade.v6 = "fd97::/125".parse().ok(),
                "transit subnet fd97::/64 and masquerade subnet fd97::/125",
            ),
            (
                |p| p.cluster.push(ClusterCidr { cidr: "10.244.128.0/17".parse().unwrap(), host_prefix: 24 }),
                "cluster subnet 10.244.0.0/16 and cluster subnet 10.244.128.0/17",
            ),
        ];
        for (change, words) in cases {
            let mut plan = v4_plan();
            change(&mut plan);
            let error = plan.validate().unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn host_prefixes_must_fit() {
        for (cidr, host_prefix) in [("10.0.0.0/16", 15), ("10.0.0.0/16", 30), ("fd00::/64", 63)] {
            let mut plan = v4_plan();
            plan.cluster = vec![ClusterCidr { cidr: cidr.parse().unwrap(), host_prefix }];
            assert!(matches!(plan.validate(), Err(PlanError::HostPrefix { .. })), "{cidr} /{host_prefix}");
        }
        let mut plan = v4_plan();
        plan.cluster.clear();
        assert_eq!(plan.validate(), Err(PlanError::NoClusterSubnet));
    }

    #[test]
    fn node_addresses_inside_a_range_are_found() {
        let plan = v4_plan();
        assert_eq!(plan.range_with("172.18.0.1".parse().unwrap()), None);
        let (name, net) = plan.range_with("10.96.3.4".parse().unwrap()).unwrap();
        assert_eq!((name, net.to_string()), ("service subnet", "10.96.0.0/16".to_owned()));
    }
}
