//! Links: read, create veth pairs, change, delete.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::{
    Error, Handle, MacBytes, Result,
    wire::{Attrs, Message, Part, text, u16_at, u32_at},
};

/// Length of `struct ifinfomsg`.
const FIXED: usize = 16;
/// `IFLA_TARGET_NETNSID`'s neighbours are not needed; this one is missing from libc.
const VETH_INFO_PEER: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
/// Linux limit for interface names, without the closing zero.
pub const NAME_MAX: usize = 15;

/// One link as the kernel shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Interface index in its namespace.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// Hardware address, if it has six bytes.
    pub mac: Option<MacBytes>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// Has carrier (operational).
    pub running: bool,
    /// Kind (`veth`, `tun`, `bridge` …); none for physical devices.
    pub kind: Option<String>,
    /// Index of the bridge or VRF it belongs to.
    pub master: Option<u32>,
    /// Index of the peer (veth) or lower device, in [`Link::peer_netns`] if that is set.
    pub peer: Option<u32>,
    /// Namespace id of the peer, if it is in another namespace.
    pub peer_netns: Option<i32>,
    /// Alias text.
    pub alias: Option<String>,
    /// Transmit queue length.
    pub txqlen: u32,
    /// Raw `IFF_*` flags.
    pub flags: u32,
}

/// Settings of one end of a new veth pair.
#[derive(Debug, Clone, Default)]
pub struct VethEnd<'a> {
    /// Interface name.
    pub name: &'a str,
    /// Hardware address; random if none.
    pub mac: Option<MacBytes>,
    /// Namespace it is created in; the handle's if none.
    pub netns: Option<BorrowedFd<'a>>,
    /// Bring it up at once. The kernel cannot for the peer: it is made before its other end.
    pub up: bool,
    /// The kernel answers no ARP request there.
    pub no_arp: bool,
}

/// Changes to a link; what is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct LinkChange<'a> {
    /// New name (the link must be down on older kernels).
    pub name: Option<&'a str>,
    /// Administrative state.
    pub up: Option<bool>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Hardware address.
    pub mac: Option<MacBytes>,
    /// Move to this namespace.
    pub netns: Option<BorrowedFd<'a>>,
    /// Alias text; empty removes it.
    pub alias: Option<&'a str>,
    /// Transmit queue length.
    pub txqlen: Option<u32>,
    /// Bridge or VRF to join; 0 leaves it.
    pub master: Option<u32>,
    /// How IPv6 makes the link-local address: 0 from the MAC, 1 not at all.
    pub addr_gen_mode: Option<u8>,
}

// === impl Handle ===

impl Handle {
    /// All links of the namespace.
    pub fn links(&self) -> Result<Vec<Link>> {
        self.dump(|| Message::new(libc::RTM_GETLINK, 0, &fixed(0, 0, 0)), format_args!("list links"), decode)
    }

    /// The link of that name, or none.
    pub fn link(&self, name: &str) -> Result<Option<Link>> {
        check_name(name)?;
        let mut message = Message::new(libc::RTM_GETLINK, 0, &fixed(0, 0, 0));
        message.attr_str(libc::IFLA_IFNAME, name);
        self.one_link(message, format_args!("get link {name}"))
    }

    /// The link of that index, or none.
    pub fn link_by_index(&self, index: u32) -> Result<Option<Link>> {
        let message = Message::new(libc::RTM_GETLINK, 0, &fixed(index, 0, 0));
        self.one_link(message, format_args!("get link {index}"))
    }

    /// The link of that name; [`Error::NoLink`] if there is none.
    pub fn link_required(&self, name: &str) -> Result<Link> {
        self.link(name)?.ok_or_else(|| Error::NoLink(name.to_owned()))
    }

    /// Creates a veth pair in one request; `end` is made in the handle's namespace unless it says otherwise.
    pub fn create_veth(&self, end: &VethEnd<'_>, peer: &VethEnd<'_>, mtu: u32, txqlen: u32) -> Result<()> {
        check_name(end.name)?;
        check_name(peer.name)?;
        if peer.up {
            return Err(Error::Invalid(format!("veth peer {} cannot be created up", peer.name)));
        }
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut message = Message::new(libc::RTM_NEWLINK, flags, &end.fixed());
        end.attrs(&mut message, mtu, txqlen);
        message.nest(libc::IFLA_LINKINFO, |info| {
            info.attr_str(libc::IFLA_INFO_KIND, "veth");
            info.nest(libc::IFLA_INFO_DATA, |data| {
                data.nest(VETH_INFO_PEER, |m| {
                    m.raw(&peer.fixed());
                    peer.attrs(m, mtu, txqlen);
                });
            });
        });
        self.ack(message, format_args!("create veth {} with peer {}", end.name, peer.name))
    }

    /// Creates a link of a kind that needs no further data (`bridge`, `dummy`, `ifb`).
    pub fn create_link(&self, name: &str, kind: &str) -> Result<()> {
        check_name(name)?;
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut message = Message::new(libc::RTM_NEWLINK, flags, &fixed(0, 0, 0));
        message.attr_str(libc::IFLA_IFNAME, name);
        message.nest(libc::IFLA_LINKINFO, |info| info.attr_str(libc::IFLA_INFO_KIND, kind));
        self.ack(message, format_args!("create {kind} {name}"))
    }

    /// Changes a link.
    pub fn set_link(&self, index: u32, change: &LinkChange<'_>) -> Result<()> {
        let (flags, mask) = match change.up {
            Some(true) => (libc::IFF_UP as u32, libc::IFF_UP as u32),
            Some(false) => (0, libc::IFF_UP as u32),
            None => (0, 0),
        };
        let mut message = Message::new(libc::RTM_NEWLINK, 0, &fixed(index, flags, mask));
        if let Some(name) = change.name {
            check_name(name)?;
            message.attr_str(libc::IFLA_IFNAME, name);
        }
        if let Some(mac) = change.mac {
            message.attr(libc::IFLA_ADDRESS, &mac);
        }
        for (kind, value) in [
            (libc::IFLA_MTU, change.mtu),
            (libc::IFLA_TXQLEN, change.txqlen),
            (libc::IFLA_MASTER, change.master),
            (libc::IFLA_NET_NS_FD, change.netns.map(|fd| fd.as_raw_fd() as u32)),
        ] {
            if let Some(value) = value {
                message.attr_u32(kind, value);
            }
        }
        if let Some(alias) = change.alias {
            message.attr(libc::IFLA_IFALIAS, alias.as_bytes());
        }
        if let Some(mode) = change.addr_gen_mode {
            message.nest(libc::IFLA_AF_SPEC, |spec| {
                spec.nest(libc::AF_INET6 as u16, |v6| v6.attr(IFLA_INET6_ADDR_GEN_MODE, &[mode]));
            });
        }
        self.ack(message, format_args!("set link {index} ({})", change.describe()))
    }

    /// Deletes a link; for a veth its peer goes too.
    pub fn delete_link(&self, index: u32) -> Result<()> {
        let message = Message::new(libc::RTM_DELLINK, 0, &fixed(index, 0, 0));
        self.ack(message, format_args!("delete link {index}"))
    }

    /// Deletes the link of that name; false if there was none.
    pub fn delete_link_named(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        let mut message = Message::new(libc::RTM_DELLINK, 0, &fixed(0, 0, 0));
        message.attr_str(libc::IFLA_IFNAME, name);
        match self.ack(message, format_args!("delete link {name}")) {
            Ok(()) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn one_link(&self, message: Message, op: std::fmt::Arguments<'_>) -> Result<Option<Link>> {
        let mut found = None;
        match self.get(message, op, &mut |part| found = found.take().or_else(|| decode(part))) {
            Ok(()) => Ok(found),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }
}

// === impl VethEnd, LinkChange ===

impl VethEnd<'_> {
    fn fixed(&self) -> [u8; FIXED] {
        let flag = |on: bool, flag: i32| if on { flag as u32 } else { 0 };
        let flags = flag(self.up, libc::IFF_UP) | flag(self.no_arp, libc::IFF_NOARP);
        fixed(0, flags, flags)
    }

    fn attrs(&self, message: &mut Message, mtu: u32, txqlen: u32) {
        message.attr_str(libc::IFLA_IFNAME, self.name);
        message.attr_u32(libc::IFLA_MTU, mtu);
        message.attr_u32(libc::IFLA_TXQLEN, txqlen);
        if let Some(mac) = self.mac {
            message.attr(libc::IFLA_ADDRESS, &mac);
        }
        if let Some(netns) = self.netns {
            message.attr_u32(libc::IFLA_NET_NS_FD, netns.as_raw_fd() as u32);
        }
    }
}

impl LinkChange<'_> {
    fn describe(&self) -> String {
        let mut words = Vec::new();
        if let Some(name) = self.name {
            words.push(format!("name {name}"));
        }
        if let Some(up) = self.up {
            words.push(if up { "up" } else { "down" }.to_owned());
        }
        if let Some(mtu) = self.mtu {
            words.push(format!("mtu {mtu}"));
        }
        if self.mac.is_some() {
            words.push("address".to_owned());
        }
        if self.netns.is_some() {
            words.push("namespace".to_owned());
        }
        if let Some(master) = self.master {
            words.push(format!("master {master}"));
        }
        words.join(", ")
    }
}

fn fixed(index: u32, flags: u32, mask: u32) -> [u8; FIXED] {
    let mut out = [0; FIXED];
    out[4..8].copy_from_slice(&index.to_ne_bytes());
    out[8..12].copy_from_slice(&flags.to_ne_bytes());
    out[12..16].copy_from_slice(&mask.to_ne_bytes());
    out
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX || name.contains(['/', '\0']) {
        return Err(Error::Invalid(format!(
            "{name:?} is not an interface name (1 to {NAME_MAX} characters, no slash)"
        )));
    }
    Ok(())
}

/// Decodes a link message; none if it is something else.
pub(crate) fn decode(part: Part<'_>) -> Option<Link> {
    if part.kind != libc::RTM_NEWLINK && part.kind != libc::RTM_DELLINK {
        return None;
    }
    let flags = u32_at(part.body, 8)?;
    let mut link = Link {
        index: u32_at(part.body, 4)?,
        name: String::new(),
        mac: None,
        mtu: 0,
        up: flags & libc::IFF_UP as u32 != 0,
        running: flags & libc::IFF_RUNNING as u32 != 0,
        kind: None,
        master: None,
        peer: None,
        peer_netns: None,
        alias: None,
        txqlen: 0,
        flags,
    };
    for (kind, value) in Attrs::after(part.body, FIXED) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_ADDRESS => link.mac = value.try_into().ok(),
            libc::IFLA_MTU => link.mtu = u32_at(value, 0)?,
            libc::IFLA_TXQLEN => link.txqlen = u32_at(value, 0)?,
            libc::IFLA_MASTER => link.master = u32_at(value, 0),
            libc::IFLA_LINK => link.peer = u32_at(value, 0),
            libc::IFLA_LINK_NETNSID => link.peer_netns = u32_at(value, 0).map(|v| v as i32),
            libc::IFLA_IFALIAS => link.alias = Some(text(value)),
            libc::IFLA_LINKINFO => {
                link.kind = Attrs::new(value).find(|(k, _)| *k == libc::IFLA_INFO_KIND).map(|(_, v)| text(v));
            }
            _ => {}
        }
    }
    (u16_at(part.body, 0).is_some() && !link.name.is_empty()).then_some(link)
}
