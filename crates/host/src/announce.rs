//! Tells the neighbours about an address: gratuitous ARP and unsolicited neighbour advertisements.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::{AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};

use crate::{Error, MacBytes, Result, sock::retry};

const ETH_P_ARP: u16 = 0x0806;
const ETH_P_IPV6: u16 = 0x86dd;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const NEXT_HEADER_ICMPV6: u8 = 58;

/// A raw packet socket of the namespace it was opened in; it receives nothing.
#[derive(Debug)]
pub struct Announcer {
    fd: OwnedFd,
}

// === impl Announcer ===

impl Announcer {
    /// Opens the socket in the calling thread's namespace. Needs CAP_NET_RAW.
    pub fn open() -> Result<Announcer> {
        let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|e| Error::kernel("open packet socket", e))?;
        Ok(Announcer { fd })
    }

    /// Announces `ip` at `mac` on the link.
    pub fn announce(&self, index: u32, mac: MacBytes, ip: IpAddr) -> Result<()> {
        match ip {
            IpAddr::V4(v4) => self.send(index, [0xff; 6], &gratuitous_arp(mac, v4)),
            IpAddr::V6(v6) => self.send(index, [0x33, 0x33, 0, 0, 0, 1], &unsolicited_na(mac, v6)),
        }
        .map_err(|e| Error::kernel(format_args!("announce {ip} on link {index}"), e))
    }

    fn send(&self, index: u32, to: MacBytes, frame: &[u8]) -> nix::Result<()> {
        let mut halen_addr = [0; 8];
        halen_addr[..6].copy_from_slice(&to);
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: u16::from_ne_bytes([frame[12], frame[13]]),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: halen_addr,
        };
        retry(|| {
            #[expect(
                unsafe_code,
                reason = "sendto with a sockaddr_ll, which nix cannot build; lengths match"
            )]
            let rc = unsafe {
                libc::sendto(
                    self.fd.as_raw_fd(),
                    frame.as_ptr().cast(),
                    frame.len(),
                    0,
                    (&raw const address).cast(),
                    size_of::<libc::sockaddr_ll>() as libc::socklen_t,
                )
            };
            Errno::result(rc).map(|_| ())
        })
    }
}

/// An ARP request in which sender and target are `ip` (RFC 5227 §3).
fn gratuitous_arp(mac: MacBytes, ip: Ipv4Addr) -> Vec<u8> {
    let mut frame = Vec::with_capacity(42);
    frame.extend_from_slice(&[0xff; 6]);
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&ETH_P_ARP.to_be_bytes());
    frame.extend_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&ip.octets());
    frame.extend_from_slice(&[0; 6]);
    frame.extend_from_slice(&ip.octets());
    frame
}

/// A neighbour advertisement to all nodes with the override flag and our link-layer address (RFC 4861 §7.2.6).
fn unsolicited_na(mac: MacBytes, ip: Ipv6Addr) -> Vec<u8> {
    let mut icmp = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    icmp.extend_from_slice(&ip.octets());
    icmp.extend_from_slice(&[2, 1]);
    icmp.extend_from_slice(&mac);
    let sum = icmpv6_checksum(&ip, &ALL_NODES, &icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());

    let mut frame = Vec::with_capacity(86);
    frame.extend_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&ETH_P_IPV6.to_be_bytes());
    frame.extend_from_slice(&[0x60, 0, 0, 0]);
    frame.extend_from_slice(&(icmp.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[NEXT_HEADER_ICMPV6, 255]);
    frame.extend_from_slice(&ip.octets());
    frame.extend_from_slice(&ALL_NODES.octets());
    frame.extend_from_slice(&icmp);
    frame
}

fn icmpv6_checksum(src: &Ipv6Addr, dst: &Ipv6Addr, icmp: &[u8]) -> u16 {
    let pseudo = [&src.octets()[..], &dst.octets()[..]].concat();
    let words = pseudo.chunks(2).chain(icmp.chunks(2));
    let mut sum: u32 =
        words.map(|w| u32::from(u16::from_be_bytes([w[0], w.get(1).copied().unwrap_or(0)]))).sum::<u32>()
            + icmp.len() as u32
            + u32::from(NEXT_HEADER_ICMPV6);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
