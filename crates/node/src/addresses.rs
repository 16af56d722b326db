//! Which of the host's addresses other nodes may use to reach it (`k8s.ovn.org/host-cidrs`).

use std::net::IpAddr;

use ipnet::IpNet;
use net::overlap;

/// Interfaces of this name and of this name plus a network id belong to the overlay.
pub const MANAGEMENT_PORT_PREFIX: &str = "ovn-k8s-mp";

/// An address on an interface of the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostAddress {
    /// The interface's name.
    pub interface: String,
    /// Address with its prefix length.
    pub net: IpNet,
}

/// What is never announced, whatever interface carries it.
#[derive(Debug, Clone, Default)]
pub struct Excluded {
    /// Addresses internal to each node.
    pub masquerade: Vec<IpNet>,
    /// Egress IPs placed on the bridge or on another interface by us: they move between nodes.
    pub egress_ips: Vec<IpAddr>,
}

impl Excluded {
    fn covers(&self, ip: IpAddr) -> bool {
        let single = IpNet::from(ip);
        self.egress_ips.contains(&ip) || self.masquerade.iter().any(|net| overlap(net, &single))
    }
}

/// Whether other hosts can use `ip` to reach the one that holds it: not loopback, link-local, multicast or unspecified.
pub fn is_usable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => {
            !(v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_unspecified()
                || v4.is_broadcast())
        }
        IpAddr::V6(v6) => {
            !(v6.is_loopback() || v6.is_unicast_link_local() || v6.is_multicast() || v6.is_unspecified())
        }
    }
}

/// The usable addresses on `interface`, in the kernel's order, which puts a primary address before its secondaries.
pub fn usable_on<'a>(
    addresses: &'a [HostAddress],
    interface: &'a str,
    excluded: &'a Excluded,
) -> impl Iterator<Item = IpNet> + 'a {
    addresses
        .iter()
        .filter(move |a| {
            a.interface == interface && is_usable(a.net.addr()) && !excluded.covers(a.net.addr())
        })
        .map(|a| a.net)
}

/// All usable addresses as the annotation lists them: CIDR texts in text order, each once.
pub fn host_cidrs(addresses: &[HostAddress], excluded: &Excluded) -> Vec<IpNet> {
    let mut texts: Vec<(String, IpNet)> = addresses
        .iter()
        .filter(|a| !a.interface.starts_with(MANAGEMENT_PORT_PREFIX))
        .filter(|a| is_usable(a.net.addr()) && !excluded.covers(a.net.addr()))
        .map(|a| (a.net.to_string(), a.net))
        .collect();
    texts.sort();
    texts.dedup();
    texts.into_iter().map(|(_, net)| net).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(interface: &str, net: &str) -> HostAddress {
        HostAddress { interface: interface.into(), net: net.parse().unwrap() }
    }

    fn excluded() -> Excluded {
        Excluded {
            masquerade: vec!["169.254.169.0/29".parse().unwrap(), "fd69::/125".parse().unwrap()],
            egress_ips: vec!["172.18.0.77".parse().unwrap()],
        }
    }

    fn recorded_node() -> Vec<HostAddress> {
        vec![
            at("lo", "127.0.0.1/8"),
            at("lo", "::1/128"),
            at("breth0", "172.18.0.1/24"),
            at("breth0", "169.254.169.2/29"),
            at("breth0", "fd69::2/125"),
            at("breth0", "fd00:172:18::1/64"),
            at("breth0", "fe80::42:acff:fe12:1/64"),
            at("ovn-k8s-mp0", "10.244.0.2/24"),
            at("ovn-k8s-mp0", "fd00:10:244:1::2/64"),
            at("ovn-k8s-mp0", "fe80::858:aff:fef4:2/64"),
        ]
    }

    fn texts(nets: Vec<IpNet>) -> Vec<String> {
        nets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_recorded_dual_stack_node() {
        assert_eq!(texts(host_cidrs(&recorded_node(), &excluded())), ["172.18.0.1/24", "fd00:172:18::1/64"]);
    }

    #[test]
    fn sorted_by_text_each_once_and_egress_addresses_left_out() {
        let mut addresses = recorded_node();
        addresses.extend([
            at("eth2", "9.0.0.1/8"),
            at("eth2", "10.0.0.9/8"),
            at("eth3", "10.0.0.9/8"),
            at("breth0", "172.18.0.77/32"),
            at("ovn-k8s-mp7", "10.60.0.2/24"),
        ]);
        assert_eq!(
            texts(host_cidrs(&addresses, &excluded())),
            ["10.0.0.9/8", "172.18.0.1/24", "9.0.0.1/8", "fd00:172:18::1/64"]
        );
    }

    #[test]
    fn public_addresses_on_loopback_count_but_loopback_addresses_do_not() {
        let addresses = [at("lo", "127.0.0.1/8"), at("lo", "192.0.2.1/32")];
        assert_eq!(texts(host_cidrs(&addresses, &excluded())), ["192.0.2.1/32"]);
    }

    #[test]
    fn addresses_of_one_interface_keep_their_order() {
        let addresses = recorded_node();
        let excluded = excluded();
        let nets: Vec<_> = usable_on(&addresses, "breth0", &excluded).map(|n| n.to_string()).collect();
        assert_eq!(nets, ["172.18.0.1/24", "fd00:172:18::1/64"]);
        assert_eq!(usable_on(&addresses, "eth9", &excluded).count(), 0);
    }
}
