//! Routes, any table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::{
    Handle, Result,
    sock::Write,
    wire::{Attrs, Message, Part, family, ip, ip_bytes, u16_at, u32_at},
};

/// Length of `struct rtmsg`.
const FIXED: usize = 12;
const RTAX_MTU: u16 = 2;
const RTNH_F_ONLINK: u32 = 4;
const RTM_F_CLONED: u32 = 0x200;
/// The main routing table.
pub const TABLE_MAIN: u32 = 254;
/// The local routing table.
pub const TABLE_LOCAL: u32 = 255;

/// One way of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextHop {
    /// Next router; none is on-link.
    pub gateway: Option<IpAddr>,
    /// Outgoing link.
    pub oif: Option<u32>,
    /// Weight among several, 1 and up.
    pub weight: u16,
}

/// One route, as read or as wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination; prefix length 0 is the default route.
    pub dst: IpNet,
    /// Next router; none is on-link. Empty when [`Route::nexthops`] has several.
    pub gateway: Option<IpAddr>,
    /// Outgoing link.
    pub oif: Option<u32>,
    /// Several equal ways; empty for the usual single one.
    pub nexthops: Vec<NextHop>,
    /// Routing table.
    pub table: u32,
    /// Preferred source address.
    pub src: Option<IpAddr>,
    /// Priority; the kernel's default if none.
    pub metric: Option<u32>,
    /// MTU towards the destination.
    pub mtu: Option<u32>,
    /// Who installed it (`RTPROT_*`).
    pub proto: u8,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// `RTN_*` (unicast, local, blackhole …).
    pub kind: u8,
    /// The gateway is reachable though no prefix covers it.
    pub onlink: bool,
}

// === impl Route ===

impl Route {
    /// A unicast route of the main table to `dst`, protocol `static`.
    pub fn to(dst: IpNet) -> Route {
        Route {
            dst,
            gateway: None,
            oif: None,
            nexthops: Vec::new(),
            table: TABLE_MAIN,
            src: None,
            metric: None,
            mtu: None,
            proto: libc::RTPROT_STATIC,
            scope: libc::RT_SCOPE_UNIVERSE,
            kind: libc::RTN_UNICAST,
            onlink: false,
        }
    }

    /// The default route over `gateway`.
    pub fn default_via(gateway: IpAddr) -> Route {
        Route { gateway: Some(gateway), ..Route::to(default_of(&gateway)) }
    }
}

/// `0.0.0.0/0` or `::/0`, whichever `ip` belongs to.
fn default_of(ip: &IpAddr) -> IpNet {
    match ip {
        IpAddr::V4(_) => ipnet::Ipv4Net::default().into(),
        IpAddr::V6(_) => ipnet::Ipv6Net::default().into(),
    }
}

// === impl Handle ===

impl Handle {
    /// All routes of one table (both families), or of every table. Cached clones are left out.
    pub fn routes(&self, table: Option<u32>) -> Result<Vec<Route>> {
        let rows = self.dump(
            || Message::new(libc::RTM_GETROUTE, 0, &[0; FIXED]),
            format_args!("list routes"),
            decode,
        )?;
        Ok(rows.into_iter().filter(|r| table.is_none_or(|t| t == r.table)).collect())
    }

    /// Creates a route or replaces the one of same destination, table and metric.
    pub fn replace_route(&self, route: &Route) -> Result<()> {
        let message = encode(route, libc::RTM_NEWROUTE, Write::Replace.flags());
        self.ack(message, format_args!("add route {} table {}", route.dst, route.table))
    }

    /// Creates a route; fails if it exists.
    pub fn add_route(&self, route: &Route) -> Result<()> {
        let message = encode(route, libc::RTM_NEWROUTE, Write::Create.flags());
        self.ack(message, format_args!("add route {} table {}", route.dst, route.table))
    }

    /// Removes the route that matches everything `route` says.
    pub fn delete_route(&self, route: &Route) -> Result<()> {
        let message = encode(route, libc::RTM_DELROUTE, 0);
        self.ack(message, format_args!("delete route {} table {}", route.dst, route.table))
    }
}

fn encode(route: &Route, kind: u16, flags: i32) -> Message {
    let dst = route.dst.network();
    let mut fixed = [0; FIXED];
    fixed[0] = family(&dst);
    fixed[1] = route.dst.prefix_len();
    fixed[4] = if route.table < 256 { route.table as u8 } else { 0 };
    fixed[5] = route.proto;
    let on_link = route.gateway.is_none() && route.nexthops.is_empty();
    fixed[6] = if on_link && route.scope == libc::RT_SCOPE_UNIVERSE && route.kind == libc::RTN_UNICAST {
        libc::RT_SCOPE_LINK
    } else {
        route.scope
    };
    fixed[7] = route.kind;
    if route.onlink {
        fixed[8..12].copy_from_slice(&RTNH_F_ONLINK.to_ne_bytes());
    }
    let mut message = Message::new(kind, flags, &fixed);
    message.attr(libc::RTA_DST, &ip_bytes(&dst));
    message.attr_u32(libc::RTA_TABLE, route.table);
    if let Some(gateway) = route.gateway {
        message.attr(libc::RTA_GATEWAY, &ip_bytes(&gateway));
    }
    if let Some(oif) = route.oif {
        message.attr_u32(libc::RTA_OIF, oif);
    }
    if let Some(src) = route.src {
        message.attr(libc::RTA_PREFSRC, &ip_bytes(&src));
    }
    if let Some(metric) = route.metric {
        message.attr_u32(libc::RTA_PRIORITY, metric);
    }
    if let Some(mtu) = route.mtu {
        message.nest(libc::RTA_METRICS, |m| m.attr_u32(RTAX_MTU, mtu));
    }
    if !route.nexthops.is_empty() {
        message.nest(libc::RTA_MULTIPATH, |m| {
            for hop in &route.nexthops {
                let gateway = hop.gateway.map(|ip| ip_bytes(&ip));
                let len = 8 + gateway.as_ref().map_or(0, |g| 4 + g.len());
                let [low, high] = (len as u16).to_ne_bytes();
                let flags = if route.onlink { RTNH_F_ONLINK as u8 } else { 0 };
                let weight = hop.weight.saturating_sub(1).min(255) as u8;
                m.raw(&[low, high, flags, weight]);
                m.raw(&hop.oif.unwrap_or(0).to_ne_bytes());
                if let Some(gateway) = gateway {
                    m.attr(libc::RTA_GATEWAY, &gateway);
                }
            }
        });
    }
    message
}

/// Decodes a route message; none if it is something else or a cached clone.
pub(crate) fn decode(part: Part<'_>) -> Option<Route> {
    if part.kind != libc::RTM_NEWROUTE && part.kind != libc::RTM_DELROUTE {
        return None;
    }
    let body = part.body;
    let unspecified: IpAddr = match i32::from(*body.first()?) {
        libc::AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        libc::AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let flags = u32_at(body, 8)?;
    if flags & RTM_F_CLONED != 0 {
        return None;
    }
    let mut route = Route {
        table: u32::from(*body.get(4)?),
        proto: *body.get(5)?,
        scope: *body.get(6)?,
        kind: *body.get(7)?,
        onlink: flags & RTNH_F_ONLINK != 0,
        ..Route::to(IpNet::new(unspecified, 0).ok()?)
    };
    let mut dst = unspecified;
    for (kind, value) in Attrs::after(body, FIXED) {
        match kind {
            libc::RTA_DST => dst = ip(value)?,
            libc::RTA_GATEWAY => route.gateway = ip(value),
            // The next hop has the other family (IPv4 over an IPv6 router): family, then address.
            libc::RTA_VIA => route.gateway = ip(value.get(2..)?),
            libc::RTA_OIF => route.oif = u32_at(value, 0),
            libc::RTA_TABLE => route.table = u32_at(value, 0)?,
            libc::RTA_PREFSRC => route.src = ip(value),
            libc::RTA_PRIORITY => route.metric = u32_at(value, 0),
            libc::RTA_METRICS => {
                route.mtu = Attrs::new(value).find(|(k, _)| *k == RTAX_MTU).and_then(|(_, v)| u32_at(v, 0));
            }
            libc::RTA_MULTIPATH => route.nexthops = nexthops(value),
            _ => {}
        }
    }
    route.dst = IpNet::new(dst, *body.get(1)?).ok()?;
    Some(route)
}

fn nexthops(mut bytes: &[u8]) -> Vec<NextHop> {
    let mut out = Vec::new();
    while let Some(len) = u16_at(bytes, 0).map(usize::from) {
        if len < 8 || len > bytes.len() {
            break;
        }
        let gateway =
            Attrs::after(&bytes[..len], 8).find(|(k, _)| *k == libc::RTA_GATEWAY).and_then(|(_, v)| ip(v));
        out.push(NextHop { gateway, oif: u32_at(bytes, 4), weight: u16::from(bytes[3]) + 1 });
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    out
}
