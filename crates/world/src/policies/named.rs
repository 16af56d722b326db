//! Ports that rules name and containers number.

use std::collections::BTreeMap;

use policy::{Protocol, Selection};

use super::peer::PeerPod;

/// A port of the pods of a selection, by the name containers give it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortName {
    /// The protocol the rule is about; none is all.
    pub(crate) protocol: Option<Protocol>,
    /// The name.
    pub(crate) name: String,
}

/// What a name stands for with some pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedPort {
    /// The protocol.
    pub protocol: Protocol,
    /// The number.
    pub number: u16,
}

/// The pods of a selection with which a port's name stands for one number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortSet {
    /// The pods to look among.
    pub selection: Selection,
    /// The port's name.
    pub name: String,
    /// What it stands for.
    pub resolved: ResolvedPort,
}

impl PortSet {
    /// The text that tells the set from others.
    pub fn text(&self) -> String {
        let (protocol, number) = (self.resolved.protocol.ovn(), self.resolved.number);
        let host = if self.selection.host_pods { ",host" } else { "" };
        format!("{}_NP{{{protocol},{},{number}{host}}}", self.selection.text(), self.name)
    }
}

impl PortName {
    /// What the name stands for with this pod.
    pub(crate) fn resolve<'a>(&'a self, pod: &'a PeerPod) -> impl Iterator<Item = ResolvedPort> + 'a {
        let named = pod.ports.iter().filter(|port| port.name == self.name);
        let resolved = named.filter_map(|port| {
            Some(ResolvedPort { protocol: Protocol::of(&port.protocol)?, number: port.port })
        });
        resolved.filter(|port| self.protocol.is_none_or(|wanted| wanted == port.protocol))
    }
}

/// How many pods of a selection resolve to what.
pub(crate) type Counts = BTreeMap<ResolvedPort, usize>;
