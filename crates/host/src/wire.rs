//! Netlink bytes: building requests and walking answers. Native byte order, four-byte alignment (netlink(7)).

/// Length of `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;
const NLA_F_NESTED: u16 = 1 << 15;
const NLA_TYPE_MASK: u16 = 0x3fff;

/// One request under construction; the length field is filled in by [`Message::finish`].
#[derive(Debug)]
pub(crate) struct Message {
    buf: Vec<u8>,
}

/// One message of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) seq: u32,
    /// Port id of the socket whose request this answers or tells of.
    pub(crate) port: u32,
    pub(crate) body: &'a [u8],
}

/// Walks the attributes of a message body; stops at the first malformed one.
#[derive(Debug, Clone)]
pub(crate) struct Attrs<'a>(&'a [u8]);

/// Walks the messages of one datagram; stops at the first malformed one.
#[derive(Debug)]
pub(crate) struct Parts<'a>(&'a [u8]);

// === impl Message ===

impl Message {
    /// A request of `kind` with `flags`, followed by the family header `fixed`.
    pub(crate) fn new(kind: u16, flags: i32, fixed: &[u8]) -> Self {
        let mut buf = Vec::with_capacity(256);
        buf.extend_from_slice(&[0; 4]);
        buf.extend_from_slice(&kind.to_ne_bytes());
        let flags = u16::try_from(flags).unwrap_or(0) | libc_u16(libc::NLM_F_REQUEST);
        buf.extend_from_slice(&flags.to_ne_bytes());
        buf.extend_from_slice(&[0; 8]);
        let mut message = Message { buf };
        message.raw(fixed);
        message
    }

    /// Appends bytes and pads to the alignment.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
        self.buf.resize(self.buf.len().next_multiple_of(4), 0);
    }

    /// Appends one attribute.
    pub(crate) fn attr(&mut self, kind: u16, value: &[u8]) {
        let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.buf.extend_from_slice(&len.to_ne_bytes());
        self.buf.extend_from_slice(&kind.to_ne_bytes());
        self.raw(value);
    }

    pub(crate) fn attr_u32(&mut self, kind: u16, value: u32) {
        self.attr(kind, &value.to_ne_bytes());
    }

    pub(crate) fn attr_str(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attr(kind, &bytes);
    }

    /// Appends a nested attribute whose contents `fill` writes.
    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        let start = self.buf.len();
        self.buf.extend_from_slice(&[0; 2]);
        self.buf.extend_from_slice(&(kind | NLA_F_NESTED).to_ne_bytes());
        fill(self);
        let len = u16::try_from(self.buf.len() - start).unwrap_or(u16::MAX);
        self.buf[start..start + 2].copy_from_slice(&len.to_ne_bytes());
    }

    /// The finished request with this sequence number and these extra flags.
    pub(crate) fn finish(mut self, seq: u32, more_flags: i32) -> Vec<u8> {
        let len = u32::try_from(self.buf.len()).unwrap_or(u32::MAX);
        self.buf[0..4].copy_from_slice(&len.to_ne_bytes());
        let flags = u16_at(&self.buf, 6).unwrap_or(0) | libc_u16(more_flags);
        self.buf[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.buf[8..12].copy_from_slice(&seq.to_ne_bytes());
        self.buf
    }
}

// === impl Parts, Attrs ===

impl<'a> Parts<'a> {
    pub(crate) fn new(datagram: &'a [u8]) -> Self {
        Parts(datagram)
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let len = u32_at(self.0, 0)? as usize;
        if len < HEADER || len > self.0.len() {
            return None;
        }
        let part = Part {
            kind: u16_at(self.0, 4)?,
            flags: u16_at(self.0, 6)?,
            seq: u32_at(self.0, 8)?,
            port: u32_at(self.0, 12)?,
            body: &self.0[HEADER..len],
        };
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(part)
    }
}

impl<'a> Attrs<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Attrs(bytes)
    }

    /// The attributes after a family header of `fixed` bytes.
    pub(crate) fn after(body: &'a [u8], fixed: usize) -> Self {
        Attrs(body.get(fixed..).unwrap_or_default())
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let len = usize::from(u16_at(self.0, 0)?);
        if len < 4 || len > self.0.len() {
            return None;
        }
        let kind = u16_at(self.0, 2)? & NLA_TYPE_MASK;
        let value = &self.0[4..len];
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// A small libc constant as the 16 bits the wire has for it.
pub(crate) fn libc_u16(value: i32) -> u16 {
    (value & 0xffff) as u16
}

/// A native-order `u16` at `at`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

/// A native-order `u32` at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// The text of a zero-terminated attribute.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// An IP address of 4 or 16 bytes.
pub(crate) fn ip(value: &[u8]) -> Option<std::net::IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(value).ok().map(Into::into)
}

/// The bytes of an IP address.
pub(crate) fn ip_bytes(ip: &std::net::IpAddr) -> Vec<u8> {
    match ip {
        std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
        std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address family number of an IP address.
pub(crate) fn family(ip: &std::net::IpAddr) -> u8 {
    match ip {
        std::net::IpAddr::V4(_) => libc::AF_INET as u8,
        std::net::IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip_with_padding_and_nesting() {
        let mut message = Message::new(16, 0, &[1, 2, 3, 4]);
        message.attr_str(3, "eth0");
        message.nest(18, |m| m.attr_u32(4, 7));
        let bytes = message.finish(9, 0);
        let part = Parts::new(&bytes).next().expect("one message");
        assert_eq!((part.kind, part.seq), (16, 9));
        let attrs: Vec<_> = Attrs::after(part.body, 4).collect();
        assert_eq!(text(attrs[0].1), "eth0");
        assert_eq!(attrs[1].0, 18);
        assert_eq!(Attrs::new(attrs[1].1).next(), Some((4, &7u32.to_ne_bytes()[..])));
    }

    #[test]
    fn malformed_bytes_end_the_walk() {
        for len in 0..40usize {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 37 % 251) as u8).collect();
            assert!(Parts::new(&bytes).count() <= len);
            assert!(Attrs::new(&bytes).count() <= len);
        }
    }
}
