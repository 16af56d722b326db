//! Kernel notifications of links, addresses and routes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, SockFlag, recv},
};

use crate::{
    Error, Result, addr,
    addr::Address,
    link,
    link::Link,
    route,
    route::Route,
    sock::{retry, route_socket},
    wire::Parts,
};

/// Which notifications are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Groups {
    /// Links.
    pub links: bool,
    /// Addresses, both families.
    pub addresses: bool,
    /// Routes, both families.
    pub routes: bool,
}

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A link is new or changed.
    Link(Link),
    /// A link is gone.
    LinkGone(Link),
    /// An address is new or changed.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A route is new or changed.
    Route(Route),
    /// A route is gone.
    RouteGone(Route),
    /// Notifications were lost: read everything again.
    Overrun,
}

/// A socket that receives notifications of the namespace it was opened in.
///
/// Non-blocking, so it fits an `AsyncFd`; on a plain thread [`Monitor::wait`] blocks.
#[derive(Debug)]
pub struct Monitor {
    fd: OwnedFd,
    buf: Vec<u8>,
}

// === impl Monitor ===

impl Monitor {
    /// Opens the socket in the calling thread's namespace.
    pub fn open(groups: Groups) -> Result<Monitor> {
        let mut mask = 0;
        if groups.links {
            mask |= libc::RTMGRP_LINK;
        }
        if groups.addresses {
            mask |= libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        }
        if groups.routes {
            mask |= libc::RTMGRP_IPV4_ROUTE | libc::RTMGRP_IPV6_ROUTE;
        }
        let fd = route_socket(mask as u32, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
        Ok(Monitor { fd, buf: vec![0; 32 * 1024] })
    }

    /// Takes what has arrived, without waiting; none if nothing has.
    pub fn try_read(&mut self) -> Result<Option<Vec<Event>>> {
        match retry(|| recv(self.fd.as_raw_fd(), &mut self.buf, MsgFlags::MSG_TRUNC)) {
            Ok(len) if len > self.buf.len() => Ok(Some(vec![Event::Overrun])),
            Ok(len) => Ok(Some(decode(&self.buf[..len]))),
            Err(Errno::EAGAIN) => Ok(None),
            Err(Errno::ENOBUFS) => Ok(Some(vec![Event::Overrun])),
            Err(e) => Err(Error::kernel("read network notifications", e)),
        }
    }

    /// Blocks the thread until something has arrived.
    pub fn wait(&mut self) -> Result<Vec<Event>> {
        loop {
            if let Some(events) = self.try_read()? {
                return Ok(events);
            }
            let mut fds = [nix::poll::PollFd::new(self.fd.as_fd(), nix::poll::PollFlags::POLLIN)];
            retry(|| nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE))
                .map_err(|e| Error::kernel("wait for network notifications", e))?;
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Monitor {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn decode(datagram: &[u8]) -> Vec<Event> {
    Parts::new(datagram)
        .filter_map(|part| match part.kind {
            libc::RTM_NEWLINK => link::decode(part).map(Event::Link),
            libc::RTM_DELLINK => link::decode(part).map(Event::LinkGone),
            libc::RTM_NEWADDR => addr::decode(part).map(Event::Address),
            libc::RTM_DELADDR => addr::decode(part).map(Event::AddressGone),
            libc::RTM_NEWROUTE => route::decode(part).map(Event::Route),
            libc::RTM_DELROUTE => route::decode(part).map(Event::RouteGone),
            _ => None,
        })
        .collect()
}
