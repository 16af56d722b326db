//! A pool of host addresses of one prefix, handed out next-fit.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::offset::{nth_address, position_in};

/// Longest bitmap a pool keeps. An IPv6 /64 is used through its first addresses only, as many as a node could
/// ever run pods.
const MAX_SLOTS: usize = 1 << 16;

/// Why an address was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IpPoolError {
    /// Every address is in use.
    #[error("no free address in subnet {0}")]
    Exhausted(IpNet),
    /// The address is in use already.
    #[error("address {0} is already in use")]
    InUse(IpAddr),
    /// The address does not belong to the subnet, or is its network or broadcast address.
    #[error("address {ip} is not a usable address of subnet {subnet}")]
    Outside {
        /// The address asked for.
        ip: IpAddr,
        /// The subnet of the pool.
        subnet: IpNet,
    },
}

/// The addresses of one subnet. The network address and, for IPv4, the broadcast address are never handed out;
/// further ones are withheld with [`IpPool::reserve`].
///
/// Allocation is next-fit: the search goes on behind the address given last, so that a released address rests
/// as long as possible before somebody else gets it.
#[derive(Debug, Clone)]
pub struct IpPool {
    subnet: IpNet,
    words: Vec<u64>,
    slots: usize,
    used: usize,
    next: usize,
}

impl IpPool {
    /// A pool of `subnet` with all usable addresses free.
    pub fn new(subnet: IpNet) -> IpPool {
        let host_bits = u32::from(subnet.max_prefix_len() - subnet.prefix_len());
        let size = if host_bits >= 17 { MAX_SLOTS } else { 1usize << host_bits };
        let whole = host_bits <= 16;
        let mut pool = IpPool {
            subnet: subnet.trunc(),
            words: vec![0; size.div_ceil(64)],
            slots: size,
            used: 0,
            next: 1,
        };
        pool.mark(0);
        if subnet.addr().is_ipv4() && whole && size > 1 {
            pool.mark(size - 1);
        }
        pool.used = 0;
        pool
    }

    /// The subnet addresses come from.
    pub fn subnet(&self) -> &IpNet {
        &self.subnet
    }

    /// How many addresses are handed out or reserved.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The next free address.
    pub fn allocate(&mut self) -> Result<IpAddr, IpPoolError> {
        let start = self.next % self.slots;
        let slot = (start..self.slots).chain(0..start).find(|&slot| !self.is_marked(slot));
        let slot = slot.ok_or(IpPoolError::Exhausted(self.subnet))?;
        self.mark(slot);
        self.used += 1;
        self.next = slot + 1;
        nth_address(&self.subnet, slot as u128).ok_or(IpPoolError::Exhausted(self.subnet))
    }

    /// Takes one particular address, e.g. one found in an annotation.
    pub fn reserve(&mut self, ip: IpAddr) -> Result<(), IpPoolError> {
        let slot = self.slot(ip)?;
        if self.is_marked(slot) {
            return Err(IpPoolError::InUse(ip));
        }
        self.mark(slot);
        self.used += 1;
        Ok(())
    }

    /// Gives an address back; `false` when it was free already or is none of this pool.
    pub fn release(&mut self, ip: IpAddr) -> bool {
        match self.slot(ip) {
            Ok(slot) if self.is_marked(slot) => {
                self.words[slot / 64] &= !(1 << (slot % 64));
                self.used -= 1;
                true
            }
            _ => false,
        }
    }

    /// Whether the address is handed out or reserved.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.slot(ip).is_ok_and(|slot| self.is_marked(slot))
    }

    fn slot(&self, ip: IpAddr) -> Result<usize, IpPoolError> {
        let outside = || IpPoolError::Outside { ip, subnet: self.subnet };
        let slot = position_in(&self.subnet, ip).and_then(|p| usize::try_from(p).ok()).ok_or_else(outside)?;
        let broadcast = ip.is_ipv4() && self.slots > 1 && ip == self.subnet.broadcast();
        if slot == 0 || slot >= self.slots || broadcast { Err(outside()) } else { Ok(slot) }
    }

    fn is_marked(&self, slot: usize) -> bool {
        self.words[slot / 64] & (1 << (slot % 64)) != 0
    }

    fn mark(&mut self, slot: usize) {
        self.words[slot / 64] |= 1 << (slot % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn pool(subnet: &str) -> IpPool {
        IpPool::new(subnet.parse().unwrap())
    }

    #[test]
    fn a_slash_28_yields_every_usable_address_once() {
        let mut pool = pool("10.1.0.0/28");
        pool.reserve("10.1.0.1".parse().unwrap()).unwrap();
        pool.reserve("10.1.0.2".parse().unwrap()).unwrap();
        let got: BTreeSet<IpAddr> = std::iter::from_fn(|| pool.allocate().ok()).collect();
        let want: BTreeSet<IpAddr> = (3..15).map(|i| format!("10.1.0.{i}").parse().unwrap()).collect();
        assert_eq!(got, want);
        assert_eq!(pool.allocate(), Err(IpPoolError::Exhausted("10.1.0.0/28".parse().unwrap())));
        assert_eq!(pool.used(), 14);
    }

    #[test]
    fn a_released_address_rests_until_the_pool_wraps() {
        let mut pool = pool("10.1.0.0/29");
        let first = pool.allocate().unwrap();
        assert!(pool.release(first));
        assert!(!pool.release(first));
        let rest: Vec<IpAddr> = std::iter::from_fn(|| pool.allocate().ok()).collect();
        assert_eq!(rest.len(), 6);
        assert_eq!(rest.last(), Some(&first));
    }

    #[test]
    fn network_broadcast_and_foreign_addresses_are_refused() {
        let mut pool = pool("10.1.0.0/29");
        for bad in ["10.1.0.0", "10.1.0.7", "10.1.0.8", "::1"] {
            assert!(matches!(pool.reserve(bad.parse().unwrap()), Err(IpPoolError::Outside { .. })), "{bad}");
        }
        let ip = "10.1.0.3".parse().unwrap();
        pool.reserve(ip).unwrap();
        assert_eq!(pool.reserve(ip), Err(IpPoolError::InUse(ip)));
    }

    #[test]
    fn an_ipv6_64_uses_its_low_addresses_and_a_125_ends() {
        let mut wide = pool("fd00::/64");
        assert_eq!(wide.allocate().unwrap(), "fd00::1".parse::<IpAddr>().unwrap());
        let mut small = pool("fd00::/125");
        assert_eq!(std::iter::from_fn(|| small.allocate().ok()).count(), 7);
    }
}
