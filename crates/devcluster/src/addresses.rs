//! The addresses of the underlay and of the nodes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Address families of nodes and pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both; IPv4 first.
    Dual,
}

/// The host part of the underlay's own address, the nodes' gateway.
pub const GATEWAY: u8 = 254;

// === impl Families ===

impl Families {
    /// Whether nodes and pods have IPv4.
    pub fn v4(self) -> bool {
        self != Self::V6
    }

    /// Whether nodes and pods have IPv6.
    pub fn v6(self) -> bool {
        self != Self::V4
    }

    /// Addresses with host part `host` on the underlay, with prefix lengths.
    pub fn on_underlay(self, host: u8) -> Vec<(IpAddr, u8)> {
        let mut addresses = Vec::new();
        if self.v4() {
            addresses.push((IpAddr::V4(v4(host)), 24));
        }
        if self.v6() {
            addresses.push((IpAddr::V6(v6(host)), 64));
        }
        addresses
    }

    /// The first address with host part `host`.
    pub fn primary(self, host: u8) -> IpAddr {
        if self.v4() { IpAddr::V4(v4(host)) } else { IpAddr::V6(v6(host)) }
    }

    /// Whether it has IPv4, or IPv6.
    pub fn has(self, v4: bool) -> bool {
        if v4 { self.v4() } else { self.v6() }
    }

    /// Cluster subnets as flags and the API know them.
    pub fn cluster_subnets(self) -> &'static str {
        match self {
            Self::V4 => "10.244.0.0/16/24",
            Self::V6 => "fd00:10:244::/48/64",
            Self::Dual => "10.244.0.0/16/24,fd00:10:244::/48/64",
        }
    }

    /// Service ranges.
    pub fn service_cidrs(self) -> &'static str {
        match self {
            Self::V4 => "10.96.0.0/16",
            Self::V6 => "fd00:10:96::/112",
            Self::Dual => "10.96.0.0/16,fd00:10:96::/112",
        }
    }
}

/// `172.18.0.<host>`.
fn v4(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 18, 0, host)
}

/// `fd00:172:18::<host>`, the digits read the same as in IPv4.
fn v6(host: u8) -> Ipv6Addr {
    let digits = u16::from_str_radix(&host.to_string(), 16).unwrap_or(u16::from(host));
    Ipv6Addr::new(0xfd00, 0x172, 0x18, 0, 0, 0, 0, digits)
}

/// MAC of node `number`.
pub fn node_mac(number: u8) -> String {
    format!("02:42:ac:12:00:{number:02x}")
}

/// OVS system-id, which is the OVN chassis name, of node `number`.
pub fn chassis(number: u8) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_show_the_node_number() {
        let both = Families::Dual.on_underlay(GATEWAY);
        assert_eq!(both[0].0.to_string(), "172.18.0.254");
        assert_eq!(both[1].0.to_string(), "fd00:172:18::254");
        assert_eq!(Families::V6.primary(12).to_string(), "fd00:172:18::12");
        assert_eq!(chassis(2), "00000000-0000-4000-8000-000000000002");
        assert_eq!(node_mac(2), "02:42:ac:12:00:02");
    }
}
