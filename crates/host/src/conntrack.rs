//! Connection tracking entries of the kernel, its switch's among them.

use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use crate::{
    Handle, Result,
    wire::{Attrs, Message, Part, ip, u32_at},
};

/// `NFNL_SUBSYS_CTNETLINK`, the upper byte of every message type.
const SUBSYSTEM: u16 = 1;
const GET: u16 = (SUBSYSTEM << 8) | 1;
const DELETE: u16 = (SUBSYSTEM << 8) | 2;
/// Length of `struct nfgenmsg`.
const FIXED: usize = 4;

const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const IP_V4_SRC: u16 = 1;
const IP_V4_DST: u16 = 2;
const IP_V6_SRC: u16 = 3;
const IP_V6_DST: u16 = 4;
const PROTO_NUM: u16 = 1;
const PROTO_SRC_PORT: u16 = 2;
const PROTO_DST_PORT: u16 = 3;

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    /// IP protocol number.
    pub protocol: u8,
    /// Where its packets come from.
    pub src: SocketAddr,
    /// Where they go to.
    pub dst: SocketAddr,
}

/// A tracked connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The direction it was opened in, before translation.
    pub orig: Tuple,
    /// The answers.
    pub reply: Tuple,
    /// Zone; 0 is the host's own.
    pub zone: u16,
    /// What names it to the kernel: the first tuple and the id as they were listed.
    name: (Vec<u8>, Option<Vec<u8>>),
}

/// A socket for the connections of the namespace it was opened in.
#[derive(Debug)]
pub struct Conntrack(Handle);

// === impl Conntrack ===

impl Conntrack {
    /// Opens the socket in the calling thread's namespace.
    pub fn open() -> Result<Conntrack> {
        Handle::speaking(SockProtocol::NetlinkNetFilter).map(Conntrack)
    }

    /// All connections, in all zones. Ports are 0 where the protocol has none.
    pub fn connections(&self) -> Result<Vec<Connection>> {
        self.matching(|_| true)
    }

    /// The connections that `wanted` picks; a large table is not kept in memory for them.
    pub fn matching(&self, wanted: impl Fn(&Connection) -> bool) -> Result<Vec<Connection>> {
        let decode = |part: Part<'_>| decode(part).filter(|connection| wanted(connection));
        self.0.dump(|| Message::new(GET, 0, &[0; FIXED]), format_args!("list connections"), decode)
    }

    /// Forgets a connection; one that is gone already is no error.
    pub fn forget(&self, connection: &Connection) -> Result<()> {
        let (tuple, id) = &connection.name;
        let mut fixed = [0; FIXED];
        fixed[0] = crate::wire::family(&connection.orig.src.ip());
        let mut message = Message::new(DELETE, 0, &fixed);
        message.nest(TUPLE_ORIG, |nested| nested.raw(tuple));
        if connection.zone != 0 {
            message.attr(ZONE, &connection.zone.to_be_bytes());
        }
        if let Some(id) = id {
            message.attr(ID, id);
        }
        let what =
            format_args!("forget the connection from {} to {}", connection.orig.src, connection.orig.dst);
        match self.0.ack(message, what) {
            Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(()),
            other => other,
        }
    }
}

fn decode(part: Part<'_>) -> Option<Connection> {
    if part.kind >> 8 != SUBSYSTEM {
        return None;
    }
    let (mut orig, mut reply, mut zone, mut id) = (None, None, 0, None);
    for (kind, value) in Attrs::after(part.body, FIXED) {
        match kind {
            TUPLE_ORIG => orig = Some((tuple(value)?, value.to_vec())),
            TUPLE_REPLY => reply = tuple(value),
            ZONE => zone = value.try_into().map(u16::from_be_bytes).ok()?,
            ID => id = u32_at(value, 0).map(|_| value.to_vec()),
            _ => {}
        }
    }
    let (orig, name) = orig?;
    Some(Connection { orig, reply: reply?, zone, name: (name, id) })
}

fn tuple(value: &[u8]) -> Option<Tuple> {
    let (mut src, mut dst): (Option<IpAddr>, Option<IpAddr>) = (None, None);
    let (mut protocol, mut from, mut to) = (None, None, None);
    for (kind, value) in Attrs::new(value) {
        match kind {
            TUPLE_IP => {
                for (kind, value) in Attrs::new(value) {
                    match kind {
                        IP_V4_SRC | IP_V6_SRC => src = ip(value),
                        IP_V4_DST | IP_V6_DST => dst = ip(value),
                        _ => {}
                    }
                }
            }
            TUPLE_PROTO => {
                for (kind, value) in Attrs::new(value) {
                    let port = || value.try_into().map(u16::from_be_bytes).ok();
                    match kind {
                        PROTO_NUM => protocol = value.first().copied(),
                        PROTO_SRC_PORT => from = port(),
                        PROTO_DST_PORT => to = port(),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let (from, to) = (from.unwrap_or(0), to.unwrap_or(0));
    Some(Tuple { protocol: protocol?, src: SocketAddr::new(src?, from), dst: SocketAddr::new(dst?, to) })
}
