//! Protocols and ports of rules.

/// The protocols policies know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// The word OVN uses: `tcp`, `udp`, `sctp`.
    pub fn ovn(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }

    /// The word the API uses: `TCP`, `UDP`, `SCTP`.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }

    /// The protocol the API calls so.
    pub fn of(name: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)
    }
}

/// The ports a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ports {
    /// All traffic, also of protocols without ports.
    Any,
    /// Traffic to any of these; an empty list matches nothing.
    Of(Vec<Port>),
}

/// Some ports of a protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// The protocol; none, only with a name, is every protocol that has a port of the name.
    pub protocol: Option<Protocol>,
    /// Which of its ports.
    pub numbers: PortNumbers,
}

/// Which ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortNumbers {
    /// All.
    All,
    /// From the first to the last, both included; one port when they are equal.
    Range(u16, u16),
    /// Those the destination pod's containers call so, of the same protocol.
    Named(String),
}

pub(crate) fn protocol(text: Option<&str>) -> Result<Protocol, String> {
    let text = text.unwrap_or("TCP");
    Protocol::of(text).ok_or_else(|| format!("protocol {text:?} is none of TCP, UDP, SCTP"))
}

pub(crate) fn number(value: i64) -> Result<u16, String> {
    u16::try_from(value)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| format!("{value} is no port; ports are 1 to 65535"))
}

pub(crate) fn range(first: i64, last: i64) -> Result<PortNumbers, String> {
    let (first, last) = (number(first)?, number(last)?);
    if last < first {
        return Err(format!("the port range {first}-{last} ends before it begins"));
    }
    Ok(PortNumbers::Range(first, last))
}
