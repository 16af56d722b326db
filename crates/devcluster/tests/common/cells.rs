//! Who should reach whom through which address of a service, and who does.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use anyhow::Result;
use devcluster::Families;
use serde_json::{Value, json};

use crate::{
    calls::{Got, PROTOCOLS, Place, Site, on_underlay, outside},
    lab::addresses,
};

/// Addresses that a load balancer or an administrator leads to the nodes; the number tells services apart.
pub(crate) fn external(net: u8, number: u8) -> Vec<IpAddr> {
    let v4 = if net == 203 { [203, 0, 113, number] } else { [198, 51, 100, number] };
    vec![v4.into(), [0xfd00, u16::from(net), 0, 0, 0, 0, 0, u16::from(number)].into()]
}

/// The five places that ask.
pub(crate) const PLACES: [&str; 5] = ["pod1", "pod2", "node1", "node2", "outside"];

/// What a client should see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Its own address.
    Own,
    /// That of the gateway router of a node.
    Router(u8),
    /// That of a node.
    Node(u8),
    /// That of a node's management port.
    Port(u8),
    /// What it is depends on which endpoint was chosen.
    Any,
}

/// What asking should lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Exactly these servers answer, and see this.
    Answers(&'static [&'static str], Seen),
    /// It is refused at once.
    Refused,
    /// Nobody answers: a load balancer that asks for the node's health sends nothing there.
    Unanswered,
}

use Expected::{Answers, Refused, Unanswered};

/// One service with the addresses it has.
pub(crate) struct Served {
    name: &'static str,
    pub(crate) targets: Vec<(&'static str, Vec<IpAddr>, BTreeMap<&'static str, u16>)>,
}

impl Served {
    pub(crate) fn new(site: &Site, name: &'static str, object: &Value, number: Option<u8>) -> Result<Served> {
        let families = site.stack.cluster().families();
        let ips: Vec<IpAddr> = serde_json::from_value(object["spec"]["clusterIPs"].clone())?;
        let ports = |field: &str| -> BTreeMap<&'static str, u16> {
            let list = object["spec"]["ports"].as_array().into_iter().flatten();
            list.filter_map(|port| {
                let protocol = PROTOCOLS.into_iter().find(|known| port["name"] == json!(known))?;
                Some((protocol, u16::try_from(port[field].as_u64()?).ok()?))
            })
            .collect()
        };
        let (port, node_port) = (ports("port"), ports("nodePort"));
        let mut targets = vec![("cluster", ips, port.clone())];
        if !node_port.is_empty() {
            targets.push(("nodeport1", on_underlay(families, 1), node_port.clone()));
            targets.push(("nodeport2", on_underlay(families, 2), node_port));
        }
        if let Some(number) = number {
            let has = |ip: &IpAddr| families.has(ip.is_ipv4());
            let all = |net| external(net, number).into_iter().filter(|ip| has(ip)).collect();
            targets.push(("lb", all(203), port.clone()));
            targets.push(("external", all(198), port));
        }
        Ok(Served { name, targets })
    }

    /// `LABEL=PROTOCOL:ADDRESS:PORT` for all of it that a place can ask.
    pub(crate) fn addresses(&self, place: &str, protocols: &[&str]) -> Vec<String> {
        let mut all = Vec::new();
        for (target, ips, ports) in &self.targets {
            if place == "outside" && *target == "cluster" {
                continue;
            }
            for ip in ips {
                for protocol in protocols {
                    let Some(port) = ports.get(protocol) else { continue };
                    let family = if ip.is_ipv4() { "v4" } else { "v6" };
                    let label = format!("{}/{target}/{protocol}/{family}", self.name);
                    all.push(format!("{label}={protocol}:{}", SocketAddr::new(*ip, *port)));
                }
            }
        }
        all
    }
}

/// The node a place is on; outside, the one that a target's packets arrive at.
pub(crate) fn node_of(place: &str, target: &str) -> u8 {
    let at = if place == "outside" { target } else { place };
    if at.ends_with('2') || at == "external" { 2 } else { 1 }
}

/// The rule, from the documentation of Services and of OVN-Kubernetes.
pub(crate) fn expected(mode: &str, place: &str, service: &str, target: &str) -> Expected {
    // OVN's router refuses in the name of the node, which TCP does not take for an answer.
    let unheard = if mode == "shared" { Unanswered } else { Refused };
    let here = node_of(place, target);
    let from_pod = place.starts_with("pod");
    // A node port of another node is reached over the network between nodes.
    let far = target.strip_prefix("nodeport").filter(|number| *number != here.to_string());
    let far: Option<u8> = far.and_then(|number| number.parse().ok());
    let router = Seen::Router(far.unwrap_or(here));
    match (service, target) {
        ("none", _) => Refused,
        ("host", _) => Answers(&["h1", "h2"], Seen::Any),
        ("both", _) if from_pod && far.is_none() => Answers(&["b1", "b2"], Seen::Own),
        ("both", _) => Answers(&["b1", "b2"], router),
        // The only endpoint is on node 1.
        ("inner", _) if here == 2 => Refused,
        ("inner", _) if from_pod => Answers(&["b1"], Seen::Own),
        ("inner", _) => Answers(&["b1"], Seen::Port(1)),
        ("stay", _) if far == Some(2) => Refused,
        ("stay", _) if far == Some(1) => Answers(&["b1"], Seen::Node(2)),
        ("stay", "external") if place == "outside" => unheard,
        ("stay", _) if place == "outside" && here == 2 => Refused,
        // What starts inside the cluster is not from outside, whatever address it uses.
        ("stay", _) if from_pod || place == "outside" => Answers(&["b1"], Seen::Own),
        ("stay", _) => Answers(&["b1"], router),
        _ => Refused,
    }
}

/// The clients' and everybody's addresses, by what they are.
pub(crate) struct Known {
    own: BTreeMap<&'static str, Vec<IpAddr>>,
    families: Families,
    ports: [Vec<IpAddr>; 2],
}

impl Known {
    pub(crate) async fn of(site: &Site) -> Result<Known> {
        let families = site.stack.cluster().families();
        let mut own = BTreeMap::new();
        for place in PLACES {
            let ips = match place {
                "pod1" => addresses(site.pod("c1")?),
                "pod2" => addresses(site.pod("c2")?),
                "node1" => on_underlay(families, 1),
                "node2" => on_underlay(families, 2),
                _ => outside(&site.stack),
            };
            own.insert(place, ips);
        }
        let mut ports = [Vec::new(), Vec::new()];
        for (node, ports) in site.stack.cluster().nodes().iter().zip(&mut ports) {
            let text =
                node.exec(&["ip", "-o", "addr", "show", "dev", "ovn-k8s-mp0", "scope", "global"]).await?;
            let words = text.lines().filter_map(|line| line.split_whitespace().nth(3));
            *ports = words.filter_map(|net| net.split('/').next()?.parse().ok()).collect();
        }
        Ok(Known { own, families, ports })
    }

    /// The address in text; none if it may be any.
    fn address(&self, place: &str, seen: Seen, v4: bool) -> Option<String> {
        let list = match seen {
            Seen::Any => return None,
            Seen::Own => self.own.get(place).cloned().unwrap_or_default(),
            Seen::Node(number) => on_underlay(self.families, number),
            Seen::Port(number) => self.ports[usize::from(number) - 1].clone(),
            // Ids of nodes start at 2.
            Seen::Router(number) => {
                let id = number + 1;
                vec![[100, 64, 0, id].into(), [0xfd98, 0, 0, 0, 0, 0, 0, u16::from(id)].into()]
            }
        };
        list.into_iter().find(|ip| ip.is_ipv4() == v4).map(|ip| ip.to_string())
    }
}

/// What is wrong with an outcome; none if nothing is.
pub(crate) fn judge(known: &Known, mode: &str, place: &str, label: &str, got: &Got) -> Option<String> {
    let mut parts = label.split('/');
    let (service, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let v4 = label.ends_with("v4");
    let right = match expected(mode, place, service, target) {
        Refused => {
            // The kernel and OVN send only so many refusals a second; TCP asks again by itself.
            let enough = label.contains("/udp/") && got.errors.contains("refused");
            got.names.is_empty() && (enough || got.errors == BTreeSet::from(["refused".to_owned()]))
        }
        Unanswered => got.names.is_empty() && !got.errors.is_empty(),
        Answers(names, seen) => {
            let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let seen = known.address(place, seen, v4);
            got.names == names
                && got.errors.is_empty()
                && seen.is_none_or(|seen| got.peers == BTreeSet::from([seen]))
        }
    };
    (!right).then(|| format!("{place} → {label}: {got:?}, not {:?}", expected(mode, place, service, target)))
}

/// An outcome in few letters.
pub(crate) fn cell(known: &Known, place: &str, got: &Got, v4: bool) -> String {
    let names: Vec<&str> = got.names.iter().map(String::as_str).collect();
    let errors: Vec<&str> = got.errors.iter().map(String::as_str).collect();
    let kinds = [
        ("own", Seen::Own),
        ("router1", Seen::Router(1)),
        ("router2", Seen::Router(2)),
        ("node1", Seen::Node(1)),
        ("node2", Seen::Node(2)),
        ("port1", Seen::Port(1)),
        ("port2", Seen::Port(2)),
    ];
    let peers: Vec<String> = got
        .peers
        .iter()
        .map(|peer| {
            let kind = kinds
                .iter()
                .find(|(_, seen)| known.address(place, *seen, v4).as_ref() == Some(peer))
                .map(|(text, _)| (*text).to_owned());
            kind.unwrap_or_else(|| peer.clone())
        })
        .collect();
    let mut text = names.join("+");
    if !peers.is_empty() {
        let _ = write!(text, " as {}", peers.join("+"));
    }
    if !errors.is_empty() {
        let _ = write!(text, " {}", errors.join("+"));
    }
    text.trim().to_owned()
}

/// Protocols this kernel has.
pub(crate) fn protocols() -> Vec<&'static str> {
    let has_sctp = std::path::Path::new("/proc/sys/net/sctp").exists();
    PROTOCOLS.into_iter().filter(|protocol| *protocol != "sctp" || has_sctp).collect()
}

pub(crate) struct Matrix {
    mode: String,
    /// Target, place → cells with the protocols and families they hold for.
    cells: BTreeMap<(String, usize), BTreeMap<String, Vec<String>>>,
    pub(crate) wrong: Vec<String>,
}

impl Matrix {
    pub(crate) async fn of(site: &Site, mode: &str, served: &[Served]) -> Result<Matrix> {
        let known = Known::of(site).await?;
        let protocols = protocols();
        let mut matrix = Matrix { mode: mode.to_owned(), cells: BTreeMap::new(), wrong: Vec::new() };
        for (at, name) in PLACES.into_iter().enumerate() {
            let from = place(site, name)?;
            let targets: Vec<String> =
                served.iter().flat_map(|served| served.addresses(name, &protocols)).collect();
            let (refused, answered): (Vec<String>, Vec<String>) = targets.into_iter().partition(|target| {
                let mut parts = target.split('/');
                let (service, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                !matches!(expected(mode, name, service, target), Answers(..))
            });
            let mut all = site.ask_often(&from, &answered).await?;
            // OVN sends no more than 25 refusals a second.
            for some in refused.chunks(12) {
                all.extend(site.ask(&from, some, "3").await?);
            }
            for (label, got) in all {
                matrix.wrong.extend(judge(&known, mode, name, &label, &got));
                let (target, kind) = split_label(&label);
                let text = cell(&known, name, &got, label.ends_with("v4"));
                matrix.cells.entry((target, at)).or_default().entry(text).or_default().push(kind);
            }
        }
        Ok(matrix)
    }

    /// One line a target, one column a place. Where protocols or families differ it says for which a cell holds.
    pub(crate) fn print(&self) {
        let targets: BTreeSet<&String> = self.cells.keys().map(|(target, _)| target).collect();
        println!("\n{} gateway: target | {}", self.mode, PLACES.join(" | "));
        for target in targets {
            let columns: Vec<String> = (0..PLACES.len())
                .map(|at| match self.cells.get(&(target.clone(), at)) {
                    None => "·".to_owned(),
                    Some(cells) if cells.len() == 1 => cells.keys().cloned().collect(),
                    Some(cells) => {
                        let each = cells.iter().map(|(text, kinds)| format!("{text} ({})", kinds.join(" ")));
                        each.collect::<Vec<_>>().join("; ")
                    }
                })
                .collect();
            println!("{target} | {}", columns.join(" | "));
        }
    }
}

/// `service/target` and `protocol/family`.
pub(crate) fn split_label(label: &str) -> (String, String) {
    let mut slashes = label.match_indices('/').map(|(at, _)| at);
    match slashes.nth(1) {
        Some(at) => (label[..at].to_owned(), label[at + 1..].to_owned()),
        None => (label.to_owned(), String::new()),
    }
}

/// Where each of the five places asks from.
pub(crate) fn place(site: &Site, name: &str) -> Result<Place> {
    Ok(match name {
        "pod1" => Place::Pod(site.pod("c1")?.clone()),
        "pod2" => Place::Pod(site.pod("c2")?.clone()),
        "node1" => site.node(1),
        "node2" => site.node(2),
        _ => Place::Outside,
    })
}
