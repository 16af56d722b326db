//! The first two packets of SCTP, by hand: no kernel here needs to speak it, and policies judge the first one.

use std::{
    collections::HashMap,
    io::Read,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU16, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

const SCTP: i32 = 132;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
/// Smallest source port of questions.
const FIRST_PORT: u16 = 33_000;
/// Where a chunk begins, behind the common header.
const CHUNK: usize = 12;

type Waiting = Mutex<HashMap<(SocketAddr, u16), mpsc::Sender<()>>>;

/// Raw sockets of both families that answer, and that ask.
pub(crate) struct Endpoint {
    v4: Socket,
    v6: Socket,
    next: AtomicU16,
    waiting: Arc<Waiting>,
}

impl Endpoint {
    /// Answers on `ports` from now on.
    pub(crate) fn open(ports: Vec<u16>) -> Result<Endpoint> {
        let open = |domain| {
            Socket::new(domain, Type::RAW, Some(Protocol::from(SCTP)))
                .context("opening a raw socket for SCTP")
        };
        let endpoint = Endpoint {
            v4: open(Domain::IPV4)?,
            v6: open(Domain::IPV6)?,
            next: AtomicU16::new(FIRST_PORT),
            waiting: Arc::default(),
        };
        for (socket, is_v4) in [(&endpoint.v4, true), (&endpoint.v6, false)] {
            let (socket, waiting, ports) = (socket.try_clone()?, endpoint.waiting.clone(), ports.clone());
            thread::spawn(move || answer(&socket, is_v4, &ports, &waiting));
        }
        Ok(endpoint)
    }

    /// Whether somebody answers there before the deadline.
    pub(crate) fn reaches(&self, place: SocketAddr, deadline: Instant, again: Duration) -> bool {
        let own = FIRST_PORT + self.next.fetch_add(1, Ordering::Relaxed) % 16_000;
        let (sender, receiver) = mpsc::channel();
        let waiting = || self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting().insert((place, own), sender);
        let socket = if place.is_ipv4() { &self.v4 } else { &self.v6 };
        let question = packet(own, place.port(), 0, INIT, u32::from(own));
        let mut reached = false;
        while !reached && Instant::now() < deadline {
            let _ = socket.send_to(&question, &SocketAddr::new(place.ip(), 0).into());
            reached = receiver.recv_timeout(again).is_ok();
        }
        waiting().remove(&(place, own));
        reached
    }
}

fn answer(socket: &Socket, is_v4: bool, ports: &[u16], waiting: &Waiting) {
    let mut buffer = vec![0; 2048];
    loop {
        let received = if is_v4 { from_v4(socket, &mut buffer) } else { from_v6(socket, &mut buffer) };
        let Some((peer, packet_bytes)) = received else { continue };
        let word = |at: usize| packet_bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
        let (Some(source), Some(destination)) = (word(0), word(2)) else { continue };
        match packet_bytes.get(CHUNK) {
            Some(&INIT) if ports.contains(&destination) => {
                let Some(tag) = packet_bytes.get(CHUNK + 4..CHUNK + 8) else { continue };
                let tag = u32::from_be_bytes([tag[0], tag[1], tag[2], tag[3]]);
                let reply = packet(destination, source, tag, INIT_ACK, 1);
                let _ = socket.send_to(&reply, &SocketAddr::new(peer, 0).into());
            }
            Some(&INIT_ACK) => {
                let key = (SocketAddr::new(peer, source), destination);
                let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(sender) = waiting.get(&key) {
                    let _ = sender.send(());
                }
            }
            _ => {}
        }
    }
}

/// Of IPv4 the header comes along.
fn from_v4(mut socket: &Socket, buffer: &mut [u8]) -> Option<(IpAddr, Vec<u8>)> {
    let count = socket.read(buffer).ok()?;
    let packet = buffer.get(..count)?;
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    Some((Ipv4Addr::from(source).into(), packet.get(header..)?.to_vec()))
}

/// Of IPv6 it does not; the sender is told beside.
fn from_v6(socket: &Socket, buffer: &mut [u8]) -> Option<(IpAddr, Vec<u8>)> {
    let mut room: Vec<std::mem::MaybeUninit<u8>> = vec![std::mem::MaybeUninit::new(0); buffer.len()];
    // The length is learnt by looking; the bytes are taken by reading, in order, by this thread alone.
    let (_, sender) = socket.peek_from(&mut room).ok()?;
    let mut reader = socket;
    let count = reader.read(buffer).ok()?;
    let ip: Ipv6Addr = *sender.as_socket_ipv6()?.ip();
    Some((ip.into(), buffer.get(..count)?.to_vec()))
}

/// A packet with one chunk.
fn packet(source: u16, destination: u16, verification: u32, kind: u8, tag: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend(verification.to_be_bytes());
    bytes.extend([0; 4]);
    // A cookie belongs into the answer.
    let cookie: &[u8] = if kind == INIT_ACK { &[0, 7, 0, 8, 1, 2, 3, 4] } else { &[] };
    let length = 20 + u16::try_from(cookie.len()).unwrap_or(0);
    bytes.extend([kind, 0]);
    bytes.extend(length.to_be_bytes());
    bytes.extend(tag.to_be_bytes());
    bytes.extend(65_536u32.to_be_bytes());
    bytes.extend([0, 1, 0, 1]);
    bytes.extend(1u32.to_be_bytes());
    bytes.extend(cookie);
    let sum = crc32c(&bytes).to_le_bytes();
    bytes[8..12].copy_from_slice(&sum);
    bytes
}

/// The checksum of SCTP, without which connection tracking in the kernel drops the packet.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |sum: u32, _| {
                if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_published_one() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
