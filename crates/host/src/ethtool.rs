//! Offload settings (ethtool ioctls) of the handle's namespace.

use std::os::fd::AsRawFd;

use nix::errno::Errno;

use crate::{Error, Handle, Result, link::NAME_MAX, sock::retry};

const SIOCETHTOOL: u64 = 0x8946;
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_STXCSUM: u32 = 0x17;

#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
}

/// `struct ifreq` with the pointer member of its union.
#[repr(C)]
struct Request {
    name: [u8; NAME_MAX + 1],
    data: *mut Value,
    rest: [u8; 16],
}

// === impl Handle ===

impl Handle {
    /// Whether the link hands packets with unfinished checksums to its peer.
    pub fn tx_checksum(&self, link: &str) -> Result<bool> {
        self.ethtool(link, ETHTOOL_GTXCSUM, 0).map(|v| v != 0)
    }

    /// Switches transmit checksum offload. With the userspace datapath it must be off on pod interfaces, or TCP
    /// that leaves the node stalls on packets whose checksum nobody finishes.
    pub fn set_tx_checksum(&self, link: &str, on: bool) -> Result<()> {
        self.ethtool(link, ETHTOOL_STXCSUM, u32::from(on)).map(|_| ())
    }

    fn ethtool(&self, link: &str, cmd: u32, data: u32) -> Result<u32> {
        let mut value = Value { cmd, data };
        let mut request = Request { name: [0; NAME_MAX + 1], data: &raw mut value, rest: [0; 16] };
        let bytes = link.as_bytes();
        if bytes.len() > NAME_MAX {
            return Err(Error::NoLink(link.to_owned()));
        }
        request.name[..bytes.len()].copy_from_slice(bytes);
        self.with_fd(|fd| {
            retry(|| {
                #[expect(
                    unsafe_code,
                    reason = "SIOCETHTOOL takes an ifreq that points at the command; both live until it returns"
                )]
                let rc = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
                Errno::result(rc)
            })
        })
        .map_err(|e| Error::kernel(format_args!("ethtool checksum offload of {link}"), e))?;
        Ok(value.data)
    }
}
