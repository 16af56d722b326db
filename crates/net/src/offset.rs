//! Arithmetic on prefixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// The address `offset` places after the network address of `net`; `None` when it falls outside.
///
/// Node gateways (`.1`), management ports (`.2`), join and transit addresses (base + node id) and masquerade
/// addresses are all numbered this way.
pub fn nth_address(net: &IpNet, offset: u128) -> Option<IpAddr> {
    let ip = match net.network() {
        IpAddr::V4(base) => {
            let sum = u128::from(u32::from(base)).checked_add(offset)?;
            IpAddr::V4(Ipv4Addr::from(u32::try_from(sum).ok()?))
        }
        IpAddr::V6(base) => IpAddr::V6(Ipv6Addr::from(u128::from(base).checked_add(offset)?)),
    };
    net.contains(&ip).then_some(ip)
}

/// How many places `ip` lies after the network address of `net`; `None` when it is not inside.
pub fn position_in(net: &IpNet, ip: IpAddr) -> Option<u128> {
    if !net.contains(&ip) {
        return None;
    }
    match (net.network(), ip) {
        (IpAddr::V4(base), IpAddr::V4(ip)) => Some(u128::from(u32::from(ip) - u32::from(base))),
        (IpAddr::V6(base), IpAddr::V6(ip)) => Some(u128::from(ip) - u128::from(base)),
        _ => None,
    }
}

/// Whether two prefixes share an address.
pub fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_stay_inside_the_prefix() {
        let net: IpNet = "10.0.0.0/29".parse().unwrap();
        assert_eq!(nth_address(&net, 7), Some("10.0.0.7".parse().unwrap()));
        assert_eq!(nth_address(&net, 8), None);
        let top: IpNet = "255.255.255.248/29".parse().unwrap();
        assert_eq!(nth_address(&top, 8), None);
        let v6: IpNet = "fd97::/64".parse().unwrap();
        assert_eq!(nth_address(&v6, 3), Some("fd97::3".parse().unwrap()));
        assert_eq!(nth_address(&v6, u128::MAX), None);
    }

    #[test]
    fn position_is_the_inverse_of_nth() {
        let net: IpNet = "10.128.6.0/23".parse().unwrap();
        for offset in [0, 1, 255, 256, 511] {
            assert_eq!(position_in(&net, nth_address(&net, offset).unwrap()), Some(offset));
        }
        assert_eq!(position_in(&net, "10.128.8.0".parse().unwrap()), None);
        assert_eq!(position_in(&net, "::1".parse().unwrap()), None);
    }

    #[test]
    fn overlap_is_symmetric_and_family_aware() {
        let big: IpNet = "10.0.0.0/8".parse().unwrap();
        let small: IpNet = "10.9.0.0/16".parse().unwrap();
        let other: IpNet = "fd00::/8".parse().unwrap();
        assert!(overlap(&big, &small) && overlap(&small, &big));
        assert!(!overlap(&big, &other));
    }
}
