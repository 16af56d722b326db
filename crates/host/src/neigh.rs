//! Neighbour entries (ARP and NDP).

use std::net::IpAddr;

use crate::{
    Handle, MacBytes, Result,
    sock::Write,
    wire::{Attrs, Message, Part, family, ip, ip_bytes, u16_at, u32_at},
};

/// Length of `struct ndmsg`.
const FIXED: usize = 12;

/// One neighbour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Link it is seen on.
    pub index: u32,
    /// Its address.
    pub ip: IpAddr,
    /// Its hardware address, if known.
    pub mac: Option<MacBytes>,
    /// Never ages (`NUD_PERMANENT`).
    pub permanent: bool,
    /// Raw `NUD_*` state.
    pub state: u16,
}

// === impl Handle ===

impl Handle {
    /// All neighbours, or those of one link.
    pub fn neighbours(&self, index: Option<u32>) -> Result<Vec<Neighbour>> {
        let rows = self.dump(
            || Message::new(libc::RTM_GETNEIGH, 0, &[0; FIXED]),
            format_args!("list neighbours"),
            decode,
        )?;
        Ok(rows.into_iter().filter(|n| index.is_none_or(|i| i == n.index)).collect())
    }

    /// Creates or replaces a permanent entry.
    pub fn replace_neighbour(&self, index: u32, ip: IpAddr, mac: MacBytes) -> Result<()> {
        let mut message =
            Message::new(libc::RTM_NEWNEIGH, Write::Replace.flags(), &fixed(&ip, index, libc::NUD_PERMANENT));
        message.attr(libc::NDA_DST, &ip_bytes(&ip));
        message.attr(libc::NDA_LLADDR, &mac);
        self.ack(message, format_args!("set neighbour {ip} on link {index}"))
    }

    /// Removes an entry.
    pub fn delete_neighbour(&self, index: u32, ip: IpAddr) -> Result<()> {
        let mut message = Message::new(libc::RTM_DELNEIGH, 0, &fixed(&ip, index, 0));
        message.attr(libc::NDA_DST, &ip_bytes(&ip));
        self.ack(message, format_args!("delete neighbour {ip} on link {index}"))
    }
}

fn fixed(ip: &IpAddr, index: u32, state: u16) -> [u8; FIXED] {
    let mut out = [0; FIXED];
    out[0] = family(ip);
    out[4..8].copy_from_slice(&index.to_ne_bytes());
    out[8..10].copy_from_slice(&state.to_ne_bytes());
    out
}

fn decode(part: Part<'_>) -> Option<Neighbour> {
    if part.kind != libc::RTM_NEWNEIGH {
        return None;
    }
    let state = u16_at(part.body, 8)?;
    let (mut address, mut mac) = (None, None);
    for (kind, value) in Attrs::after(part.body, FIXED) {
        match kind {
            libc::NDA_DST => address = ip(value),
            libc::NDA_LLADDR => mac = value.try_into().ok(),
            _ => {}
        }
    }
    Some(Neighbour {
        index: u32_at(part.body, 4)?,
        ip: address?,
        mac,
        permanent: state & libc::NUD_PERMANENT != 0,
        state,
    })
}
