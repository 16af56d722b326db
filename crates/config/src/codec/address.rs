//! Addresses, prefixes and endpoints.

use super::Codec;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

/// Host prefix lengths where `cluster-subnets` names none.
const HOST_PREFIX_V4: u8 = 24;
const HOST_PREFIX_V6: u8 = 64;

/// A cluster prefix and the length of the piece each node gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterSubnet {
    /// The whole range, host bits cleared.
    pub cidr: IpNet,
    /// Prefix length of a node's subnet.
    pub host_prefix: u8,
}

impl fmt::Display for ClusterSubnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cidr, self.host_prefix)
    }
}

fn net(text: &str) -> Result<IpNet, String> {
    text.parse::<IpNet>()
        .map(|n| n.trunc())
        .map_err(|_| "is not a prefix; write it as 10.0.0.0/16 or fd00::/48".into())
}

/// The trimmed elements of a comma list. An empty element is an error: it is a lost value, not a choice.
fn elements(text: &str) -> impl Iterator<Item = &str> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.split(',').map(str::trim)).into_iter().flatten()
}

fn subnet(text: &str) -> Result<ClusterSubnet, String> {
    let (cidr_text, host) = match text.match_indices('/').nth(1) {
        Some((at, _)) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let cidr = net(cidr_text).map_err(|_| {
        format!(
            "has {text:?}, which is not CIDR/HOST-PREFIX; write for example 10.128.0.0/14/23 or fd01::/48/64"
        )
    })?;
    let default = if cidr.addr().is_ipv4() { HOST_PREFIX_V4 } else { HOST_PREFIX_V6 };
    let host_prefix = match host {
        Some(host) => {
            host.parse::<u8>().map_err(|_| format!("has the host prefix {host:?}, which is not a number"))?
        }
        None => default,
    };
    if cidr.addr().is_ipv6() && host_prefix != HOST_PREFIX_V6 {
        return Err(format!("gives nodes of {cidr} a /{host_prefix}; IPv6 nodes need exactly /64"));
    }
    if host_prefix <= cidr.prefix_len() || host_prefix > cidr.max_prefix_len() {
        return Err(format!(
            "gives nodes a /{host_prefix} out of {cidr}; the host prefix must be longer than /{} and at most /{}",
            cidr.prefix_len(),
            if cidr.addr().is_ipv4() { 30 } else { 64 }
        ));
    }
    // .1 is the router, .2 the management port, so fewer than two host bits hold no pod.
    if cidr.addr().is_ipv4() && host_prefix > 30 {
        return Err(format!(
            "gives nodes of {cidr} a /{host_prefix}, too small for any pod; use at most /30"
        ));
    }
    Ok(ClusterSubnet { cidr, host_prefix })
}

/// `CIDR/HOST-PREFIX,…`
pub(crate) struct ClusterSubnets;

impl Codec for ClusterSubnets {
    type Out = Vec<ClusterSubnet>;
    const PLACEHOLDER: &'static str = "CIDR/HOST-PREFIX,...";

    fn parse(text: &str) -> Result<Self::Out, String> {
        elements(text).map(subnet).collect()
    }
}

/// Like [`ClusterSubnets`], for Windows nodes of a hybrid cluster.
pub(crate) struct HybridSubnets;

impl Codec for HybridSubnets {
    type Out = Vec<ClusterSubnet>;
    const PLACEHOLDER: &'static str = "CIDR/HOST-PREFIX,...";

    fn parse(text: &str) -> Result<Self::Out, String> {
        ClusterSubnets::parse(text)
    }
}

/// `CIDR,…`
pub(crate) struct ServiceNets;

impl Codec for ServiceNets {
    type Out = Vec<IpNet>;
    const PLACEHOLDER: &'static str = "CIDR,...";

    fn parse(text: &str) -> Result<Self::Out, String> {
        elements(text).map(|t| net(t).map_err(|e| format!("has {t:?}, which {e}"))).collect()
    }
}

/// A prefix that may be unset.
pub(crate) struct OptionalNet;

impl Codec for OptionalNet {
    type Out = Option<IpNet>;
    const PLACEHOLDER: &'static str = "CIDR";

    fn parse(text: &str) -> Result<Self::Out, String> {
        if text.is_empty() { Ok(None) } else { net(text).map(Some) }
    }
}

/// An IPv4 prefix of at most `LONGEST` bits.
pub(crate) struct SubnetV4<const LONGEST: u8>;

impl<const LONGEST: u8> Codec for SubnetV4<LONGEST> {
    type Out = Ipv4Net;
    const PLACEHOLDER: &'static str = "CIDR";

    fn parse(text: &str) -> Result<Ipv4Net, String> {
        match net(text)? {
            IpNet::V4(net) if net.prefix_len() <= LONGEST => Ok(net),
            IpNet::V4(_) => Err(format!("is too small; it must be /{LONGEST} or larger")),
            IpNet::V6(_) => Err("is not an IPv4 prefix".into()),
        }
    }
}

/// An IPv6 prefix of at most `LONGEST` bits.
pub(crate) struct SubnetV6<const LONGEST: u8>;

impl<const LONGEST: u8> Codec for SubnetV6<LONGEST> {
    type Out = Ipv6Net;
    const PLACEHOLDER: &'static str = "CIDR";

    fn parse(text: &str) -> Result<Ipv6Net, String> {
        match net(text)? {
            IpNet::V6(net) if net.prefix_len() <= LONGEST => Ok(net),
            IpNet::V6(_) => Err(format!("is too small; it must be /{LONGEST} or larger")),
            IpNet::V4(_) => Err("is not an IPv6 prefix".into()),
        }
    }
}

/// `IP,…`
pub(crate) struct Addresses;

impl Codec for Addresses {
    type Out = Vec<IpAddr>;
    const PLACEHOLDER: &'static str = "IP,...";

    fn parse(text: &str) -> Result<Self::Out, String> {
        elements(text)
            .map(|t| t.parse().map_err(|_| format!("has {t:?}, which is not an IP address")))
            .collect()
    }
}

/// An address to listen on, or a collector: `IP:PORT` or `:PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// The address; none means every local address.
    pub ip: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

impl Listen {
    /// Addresses to try in turn: without an IP the dual-stack wildcard, then, where IPv6 is off, the IPv4 one.
    pub fn candidates(&self) -> Vec<SocketAddr> {
        match self.ip {
            Some(ip) => vec![SocketAddr::new(ip, self.port)],
            None => [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)]
                .map(|ip| SocketAddr::new(ip, self.port))
                .to_vec(),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            Some(ip) => SocketAddr::new(ip, self.port).fmt(f),
            None => write!(f, ":{}", self.port),
        }
    }
}

fn listen(text: &str) -> Result<Listen, String> {
    let bad = || "is not an address; write IP:PORT, [IPV6]:PORT or :PORT".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
    let port = port.parse::<u16>().map_err(|_| bad())?;
    let ip = match host {
        "" => None,
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        // Brackets are only for IPv6, and IPv6 only with them: `::1:80` could be read in two ways.
        _ => match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(v6) => Some(v6.parse::<Ipv6Addr>().map_err(|_| bad())?.into()),
            None => Some(host.parse::<Ipv4Addr>().map_err(|_| bad())?.into()),
        },
    };
    Ok(Listen { ip, port })
}

/// One optional [`Listen`].
pub(crate) struct ListenAddress;

impl Codec for ListenAddress {
    type Out = Option<Listen>;
    const PLACEHOLDER: &'static str = "[IP]:PORT";

    fn parse(text: &str) -> Result<Self::Out, String> {
        if text.is_empty() { Ok(None) } else { listen(text).map(Some) }
    }
}

/// A comma list of [`Listen`].
pub(crate) struct Targets;

impl Codec for Targets {
    type Out = Vec<Listen>;
    const PLACEHOLDER: &'static str = "[IP]:PORT,...";

    fn parse(text: &str) -> Result<Self::Out, String> {
        elements(text).map(|t| listen(t).map_err(|e| format!("has {t:?}, which {e}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_subnets() {
        let parsed = ClusterSubnets::parse("10.128.0.0/14/23, fd01::/48/64,10.8.1.0/16,fd02::/56").unwrap();
        let texts: Vec<_> = parsed.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.128.0.0/14/23", "fd01::/48/64", "10.8.0.0/16/24", "fd02::/56/64"]);
        for (text, part) in [
            ("10.0.0.0", "not CIDR/HOST-PREFIX"),
            ("10.0.0.0/16/16", "longer than /16"),
            ("10.0.0.0/16/33", "at most /30"),
            ("10.0.0.0/16/31", "too small"),
            ("10.0.0.0/16/x", "not a number"),
            ("10.0.0.0/16/24/3", "not a number"),
            ("fd01::/48/80", "exactly /64"),
            ("10.0.0.0/16,", "not CIDR/HOST-PREFIX"),
        ] {
            let error = ClusterSubnets::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn listen_addresses() {
        for (text, shown) in [
            (":9410", ":9410"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:80", "[::1]:80"),
            ("localhost:80", "127.0.0.1:80"),
        ] {
            assert_eq!(listen(text).unwrap().to_string(), shown);
        }
        for text in ["", "9410", "::1:80", "[1.2.3.4]:5", "host:80", "1.2.3.4:", "1.2.3.4:65536"] {
            assert!(listen(text).is_err(), "{text}");
        }
        assert_eq!(listen(":5").unwrap().candidates().len(), 2);
    }

    #[test]
    fn subnets_have_a_family_and_a_size() {
        assert!(SubnetV4::<29>::parse("169.254.169.0/29").is_ok());
        assert!(SubnetV4::<29>::parse("169.254.169.0/30").unwrap_err().contains("too small"));
        assert!(SubnetV4::<29>::parse("fd69::/125").unwrap_err().contains("not an IPv4"));
        assert!(SubnetV6::<125>::parse("10.0.0.0/8").unwrap_err().contains("not an IPv6"));
    }
}
