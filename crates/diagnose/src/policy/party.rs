//! Who talks to whom, as people write it.

use std::fmt;
use std::net::IpAddr;

use kapi::PodKey;
use net::Family;
use policy::Protocol;

use super::cluster::Cluster;
use super::suggest::nearest;

/// Who talks or is talked to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A pod.
    Pod(PodKey),
    /// Somebody on a node's own network.
    Node(String),
    /// Whoever has this address.
    Address(IpAddr),
}

/// A connection somebody asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Who opens it.
    pub from: Party,
    /// To whom.
    pub to: Party,
    /// Over what.
    pub traffic: Traffic,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Traffic {
    /// To a port.
    Port(Protocol, u16),
    /// ICMP or ICMPv6.
    Icmp,
}

/// Why a text names nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartyError {
    /// There is no such pod.
    #[error("there is no pod {name}{}", hint(.near))]
    UnknownPod {
        /// What was asked for, `namespace/name`.
        name: String,
        /// Names that look like it.
        near: Vec<String>,
    },
    /// There is no such node.
    #[error("there is no node {name}{}", hint(.near))]
    UnknownNode {
        /// What was asked for.
        name: String,
        /// Names that look like it.
        near: Vec<String>,
    },
    /// The destination has no port.
    #[error("{text:?} names no port; write DST:PORT, DST:PORT/udp or DST:icmp")]
    NoPort {
        /// What was written.
        text: String,
    },
    /// The port is neither a number nor a name the pod knows.
    #[error("{port:?} is no port from 1 to 65535, and no {protocol} port of {party} has that name{}", hint(.near))]
    UnknownPort {
        /// What was written.
        port: String,
        /// Of which protocol.
        protocol: &'static str,
        /// The destination.
        party: String,
        /// The names it has.
        near: Vec<String>,
    },
    /// The protocol is not one policies know.
    #[error("{text:?} is none of tcp, udp, sctp")]
    UnknownProtocol {
        /// What was written.
        text: String,
    },
    /// The pod has ended.
    #[error("pod {name} has ended; it sends and receives nothing")]
    Finished {
        /// Its name.
        name: String,
    },
    /// The two have no address family in common.
    #[error("{from} and {to} have no IP family in common")]
    NoFamily {
        /// The one end.
        from: String,
        /// The other end.
        to: String,
    },
}

fn hint(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

impl Party {
    /// Reads `namespace/pod`, `node/name`, an address, or the bare name of a pod of `namespace` or of a node.
    ///
    /// # Errors
    /// When there is nobody of that name.
    pub fn parse(cluster: &Cluster, text: &str, namespace: &str) -> Result<Party, PartyError> {
        if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse() {
            return Ok(Party::Address(ip));
        }
        let pod = match text.split_once('/') {
            Some(("node", name)) if cluster.nodes.contains_key(name) => {
                return Ok(Party::Node(name.to_owned()));
            }
            Some(("pod", name)) => PodKey::new(namespace, name),
            Some((namespace, name)) => PodKey::new(namespace, name),
            None => PodKey::new(namespace, text),
        };
        if cluster.pods.contains_key(&pod) {
            return Ok(Party::Pod(pod));
        }
        match text.split_once('/') {
            Some(("node", name)) => {
                let near = nearest(name, cluster.nodes.keys().map(String::as_str));
                return Err(PartyError::UnknownNode { name: name.to_owned(), near });
            }
            None if cluster.nodes.contains_key(text) => return Ok(Party::Node(text.to_owned())),
            _ => {}
        }
        let names: Vec<String> = cluster.pods.keys().map(ToString::to_string).collect();
        let mut near = nearest(&pod.to_string(), names.iter().map(String::as_str));
        if near.is_empty() {
            // The name may be right and the namespace forgotten.
            let same = |name: &&String| name.rsplit('/').next() == Some(pod.name.as_str());
            near = names.iter().filter(same).take(3).cloned().collect();
        }
        Err(PartyError::UnknownPod { name: pod.to_string(), near })
    }
}

impl Question {
    /// Reads source and destination; the destination is `PARTY:PORT`, `PARTY:PORT/PROTOCOL` or `PARTY:icmp`, an IPv6 address
    /// in brackets. A port may be the name of a container's port.
    ///
    /// # Errors
    /// When one of the parts means nothing.
    pub fn parse(cluster: &Cluster, from: &str, to: &str, namespace: &str) -> Result<Question, PartyError> {
        let from = Party::parse(cluster, from, namespace)?;
        let no_port = || PartyError::NoPort { text: to.to_owned() };
        let (party, port) = to.rsplit_once(':').ok_or_else(no_port)?;
        // Of an IPv6 address without brackets the end looks like a port.
        if port.is_empty() || port.contains(']') || to.parse::<IpAddr>().is_ok() {
            return Err(no_port());
        }
        let party = Party::parse(cluster, party, namespace)?;
        if port.eq_ignore_ascii_case("icmp") {
            return Ok(Question { from, to: party, traffic: Traffic::Icmp });
        }
        let (port, protocol) = port.split_once('/').unwrap_or((port, "tcp"));
        let protocol = Protocol::of(&protocol.to_uppercase())
            .ok_or_else(|| PartyError::UnknownProtocol { text: protocol.to_owned() })?;
        let port = number(cluster, &party, port, protocol)?;
        Ok(Question { from, to: party, traffic: Traffic::Port(protocol, port) })
    }
}

fn number(cluster: &Cluster, party: &Party, text: &str, protocol: Protocol) -> Result<u16, PartyError> {
    if let Some(port) = text.parse().ok().filter(|port| *port > 0) {
        return Ok(port);
    }
    let mut names = Vec::new();
    if let Some(pod) = cluster.pod_of(party) {
        let of_protocol = pod.ports.iter().filter(|port| port.protocol == protocol.name());
        for port in of_protocol {
            if port.name == text {
                return Ok(port.port);
            }
            names.push(port.name.clone());
        }
    }
    names.truncate(4);
    Err(PartyError::UnknownPort {
        port: text.to_owned(),
        protocol: protocol.name(),
        party: party.to_string(),
        near: names,
    })
}

impl Cluster {
    fn pod_of(&self, party: &Party) -> Option<&super::cluster::PodView> {
        match party {
            Party::Pod(key) => self.pods.get(key),
            Party::Address(ip) => {
                self.pods.values().find(|pod| pod.is_policed() && pod.addresses.contains(ip))
            }
            Party::Node(_) => None,
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Pod(key) => write!(f, "{key}"),
            Party::Node(name) => write!(f, "node/{name}"),
            Party::Address(ip) => write!(f, "{ip}"),
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Traffic::Port(protocol, port) => write!(f, "{port}/{}", protocol.ovn()),
            Traffic::Icmp => f.write_str("icmp"),
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> ", self.from)?;
        match &self.to {
            Party::Address(ip) if ip.is_ipv6() => write!(f, "[{ip}]:{}", self.traffic),
            to => write!(f, "{to}:{}", self.traffic),
        }
    }
}

/// `IPv4` or `IPv6`.
pub(crate) fn family_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
