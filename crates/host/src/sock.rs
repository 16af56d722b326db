//! A route-netlink socket: one request at a time, answers matched by sequence number.

use std::{
    fmt,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
    },
};

use crate::{
    Error, Result,
    wire::{Attrs, HEADER, Message, Part, Parts, text, u32_at},
};

/// Room for one datagram; the kernel never makes dump datagrams larger than this.
const BUFFER: usize = 32 * 1024;
/// A dump the kernel marks as interrupted by a change is read again this many times.
const DUMP_TRIES: usize = 10;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const NETLINK_CAP_ACK: i32 = 10;
const NETLINK_EXT_ACK: i32 = 11;
const NETLINK_GET_STRICT_CHK: i32 = 12;

/// A netlink socket of the namespace it was opened in. Usable from any thread; requests take turns.
#[derive(Debug)]
pub struct Handle {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    seq: u32,
    buf: Vec<u8>,
}

// === impl Handle ===

impl Handle {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> Result<Handle> {
        Handle::speaking(SockProtocol::NetlinkRoute)
    }

    /// The same for another netlink protocol.
    pub(crate) fn speaking(protocol: SockProtocol) -> Result<Handle> {
        let fd = listening_socket(protocol, 0, SockFlag::SOCK_CLOEXEC)?;
        for option in [NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK] {
            set_option(&fd, option);
        }
        Ok(Handle { inner: Mutex::new(Inner { fd, seq: 0, buf: vec![0; BUFFER] }) })
    }

    /// Runs `f` with the socket's descriptor (for ioctls, which apply to the socket's namespace).
    pub(crate) fn with_fd<T>(&self, f: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        f(self.lock().fd.as_fd())
    }

    /// Sends a request and waits for its acknowledgement.
    pub(crate) fn ack(&self, message: Message, op: fmt::Arguments<'_>) -> Result<()> {
        self.lock().exchange(message, libc::NLM_F_ACK, op, &mut |_| {})
    }

    /// Sends a request and hands each answer to `each`.
    pub(crate) fn get(
        &self,
        message: Message,
        op: fmt::Arguments<'_>,
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<()> {
        self.lock().exchange(message, libc::NLM_F_ACK, op, each)
    }

    /// Dumps a table: `make` builds the request, `decode` turns each answer into a row or skips it.
    pub(crate) fn dump<T>(
        &self,
        make: impl Fn() -> Message,
        op: fmt::Arguments<'_>,
        decode: impl Fn(Part<'_>) -> Option<T>,
    ) -> Result<Vec<T>> {
        let mut inner = self.lock();
        for _ in 0..DUMP_TRIES {
            let mut rows = Vec::new();
            let mut torn = false;
            inner.exchange(make(), libc::NLM_F_DUMP, op, &mut |part| {
                torn |= part.flags & NLM_F_DUMP_INTR != 0;
                rows.extend(decode(part));
            })?;
            if !torn {
                return Ok(rows);
            }
        }
        Err(Error::kernel(op, Errno::EINTR))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Inner ===

impl Inner {
    fn exchange(
        &mut self,
        message: Message,
        flags: i32,
        op: fmt::Arguments<'_>,
        each: &mut dyn FnMut(Part<'_>),
    ) -> Result<()> {
        self.seq = self.seq.wrapping_add(1).max(1);
        let seq = self.seq;
        let bytes = message.finish(seq, flags);
        retry(|| send(self.fd.as_raw_fd(), &bytes, MsgFlags::empty())).map_err(|e| Error::kernel(op, e))?;
        loop {
            let len = retry(|| recv(self.fd.as_raw_fd(), &mut self.buf, MsgFlags::MSG_TRUNC))
                .map_err(|e| Error::kernel(op, e))?;
            let datagram = self.buf.get(..len).ok_or(Error::Protocol("datagram larger than any dump"))?;
            for part in Parts::new(datagram) {
                // Answers to an earlier, abandoned request.
                if part.seq != seq {
                    continue;
                }
                match i32::from(part.kind) {
                    libc::NLMSG_ERROR | libc::NLMSG_DONE => return outcome(part, op),
                    _ => each(part),
                }
            }
        }
    }
}

/// Reads an error or done message: zero is success.
fn outcome(part: Part<'_>, op: fmt::Arguments<'_>) -> Result<()> {
    let code = u32_at(part.body, 0).unwrap_or(0) as i32;
    if code == 0 {
        return Ok(());
    }
    let mut detail = None;
    if part.flags & NLM_F_ACK_TLVS != 0 {
        let echoed = if i32::from(part.kind) == libc::NLMSG_DONE {
            4
        } else if part.flags & NLM_F_CAPPED != 0 {
            4 + HEADER
        } else {
            4 + u32_at(part.body, 4).unwrap_or(0) as usize
        };
        detail = Attrs::after(part.body, echoed).find(|(k, _)| *k == NLMSGERR_ATTR_MSG).map(|(_, v)| text(v));
    }
    Err(Error::Kernel { op: op.to_string(), errno: Errno::from_raw(-code), detail })
}

/// A bound route-netlink socket that listens to `groups` (bit mask).
pub(crate) fn route_socket(groups: u32, flags: SockFlag) -> Result<OwnedFd> {
    listening_socket(SockProtocol::NetlinkRoute, groups, flags)
}

/// A bound netlink socket of any protocol that listens to `groups` (bit mask).
pub(crate) fn listening_socket(protocol: SockProtocol, groups: u32, flags: SockFlag) -> Result<OwnedFd> {
    let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)
        .map_err(|e| Error::kernel("open netlink socket", e))?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))
        .map_err(|e| Error::kernel("bind netlink socket", e))?;
    Ok(fd)
}

/// Switches on a netlink option; an older kernel without it just works less strictly.
fn set_option(fd: &OwnedFd, option: i32) {
    let on: libc::c_int = 1;
    #[expect(
        unsafe_code,
        reason = "setsockopt has no safe wrapper for netlink options; pointer and length match"
    )]
    let _ = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_NETLINK,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// Repeats a call that a signal interrupted.
pub(crate) fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Flags of the three usual ways to write an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Write {
    /// Fails if it exists.
    Create,
    /// Creates or replaces.
    Replace,
}

impl Write {
    pub(crate) fn flags(self) -> i32 {
        match self {
            Write::Create => libc::NLM_F_CREATE | libc::NLM_F_EXCL,
            Write::Replace => libc::NLM_F_CREATE | libc::NLM_F_REPLACE,
        }
    }
}
