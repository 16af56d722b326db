//! Notifications of changes to a firewall table.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, SockFlag, SockProtocol, recv},
};

use crate::{
    Error, Result,
    sock::{listening_socket, retry},
    wire::{Attrs, Parts, text},
};

/// Bit of `NFNLGRP_NFTABLES`.
const GROUP: u32 = 1 << 6;
/// `NFNL_SUBSYS_NFTABLES`, the upper byte of every message type.
const SUBSYSTEM: u16 = 10;
/// `NFT_MSG_NEWGEN`: the end of a transaction, which names no table.
const NEW_GENERATION: u16 = 15;
/// Length of `struct nfgenmsg`.
const FIXED: usize = 4;
/// The attribute with the table's name, the same in all messages.
const TABLE: u16 = 1;

/// A socket that tells of changes to one table of the namespace it was opened in, whoever makes them. Non-blocking, so it
/// fits an `AsyncFd`.
#[derive(Debug)]
pub struct TableMonitor {
    fd: OwnedFd,
    table: String,
    buf: Vec<u8>,
}

// === impl TableMonitor ===

impl TableMonitor {
    /// Opens the socket in the calling thread's namespace. Tables of that name in all families count.
    pub fn open(table: &str) -> Result<TableMonitor> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = listening_socket(SockProtocol::NetlinkNetFilter, GROUP, flags)?;
        Ok(TableMonitor { fd, table: table.to_owned(), buf: vec![0; 32 * 1024] })
    }

    /// Takes what has arrived, without waiting: whether it concerns the table; none if nothing has arrived. What a process
    /// did for which `ours` holds does not count. It is told by the port id of its socket, which is its process id.
    pub fn try_read(&mut self, ours: impl Fn(u32) -> bool) -> Result<Option<bool>> {
        match retry(|| recv(self.fd.as_raw_fd(), &mut self.buf, MsgFlags::MSG_TRUNC)) {
            Ok(len) if len > self.buf.len() => Ok(Some(true)),
            Ok(len) => Ok(Some(concerns(&self.buf[..len], &self.table, ours))),
            Err(Errno::EAGAIN) => Ok(None),
            Err(Errno::ENOBUFS) => Ok(Some(true)),
            Err(e) => Err(Error::kernel("read firewall notifications", e)),
        }
    }
}

impl AsFd for TableMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for TableMonitor {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn concerns(datagram: &[u8], table: &str, ours: impl Fn(u32) -> bool) -> bool {
    Parts::new(datagram)
        .filter(|part| part.kind >> 8 == SUBSYSTEM && part.kind & 0xff != NEW_GENERATION && !ours(part.port))
        .any(|part| Attrs::after(part.body, FIXED).any(|(kind, value)| kind == TABLE && text(value) == table))
}
