//! One value per address family.

use std::net::IpAddr;

use ipnet::IpNet;

/// An IP address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(ip: IpAddr) -> Family {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// The family of a prefix.
    pub fn of_net(net: &IpNet) -> Family {
        Family::of(net.addr())
    }

    /// The keyword OVN match expressions use: `ip4` or `ip6`.
    pub fn ovn(self) -> &'static str {
        match self {
            Family::V4 => "ip4",
            Family::V6 => "ip6",
        }
    }

    /// Length in bits of a full (host) prefix: 32 or 128.
    pub fn host_prefix(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// Name for messages: `IPv4` or `IPv6`.
    pub fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }
}

/// At most one value for each family; IPv4 comes first whenever both are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dual<T> {
    /// The IPv4 value.
    pub v4: Option<T>,
    /// The IPv6 value.
    pub v6: Option<T>,
}

impl<T> Default for Dual<T> {
    fn default() -> Self {
        Dual { v4: None, v6: None }
    }
}

impl<T> Dual<T> {
    /// The value of `family`.
    pub fn get(&self, family: Family) -> Option<&T> {
        match family {
            Family::V4 => self.v4.as_ref(),
            Family::V6 => self.v6.as_ref(),
        }
    }

    /// Replaces the value of `family` and returns the old one.
    pub fn set(&mut self, family: Family, value: T) -> Option<T> {
        match family {
            Family::V4 => self.v4.replace(value),
            Family::V6 => self.v6.replace(value),
        }
    }

    /// The values present, IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.v4.iter().chain(self.v6.iter())
    }

    /// The values present with their family, IPv4 first.
    pub fn families(&self) -> impl Iterator<Item = (Family, &T)> {
        self.v4.iter().map(|v| (Family::V4, v)).chain(self.v6.iter().map(|v| (Family::V6, v)))
    }

    /// The first value present, IPv4 before IPv6.
    pub fn first(&self) -> Option<&T> {
        self.v4.as_ref().or(self.v6.as_ref())
    }

    /// Whether neither family has a value.
    pub fn is_empty(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }

    /// Applies `f` to each value present.
    pub fn map<U>(&self, f: impl Fn(&T) -> U) -> Dual<U> {
        Dual { v4: self.v4.as_ref().map(&f), v6: self.v6.as_ref().map(&f) }
    }
}

impl Dual<IpNet> {
    /// Sorts prefixes into families; `Err` is the first prefix whose family already had one.
    pub fn from_nets(nets: impl IntoIterator<Item = IpNet>) -> Result<Dual<IpNet>, IpNet> {
        let mut dual = Dual::default();
        for net in nets {
            if dual.set(Family::of_net(&net), net).is_some() {
                return Err(net);
            }
        }
        Ok(dual)
    }
}

impl Dual<IpAddr> {
    /// Sorts addresses into families; of several of one family the first wins.
    pub fn from_ips(ips: impl IntoIterator<Item = IpAddr>) -> Dual<IpAddr> {
        let mut dual = Dual::default();
        for ip in ips {
            let family = Family::of(ip);
            if dual.get(family).is_none() {
                dual.set(family, ip);
            }
        }
        dual
    }
}
