//! Address ranges: none may overlap another, and families must agree.

use super::conflict;
use crate::{Config, error::ConfigError, origin::Origin};
use ipnet::IpNet;

/// A range and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRange {
    /// The range.
    pub net: IpNet,
    /// What it is for and who set it, for messages.
    pub name: String,
    /// How to change it.
    pub cure: String,
}

impl NamedRange {
    /// A range that no setting holds, for example a node's address: `addresses of node "n1"`.
    pub fn new(net: IpNet, name: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { net: net.trunc(), name: name.into(), cure: cure.into() }
    }

    fn setting(config: &Config, net: impl Into<IpNet>, what: &str, flag: &str) -> Self {
        let cure = match config.origin(flag) {
            Some(Origin::File { path, line }) => format!("change {what} range at {}:{line}", path.display()),
            _ => format!("change --{flag}"),
        };
        let origin = config.origin(flag).map_or_else(String::new, ToString::to_string);
        Self::new(net.into(), format!("{what} range (--{flag}, from {origin})"), cure)
    }
}

/// All ranges of the configuration.
pub(super) fn of(config: &Config) -> Vec<NamedRange> {
    let named = |net: IpNet, what, flag| NamedRange::setting(config, net, what, flag);
    let mut ranges = Vec::new();
    ranges.extend(config.default.cluster_subnets.iter().map(|s| named(s.cidr, "cluster", "cluster-subnets")));
    ranges.extend(config.kubernetes.service_cidrs.iter().map(|n| named(*n, "service", "k8s-service-cidrs")));
    let (gateway, manager) = (&config.gateway, &config.cluster_manager);
    ranges.extend([
        named(gateway.v4_join_subnet.into(), "join", "gateway-v4-join-subnet"),
        named(gateway.v6_join_subnet.into(), "join", "gateway-v6-join-subnet"),
        named(gateway.v4_masquerade_subnet.into(), "masquerade", "gateway-v4-masquerade-subnet"),
        named(gateway.v6_masquerade_subnet.into(), "masquerade", "gateway-v6-masquerade-subnet"),
        named(manager.v4_transit_subnet.into(), "transit", "cluster-manager-v4-transit-subnet"),
        named(manager.v6_transit_subnet.into(), "transit", "cluster-manager-v6-transit-subnet"),
    ]);
    if config.hybrid_overlay.enabled {
        let subnets = &config.hybrid_overlay.cluster_subnets;
        ranges.extend(
            subnets.iter().map(|s| named(s.cidr, "hybrid overlay", "hybrid-overlay-cluster-subnets")),
        );
    }
    if config.features.network_segmentation {
        for net in ["100.65.0.0/16", "fd99::/64"] {
            let fixed = net.parse::<IpNet>().map(|net| {
                NamedRange::new(net, "join range of user-defined networks (fixed)", "it cannot be changed")
            });
            ranges.extend(fixed);
        }
    }
    ranges
}

/// Every overlap among `ours`, and between `ours` and `others`.
pub(super) fn overlaps(ours: &[NamedRange], others: &[NamedRange]) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for (i, a) in ours.iter().enumerate() {
        for b in ours[i + 1..].iter().chain(others) {
            if a.net.contains(&b.net) || b.net.contains(&a.net) {
                errors.push(conflict(format!(
                    "{} of the {} overlaps {} of the {}; {} or {}",
                    a.net,
                    a.name,
                    b.net,
                    b.name.trim_start_matches("the "),
                    a.cure,
                    b.cure
                )));
            }
        }
    }
    errors
}

pub(super) fn check_families(config: &Config, errors: &mut Vec<ConfigError>) {
    let cluster = &config.default.cluster_subnets;
    let services = &config.kubernetes.service_cidrs;
    let described = |name| config.described(name);

    let v4: Vec<_> = cluster.iter().filter(|s| s.cidr.addr().is_ipv4()).collect();
    if let Some(odd) = v4.iter().find(|s| s.host_prefix != v4[0].host_prefix) {
        errors.push(conflict(format!(
            "{} gives nodes a /{} from {} but a /{} from {}; use the same host prefix for all IPv4 prefixes",
            described("cluster-subnets"),
            v4[0].host_prefix,
            v4[0].cidr,
            odd.host_prefix,
            odd.cidr
        )));
    }
    for v6 in [false, true] {
        let of_family: Vec<_> = services.iter().filter(|n| n.addr().is_ipv6() == v6).collect();
        if of_family.len() > 1 {
            errors.push(conflict(format!(
                "{} has {} {} prefixes; Kubernetes has at most one service prefix a family",
                described("k8s-service-cidrs"),
                of_family.len(),
                if v6 { "IPv6" } else { "IPv4" }
            )));
        }
    }
    let families = |mut nets: Box<dyn Iterator<Item = bool> + '_>| {
        let (mut v4, mut v6) = (false, false);
        nets.by_ref().for_each(|is_v6| if is_v6 { v6 = true } else { v4 = true });
        (v4, v6)
    };
    let word = |f| match f {
        (true, true) => "dual-stack",
        (true, false) => "IPv4",
        (false, true) => "IPv6",
        (false, false) => "empty",
    };
    let pods = families(Box::new(cluster.iter().map(|s| s.cidr.addr().is_ipv6())));
    let service = families(Box::new(services.iter().map(|n| n.addr().is_ipv6())));
    if pods != service {
        errors.push(conflict(format!(
            "{} is {} but {} is {}; give both the same address families",
            described("cluster-subnets"),
            word(pods),
            described("k8s-service-cidrs"),
            word(service)
        )));
    }
}
