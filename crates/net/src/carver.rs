//! Node subnets carved out of cluster CIDRs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::dual::Family;
use crate::offset::overlap;

/// One cluster CIDR and the prefix length of the node subnets it is cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterCidr {
    /// The range all node subnets lie in.
    pub cidr: IpNet,
    /// Prefix length of one node subnet, in bits.
    pub host_prefix: u8,
}

impl ClusterCidr {
    /// How many node subnets the range holds.
    pub fn capacity(&self) -> u128 {
        let bits = u32::from(self.host_prefix.saturating_sub(self.cidr.prefix_len()));
        1u128.checked_shl(bits).unwrap_or(u128::MAX)
    }

    fn nth(&self, index: u128) -> Option<IpNet> {
        let shift = u32::from(self.cidr.max_prefix_len() - self.host_prefix);
        let offset = index.checked_mul(1u128.checked_shl(shift)?)?;
        let base = match self.cidr.network() {
            IpAddr::V4(v4) => {
                IpAddr::V4(Ipv4Addr::from(u32::try_from(u128::from(u32::from(v4)) + offset).ok()?))
            }
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6).checked_add(offset)?)),
        };
        let net = IpNet::new(base, self.host_prefix).ok()?;
        self.cidr.contains(&net).then_some(net)
    }

    fn index_of(&self, net: &IpNet) -> Option<u128> {
        let shift = u32::from(self.cidr.max_prefix_len() - self.host_prefix);
        crate::offset::position_in(&self.cidr, net.network()).map(|position| position >> shift)
    }
}

/// Why a subnet was not given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CarverError {
    /// Every subnet of the family is in use.
    #[error("no free {family} node subnet left in cluster CIDR {ranges}")]
    Exhausted {
        /// The family asked for.
        family: &'static str,
        /// The ranges searched, comma separated.
        ranges: String,
    },
    /// The subnet shares addresses with another owner's.
    #[error("subnet {subnet} overlaps {other}, which belongs to node {owner}")]
    Taken {
        /// The subnet asked for.
        subnet: IpNet,
        /// The subnet in the way.
        other: IpNet,
        /// Its owner.
        owner: String,
    },
    /// The subnet is not inside any cluster CIDR.
    #[error("subnet {subnet} is not inside the cluster CIDRs ({ranges})")]
    Foreign {
        /// The subnet asked for.
        subnet: IpNet,
        /// The configured ranges, comma separated.
        ranges: String,
    },
}

/// Hands out node subnets of several cluster CIDRs, each to a named owner. Subnets of a range are handed out
/// next-fit, ranges in their configured order.
#[derive(Debug, Clone)]
pub struct Carver {
    ranges: Vec<Range>,
    taken: BTreeMap<IpNet, String>,
}

#[derive(Debug, Clone)]
struct Range {
    cluster: ClusterCidr,
    next: u128,
}

impl Carver {
    /// A carver over `ranges` with everything free. The first IPv6 subnet (index 0) is skipped on the first
    /// round, as the reference does, so that the subnet never has the same text as its cluster CIDR.
    pub fn new(ranges: impl IntoIterator<Item = ClusterCidr>) -> Carver {
        let ranges = ranges
            .into_iter()
            .map(|cluster| Range {
                next: u128::from(Family::of_net(&cluster.cidr) == Family::V6 && cluster.capacity() > 1),
                cluster,
            })
            .collect();
        Carver { ranges, taken: BTreeMap::new() }
    }

    /// The configured ranges.
    pub fn ranges(&self) -> impl Iterator<Item = &ClusterCidr> {
        self.ranges.iter().map(|range| &range.cluster)
    }

    /// Whether any range has this family.
    pub fn has_family(&self, family: Family) -> bool {
        self.ranges().any(|range| Family::of_net(&range.cidr) == family)
    }

    /// Gives `owner` the next free subnet of `family`.
    pub fn allocate(&mut self, family: Family, owner: &str) -> Result<IpNet, CarverError> {
        for range in self.ranges.iter_mut().filter(|r| Family::of_net(&r.cluster.cidr) == family) {
            let capacity = range.cluster.capacity();
            // Among n+1 candidates at least one is free of the n taken subnets (each blocks one of its own size).
            let tries = capacity.min(blocked(&self.taken, &range.cluster) + 1);
            for step in 0..tries {
                let index = (range.next + step) % capacity;
                let Some(subnet) = range.cluster.nth(index) else { continue };
                if conflict(&self.taken, &subnet).is_none() {
                    range.next = (index + 1) % capacity;
                    self.taken.insert(subnet, owner.to_owned());
                    return Ok(subnet);
                }
            }
        }
        Err(CarverError::Exhausted { family: family.name(), ranges: self.describe(Some(family)) })
    }

    /// Records that `owner` holds `subnet` (from an annotation). Asking again for the same owner is no error.
    pub fn reserve(&mut self, subnet: IpNet, owner: &str) -> Result<(), CarverError> {
        let subnet = subnet.trunc();
        if self.taken.get(&subnet).is_some_and(|holder| holder == owner) {
            return Ok(());
        }
        let Some(range) = self.ranges.iter_mut().find(|range| range.cluster.cidr.contains(&subnet)) else {
            return Err(CarverError::Foreign { subnet, ranges: self.describe(None) });
        };
        if let Some((other, holder)) = conflict(&self.taken, &subnet) {
            return Err(CarverError::Taken { subnet, other: *other, owner: holder.clone() });
        }
        if let Some(index) = range.cluster.index_of(&subnet)
            && index == range.next
        {
            range.next = (index + 1) % range.cluster.capacity();
        }
        self.taken.insert(subnet, owner.to_owned());
        Ok(())
    }

    /// Gives a subnet back; `false` when `owner` did not hold it.
    pub fn release(&mut self, subnet: &IpNet, owner: &str) -> bool {
        let held = self.taken.get(subnet).is_some_and(|holder| holder == owner);
        held && self.taken.remove(subnet).is_some()
    }

    /// How many subnets of the family are taken.
    pub fn used(&self, family: Family) -> usize {
        self.taken.keys().filter(|net| Family::of_net(net) == family).count()
    }

    /// How many subnets of the family the ranges hold.
    pub fn capacity(&self, family: Family) -> u128 {
        self.ranges()
            .filter(|range| Family::of_net(&range.cidr) == family)
            .fold(0u128, |sum, range| sum.saturating_add(range.capacity()))
    }

    fn describe(&self, family: Option<Family>) -> String {
        let of_family = |range: &&ClusterCidr| family.is_none_or(|f| Family::of_net(&range.cidr) == f);
        let texts: Vec<String> = self.ranges().filter(of_family).map(|r| r.cidr.to_string()).collect();
        texts.join(", ")
    }
}

/// An upper bound on how many of `cluster`'s subnets are blocked by what is taken.
fn blocked(taken: &BTreeMap<IpNet, String>, cluster: &ClusterCidr) -> u128 {
    taken
        .keys()
        .filter(|net| cluster.cidr.contains(*net))
        .map(|net| {
            1u128
                .checked_shl(u32::from(cluster.host_prefix.saturating_sub(net.prefix_len())))
                .unwrap_or(u128::MAX)
        })
        .fold(0u128, u128::saturating_add)
}

fn conflict<'a>(taken: &'a BTreeMap<IpNet, String>, subnet: &IpNet) -> Option<(&'a IpNet, &'a String)> {
    // Prefixes nest or are disjoint, so only the neighbours in address order and enclosing prefixes can overlap.
    if let Some(hit) = taken.range(*subnet..).next().filter(|(net, _)| overlap(net, subnet)) {
        return Some(hit);
    }
    taken
        .range(..*subnet)
        .rev()
        .find(|(net, _)| overlap(net, subnet) || net.prefix_len() <= subnet.prefix_len())
        .filter(|(net, _)| overlap(net, subnet))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carver(ranges: &[(&str, u8)]) -> Carver {
        Carver::new(ranges.iter().map(|(cidr, host_prefix)| ClusterCidr {
            cidr: cidr.parse().unwrap(),
            host_prefix: *host_prefix,
        }))
    }

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_are_used_in_order_and_then_exhausted() {
        let mut carver = carver(&[("10.0.0.0/23", 24), ("10.9.0.0/24", 24)]);
        let got: Vec<IpNet> =
            (0..3).map(|i| carver.allocate(Family::V4, &format!("n{i}")).unwrap()).collect();
        assert_eq!(got, [net("10.0.0.0/24"), net("10.0.1.0/24"), net("10.9.0.0/24")]);
        let error = carver.allocate(Family::V4, "n4").unwrap_err().to_string();
        assert_eq!(error, "no free IPv4 node subnet left in cluster CIDR 10.0.0.0/23, 10.9.0.0/24");
        assert!(!carver.release(&got[1], "n0"));
        assert!(carver.release(&got[1], "n1"));
        assert_eq!(carver.allocate(Family::V4, "n4").unwrap(), got[1]);
    }

    #[test]
    fn ipv6_starts_at_the_second_subnet_and_reaches_the_first_last() {
        let mut carver = carver(&[("fd00:10:244::/62", 64)]);
        let got: Vec<String> =
            (0..4).map(|i| carver.allocate(Family::V6, &format!("n{i}")).unwrap().to_string()).collect();
        assert_eq!(
            got,
            ["fd00:10:244:1::/64", "fd00:10:244:2::/64", "fd00:10:244:3::/64", "fd00:10:244::/64"]
        );
    }

    #[test]
    fn existing_subnets_are_honoured_and_conflicts_named() {
        let mut carver = carver(&[("10.0.0.0/22", 24)]);
        carver.reserve(net("10.0.1.0/24"), "a").unwrap();
        carver.reserve(net("10.0.1.0/24"), "a").unwrap();
        assert_eq!(
            carver.reserve(net("10.0.0.0/23"), "b").unwrap_err().to_string(),
            "subnet 10.0.0.0/23 overlaps 10.0.1.0/24, which belongs to node a"
        );
        assert!(matches!(carver.reserve(net("10.0.1.128/25"), "b"), Err(CarverError::Taken { .. })));
        assert!(matches!(carver.reserve(net("10.99.0.0/24"), "b"), Err(CarverError::Foreign { .. })));
        let rest: Vec<IpNet> = std::iter::from_fn(|| carver.allocate(Family::V4, "c").ok()).collect();
        assert_eq!(rest, [net("10.0.0.0/24"), net("10.0.2.0/24"), net("10.0.3.0/24")]);
    }

    #[test]
    fn a_wider_foreign_prefix_blocks_all_it_covers() {
        let mut carver = carver(&[("10.0.0.0/20", 24)]);
        carver.reserve(net("10.0.0.0/22"), "wide").unwrap();
        assert_eq!(carver.allocate(Family::V4, "n").unwrap(), net("10.0.4.0/24"));
    }
}
