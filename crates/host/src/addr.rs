//! Addresses of links.

use ipnet::IpNet;

use crate::{
    Handle, Result,
    sock::Write,
    wire::{Attrs, Message, Part, family, ip, ip_bytes, u32_at},
};

/// Length of `struct ifaddrmsg`.
const FIXED: usize = 8;
const IFA_PROTO: u16 = 11;
const INFINITE: u32 = u32::MAX;

/// One address as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Link it belongs to.
    pub index: u32,
    /// Address and prefix length (host bits kept).
    pub net: IpNet,
    /// Raw `IFA_F_*` flags.
    pub flags: u32,
    /// `RT_SCOPE_*`.
    pub scope: u8,
    /// Where it came from (`IFAPROT_*`), if the kernel says.
    pub proto: Option<u8>,
    /// What is left of its time.
    pub lifetime: Lifetime,
}

/// Seconds an address lasts; none is for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// Until the kernel removes it.
    pub valid: Option<u32>,
    /// Until it is no longer chosen as a source address.
    pub preferred: Option<u32>,
}

/// How an address is to be added.
#[derive(Debug, Clone, Copy, Default)]
pub struct AddrFlags {
    /// Skip IPv6 duplicate address detection: usable at once.
    pub nodad: bool,
    /// How long it lasts.
    pub lifetime: Lifetime,
    /// Do not add the prefix route.
    pub noprefixroute: bool,
}

// === impl Address ===

impl Address {
    /// Duplicate address detection has not finished: not usable yet.
    pub fn is_tentative(&self) -> bool {
        self.flags & libc::IFA_F_TENTATIVE != 0
    }

    /// Another node was found to own it.
    pub fn is_dad_failed(&self) -> bool {
        self.flags & libc::IFA_F_DADFAILED != 0
    }

    /// Never chosen as a source address.
    pub fn is_deprecated(&self) -> bool {
        self.flags & libc::IFA_F_DEPRECATED != 0
    }

    /// The kernel made no route to its prefix.
    pub fn has_no_prefix_route(&self) -> bool {
        self.flags & libc::IFA_F_NOPREFIXROUTE != 0
    }

    /// Second address of a prefix.
    pub fn is_secondary(&self) -> bool {
        self.flags & libc::IFA_F_SECONDARY != 0
    }
}

// === impl Lifetime ===

impl Lifetime {
    /// Never chosen as a source address.
    pub const DEPRECATED: Lifetime = Lifetime { valid: None, preferred: Some(0) };

    fn decode(value: &[u8]) -> Option<Lifetime> {
        let seconds = |at| u32_at(value, at).map(|seconds| (seconds != INFINITE).then_some(seconds));
        Some(Lifetime { preferred: seconds(0)?, valid: seconds(4)? })
    }

    fn encode(self) -> [u8; 16] {
        let mut info = [0; 16];
        info[..4].copy_from_slice(&self.preferred.unwrap_or(INFINITE).to_ne_bytes());
        info[4..8].copy_from_slice(&self.valid.unwrap_or(INFINITE).to_ne_bytes());
        info
    }
}

// === impl Handle ===

impl Handle {
    /// All addresses, or those of one link.
    pub fn addresses(&self, index: Option<u32>) -> Result<Vec<Address>> {
        self.dump(
            || Message::new(libc::RTM_GETADDR, 0, &fixed(0, 0, 0, index.unwrap_or(0))),
            format_args!("list addresses"),
            decode,
        )
    }

    /// Adds an address; fails if it exists ([`crate::Error::is_exists`]).
    pub fn add_address(&self, index: u32, net: IpNet, flags: AddrFlags) -> Result<()> {
        self.write_address(index, net, flags, Write::Create)
    }

    /// Adds an address or changes its flags.
    pub fn replace_address(&self, index: u32, net: IpNet, flags: AddrFlags) -> Result<()> {
        self.write_address(index, net, flags, Write::Replace)
    }

    /// Removes an address.
    pub fn delete_address(&self, index: u32, net: IpNet) -> Result<()> {
        let addr = net.addr();
        let mut message =
            Message::new(libc::RTM_DELADDR, 0, &fixed(family(&addr), net.prefix_len(), 0, index));
        message.attr(libc::IFA_LOCAL, &ip_bytes(&addr));
        self.ack(message, format_args!("delete address {net} from link {index}"))
    }

    fn write_address(&self, index: u32, net: IpNet, flags: AddrFlags, how: Write) -> Result<()> {
        let addr = net.addr();
        let scope = if addr.is_loopback() {
            libc::RT_SCOPE_HOST
        } else if matches!(addr, std::net::IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            libc::RT_SCOPE_LINK
        } else {
            libc::RT_SCOPE_UNIVERSE
        };
        let mut message = Message::new(
            libc::RTM_NEWADDR,
            how.flags(),
            &fixed(family(&addr), net.prefix_len(), scope, index),
        );
        message.attr(libc::IFA_LOCAL, &ip_bytes(&addr));
        message.attr(libc::IFA_ADDRESS, &ip_bytes(&addr));
        if let IpNet::V4(v4) = net
            && v4.prefix_len() < 31
        {
            message.attr(libc::IFA_BROADCAST, &v4.broadcast().octets());
        }
        let mut bits = libc::IFA_F_PERMANENT;
        if flags.nodad {
            bits |= libc::IFA_F_NODAD;
        }
        if flags.noprefixroute {
            bits |= libc::IFA_F_NOPREFIXROUTE;
        }
        message.attr_u32(libc::IFA_FLAGS, bits);
        if flags.lifetime != Lifetime::default() {
            message.attr(libc::IFA_CACHEINFO, &flags.lifetime.encode());
        }
        self.ack(message, format_args!("add address {net} to link {index}"))
    }
}

fn fixed(family: u8, prefix: u8, scope: u8, index: u32) -> [u8; FIXED] {
    let mut out = [0; FIXED];
    out[0] = family;
    out[1] = prefix;
    out[3] = scope;
    out[4..8].copy_from_slice(&index.to_ne_bytes());
    out
}

/// Decodes an address message; none if it is something else.
pub(crate) fn decode(part: Part<'_>) -> Option<Address> {
    if part.kind != libc::RTM_NEWADDR && part.kind != libc::RTM_DELADDR {
        return None;
    }
    let (prefix, scope) = (*part.body.get(1)?, *part.body.get(3)?);
    let mut flags = u32::from(*part.body.get(2)?);
    let (mut local, mut address, mut proto) = (None, None, None);
    let mut lifetime = Lifetime::default();
    for (kind, value) in Attrs::after(part.body, FIXED) {
        match kind {
            libc::IFA_LOCAL => local = ip(value),
            libc::IFA_ADDRESS => address = ip(value),
            libc::IFA_FLAGS => flags = u32_at(value, 0)?,
            libc::IFA_CACHEINFO => lifetime = Lifetime::decode(value)?,
            IFA_PROTO => proto = value.first().copied(),
            _ => {}
        }
    }
    let net = IpNet::new(local.or(address)?, prefix).ok()?;
    Some(Address { index: u32_at(part.body, 4)?, net, flags, scope, proto, lifetime })
}
