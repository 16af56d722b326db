//! What texts of addresses, ranges and port names the server takes. Each function gives the reason one is wrong.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// A text an address must be.
pub(super) fn ip(text: &str) -> Result<IpAddr, &'static str> {
    let ip: IpAddr =
        text.parse().map_err(|_| "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")?;
    match ip {
        IpAddr::V6(v6) if is_mapped(v6) => Err("must not be an IPv4-mapped IPv6 address"),
        _ => Ok(ip),
    }
}

/// A text a range must be: without leading zeros, and without bits beyond its prefix.
pub(super) fn cidr(text: &str) -> Result<IpNet, &'static str> {
    let wrong = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let (address, length) = text.split_once('/').ok_or(wrong)?;
    let zeros = |part: &str| part.len() > 1 && part.starts_with('0');
    if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong);
    }
    if zeros(length) || (!address.contains(':') && address.split('.').any(zeros)) {
        return Err("must not have leading 0s in IP or prefix length");
    }
    let net: IpNet = text.parse().map_err(|_| wrong)?;
    match net.addr() {
        IpAddr::V6(v6) if is_mapped(v6) => Err("must not have an IPv4-mapped IPv6 address"),
        _ if net.addr() != net.network() => Err("must not have bits set beyond the prefix length"),
        _ => Ok(net),
    }
}

/// An address that traffic can be sent to from elsewhere.
pub(super) fn reachable(ip: IpAddr) -> Result<(), &'static str> {
    let (link_local, link_multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => {
            (v6.is_unicast_link_local(), v6.segments()[0] & 0xffc0 == 0xff00 && is_link_scope(v6))
        }
    };
    if ip.is_unspecified() {
        return Err(if ip.is_ipv4() {
            "may not be unspecified (0.0.0.0)"
        } else {
            "may not be unspecified (::)"
        });
    }
    if ip.is_loopback() {
        return Err("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if link_local {
        return Err("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if link_multicast {
        return Err("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
    Ok(())
}

/// The name of a port as IANA's registry of services has them.
pub(super) fn port_name(text: &str) -> Option<&'static str> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if text.len() > 15 {
        Some("must be no more than 15 characters")
    } else if !text.bytes().all(|b| inner(b) || b == b'-') {
        Some("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    } else if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        Some("must contain at least one letter (a-z)")
    } else if text.contains("--") {
        Some("must not contain consecutive hyphens")
    } else if text.starts_with('-') || text.ends_with('-') {
        Some("must not begin or end with a hyphen")
    } else {
        None
    }
}

fn is_mapped(ip: Ipv6Addr) -> bool {
    ip.to_ipv4_mapped().is_some()
}

fn is_link_scope(ip: Ipv6Addr) -> bool {
    ip.segments()[0] & 0x000f == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for good in ["10.0.0.0/8", "0.0.0.0/0", "::/0", "fd00::/64", "10.1.2.3/32"] {
            assert!(cidr(good).is_ok(), "{good}");
        }
        for bad in [
            "10.0.0.0",
            "10.0.0.1/8",
            "fd00::1/64",
            "010.0.0.0/8",
            "10.0.0.0/08",
            "10.0.0.0/33",
            "::ffff:1.2.3.0/120",
            "",
        ] {
            assert!(cidr(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses() {
        for good in ["1.2.3.4", "fd00::1"] {
            assert_eq!(reachable(ip(good).expect(good)), Ok(()), "{good}");
        }
        for bad in ["0.0.0.0", "::", "127.0.0.1", "::1", "169.254.1.1", "fe80::1", "224.0.0.1", "ff02::1"] {
            assert!(reachable(ip(bad).expect(bad)).is_err(), "{bad}");
        }
        for bad in ["1.2.3", "010.1.1.1", "::ffff:1.2.3.4", "x"] {
            assert!(ip(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_ports() {
        for good in ["http", "a", "1a", "a-b"] {
            assert_eq!(port_name(good), None, "{good}");
        }
        for bad in ["", "HTTP", "a_b", "80", "a--b", "-a", "a-", "abcdefghijklmnopq"] {
            assert!(port_name(bad).is_some(), "{bad}");
        }
    }
}
