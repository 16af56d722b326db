//! Sets of ports, as ranges.

use std::collections::BTreeSet;
use std::fmt;

use policy::{Policy, PortNumbers, Ports, Protocol};
use serde::{Serialize, Serializer};

use super::cluster::Cluster;
use super::party::Traffic;

/// Ranges of ports within which no policy tells one port from another.
#[derive(Debug, Clone)]
pub(crate) struct Spans {
    /// The first port of each range, per protocol.
    starts: [BTreeSet<u16>; 3],
}

/// Traffic by protocol and port.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortSet {
    icmp: bool,
    /// Ranges per protocol, in order, with gaps between them.
    ranges: [Vec<(u16, u16)>; 3],
}

fn place(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Tcp => 0,
        Protocol::Udp => 1,
        Protocol::Sctp => 2,
    }
}

impl Spans {
    /// The ranges that these policies tell apart on these clusters' pods.
    pub(crate) fn of<'a>(policies: impl Iterator<Item = &'a Policy>, clusters: &[&Cluster]) -> Spans {
        let mut spans = Spans { starts: [const { BTreeSet::new() }; 3] };
        for starts in &mut spans.starts {
            starts.insert(1);
        }
        let mut names = BTreeSet::new();
        for rule in policies.flat_map(|policy| &policy.rules) {
            let Ports::Of(ports) = &rule.ports else { continue };
            for port in ports {
                match &port.numbers {
                    PortNumbers::All => {}
                    PortNumbers::Range(first, last) => {
                        spans.cut(port.protocol.unwrap_or(Protocol::Tcp), *first, *last);
                    }
                    PortNumbers::Named(name) => drop(names.insert(name.as_str())),
                }
            }
        }
        for pod in clusters.iter().flat_map(|cluster| cluster.pods.values()) {
            for port in pod.ports.iter().filter(|port| names.contains(port.name.as_str())) {
                if let Some(protocol) = Protocol::of(&port.protocol) {
                    spans.cut(protocol, port.port, port.port);
                }
            }
        }
        spans
    }

    fn cut(&mut self, protocol: Protocol, first: u16, last: u16) {
        let starts = &mut self.starts[place(protocol)];
        starts.insert(first.max(1));
        if let Some(next) = last.checked_add(1) {
            starts.insert(next);
        }
    }

    /// The traffic for which `holds`, asked once a range.
    pub(crate) fn filter(&self, mut holds: impl FnMut(Traffic) -> bool) -> PortSet {
        let mut set = PortSet { icmp: holds(Traffic::Icmp), ranges: Default::default() };
        for protocol in Protocol::ALL {
            let starts = &self.starts[place(protocol)];
            let ends = starts.iter().skip(1).map(|next| next - 1).chain([u16::MAX]);
            let ranges = &mut set.ranges[place(protocol)];
            for (first, last) in starts.iter().copied().zip(ends) {
                if !holds(Traffic::Port(protocol, first)) {
                    continue;
                }
                match ranges.last_mut() {
                    Some((_, end)) if *end + 1 == first => *end = last,
                    _ => ranges.push((first, last)),
                }
            }
        }
        set
    }

    /// Something to ask about in every range of the set.
    pub(crate) fn samples<'a>(&'a self, set: &'a PortSet) -> impl Iterator<Item = Traffic> + 'a {
        let ports = Protocol::ALL.into_iter().flat_map(|protocol| {
            self.starts[place(protocol)].iter().map(move |port| Traffic::Port(protocol, *port))
        });
        ports.chain([Traffic::Icmp]).filter(|traffic| set.contains(*traffic))
    }
}

impl PortSet {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        !self.icmp && self.ranges.iter().all(Vec::is_empty)
    }

    /// Whether everything is in it.
    pub fn is_all(&self) -> bool {
        self.icmp && self.ranges.iter().all(|ranges| ranges[..] == [(1, u16::MAX)])
    }

    /// Whether the traffic is in it.
    pub fn contains(&self, traffic: Traffic) -> bool {
        match traffic {
            Traffic::Icmp => self.icmp,
            Traffic::Port(protocol, port) => {
                self.ranges[place(protocol)].iter().any(|(first, last)| (*first..=*last).contains(&port))
            }
        }
    }
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all ports");
        }
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let mut parts = Vec::new();
        for protocol in Protocol::ALL {
            let ranges: Vec<String> = self.ranges[place(protocol)]
                .iter()
                .map(|range| match range {
                    (1, u16::MAX) => "all".to_owned(),
                    (first, last) if first == last => first.to_string(),
                    (first, last) => format!("{first}-{last}"),
                })
                .collect();
            if !ranges.is_empty() {
                parts.push(format!("{} {}", protocol.ovn(), ranges.join(",")));
            }
        }
        if self.icmp {
            parts.push("icmp".to_owned());
        }
        f.write_str(&parts.join(" "))
    }
}

impl Serialize for PortSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
