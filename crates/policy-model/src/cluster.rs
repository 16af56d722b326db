//! The cluster the policies are about, read from manifests.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde_json::Value;

use crate::json::{get, list, number, text};
use crate::selector::Labels;

/// Namespaces, nodes, pods and policies.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// Labels of the namespaces, by name.
    pub namespaces: BTreeMap<String, Labels>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Pods by namespace and name.
    pub pods: BTreeMap<(String, String), Pod>,
    /// NetworkPolicy objects.
    pub network_policies: Vec<Value>,
    /// AdminNetworkPolicy, BaselineAdminNetworkPolicy and ClusterNetworkPolicy objects.
    pub admin_policies: Vec<Value>,
}

/// A node.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Labels.
    pub labels: Labels,
    /// `status.addresses`.
    pub addresses: Vec<IpAddr>,
    /// The addresses pods see when somebody on the node's network talks to them.
    pub seen_as: Vec<IpAddr>,
}

/// A pod.
#[derive(Debug, Clone, Default)]
pub struct Pod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// Node it is bound to.
    pub node: String,
    /// Whether it uses the node's network.
    pub host_network: bool,
    /// Whether it ended for good.
    pub finished: bool,
    /// Its own addresses; none on the node's network.
    pub addresses: Vec<IpAddr>,
    /// The node's addresses, of a pod on the node's network.
    pub host_addresses: Vec<IpAddr>,
    /// Ports its containers declare.
    pub ports: Vec<ContainerPort>,
}

/// A named port of a container.
#[derive(Debug, Clone)]
pub struct ContainerPort {
    /// Name.
    pub name: String,
    /// Protocol.
    pub protocol: Protocol,
    /// Number.
    pub number: u16,
}

/// What runs over IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP and ICMPv6; ports mean nothing.
    Icmp,
}

/// Who talks or is talked to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A pod by namespace and name.
    Pod(String, String),
    /// Somebody on a node's own network.
    Node(String),
    /// Somebody outside.
    Address(IpAddr),
}

/// A new connection, or the first packet of one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Traffic {
    /// Who opens it.
    pub from: Party,
    /// To whom.
    pub to: Party,
    /// Whether over IPv6.
    pub v6: bool,
    /// Over what.
    pub protocol: Protocol,
    /// Destination port.
    pub port: u16,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// The address the other end and the policies see.
    pub ip: IpAddr,
    /// The pod, if it has an address of its own.
    pub pod: Option<&'a Pod>,
    /// The node, if the end is on a node's own network.
    pub node: Option<&'a str>,
}

impl Cluster {
    /// Reads objects; kinds that have nothing to do with policies are passed over.
    pub fn new(objects: &[Value]) -> Cluster {
        let mut cluster = Cluster::default();
        for object in objects {
            let metadata = &object["metadata"];
            let name = text(metadata, "name").unwrap_or_default().to_owned();
            match text(object, "kind") {
                Some("Namespace") => {
                    let mut labels = labels(metadata);
                    // The API server sets it on every namespace.
                    labels.insert("kubernetes.io/metadata.name".to_owned(), name.clone());
                    cluster.namespaces.insert(name, labels);
                }
                Some("Node") => drop(cluster.nodes.insert(name, Node::new(object))),
                Some("Pod") => {
                    let pod = Pod::new(object);
                    cluster.pods.insert((pod.namespace.clone(), pod.name.clone()), pod);
                }
                Some("NetworkPolicy") => cluster.network_policies.push(object.clone()),
                Some("AdminNetworkPolicy" | "BaselineAdminNetworkPolicy" | "ClusterNetworkPolicy") => {
                    cluster.admin_policies.push(object.clone());
                }
                _ => {}
            }
        }
        cluster
    }

    /// The end a party is when it opens a connection; none if it has no address of the family or cannot talk at all.
    pub fn source(&self, party: &Party, v6: bool) -> Option<End<'_>> {
        self.end(party, v6, |node| &node.seen_as)
    }

    /// The end a party is when a connection is opened to it.
    pub fn destination(&self, party: &Party, v6: bool) -> Option<End<'_>> {
        self.end(party, v6, |node| &node.addresses)
    }

    fn end(&self, party: &Party, v6: bool, face: fn(&Node) -> &Vec<IpAddr>) -> Option<End<'_>> {
        let of_family = |list: &[IpAddr]| list.iter().copied().find(|ip| ip.is_ipv6() == v6);
        let on_node = |name: &str| {
            let (name, node) = self.nodes.get_key_value(name)?;
            Some(End { ip: of_family(face(node))?, pod: None, node: Some(name) })
        };
        match party {
            Party::Pod(namespace, name) => {
                let pod = self.pods.get(&(namespace.clone(), name.clone()))?;
                if pod.finished {
                    None
                } else if pod.host_network {
                    on_node(&pod.node)
                } else {
                    Some(End { ip: of_family(&pod.addresses)?, pod: Some(pod), node: None })
                }
            }
            Party::Node(name) => on_node(name),
            Party::Address(ip) if ip.is_ipv6() != v6 => None,
            Party::Address(ip) => {
                let pod = self.pods.values().find(|pod| pod.is_peer() && pod.addresses.contains(ip));
                let node = self.nodes.iter().find(|(_, node)| face(node).contains(ip));
                let node = node.map(|(name, _)| name.as_str());
                Some(End { ip: *ip, pod, node: node.filter(|_| pod.is_none()) })
            }
        }
    }
}

impl Node {
    fn new(object: &Value) -> Node {
        let metadata = &object["metadata"];
        let addresses = list(&object["status"], "addresses").iter();
        let addresses = addresses.filter_map(|address| text(address, "address")?.parse().ok()).collect();
        // The second address of the node's subnet is its management port: through it the node reaches pods.
        let subnets = get(metadata, "annotations")
            .and_then(|annotations| text(annotations, "k8s.ovn.org/node-subnets"))
            .and_then(|subnets| serde_json::from_str::<Value>(subnets).ok())
            .unwrap_or_default();
        let subnets = list(&subnets, "default").iter();
        let subnets = subnets.filter_map(|subnet| subnet.as_str()?.parse::<ipnet::IpNet>().ok());
        let seen_as = subnets.filter_map(|subnet| second(subnet.trunc())).collect();
        Node { labels: labels(metadata), addresses, seen_as }
    }
}

/// The second address after the network's own.
fn second(subnet: ipnet::IpNet) -> Option<IpAddr> {
    match subnet.network() {
        IpAddr::V4(ip) => Some(IpAddr::V4(u32::from(ip).checked_add(2)?.into())),
        IpAddr::V6(ip) => Some(IpAddr::V6(u128::from(ip).checked_add(2)?.into())),
    }
}

impl Pod {
    fn new(object: &Value) -> Pod {
        let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let host_network = get(spec, "hostNetwork").and_then(Value::as_bool).unwrap_or(false);
        let annotated = get(metadata, "annotations")
            .and_then(|annotations| text(annotations, "k8s.ovn.org/pod-networks"))
            .and_then(|networks| serde_json::from_str::<Value>(networks).ok());
        let in_status = list(status, "podIPs").iter();
        let in_status = in_status.filter_map(|ip| text(ip, "ip")?.parse::<IpAddr>().ok()).collect();
        let (addresses, host_addresses) = match &annotated {
            _ if host_network => (Vec::new(), in_status),
            Some(networks) => {
                let ips = list(&networks["default"], "ip_addresses").iter();
                (ips.filter_map(|ip| ip.as_str()?.split('/').next()?.parse().ok()).collect(), Vec::new())
            }
            None => (in_status, Vec::new()),
        };
        // Containers that run before the others only count where they stay.
        let stays = |container: &&Value| text(container, "restartPolicy") == Some("Always");
        let containers = list(spec, "initContainers").iter().filter(stays).chain(list(spec, "containers"));
        let ports = containers.flat_map(|container| list(container, "ports")).filter_map(|port| {
            let protocol = Protocol::parse(text(port, "protocol").unwrap_or("TCP"))?;
            let name = text(port, "name")?.to_owned();
            Some(ContainerPort { name, protocol, number: number(port, "containerPort")? })
        });
        Pod {
            namespace: text(metadata, "namespace").unwrap_or("default").to_owned(),
            name: text(metadata, "name").unwrap_or_default().to_owned(),
            labels: labels(metadata),
            node: text(spec, "nodeName").unwrap_or_default().to_owned(),
            host_network,
            finished: matches!(text(status, "phase"), Some("Succeeded" | "Failed")),
            addresses,
            host_addresses,
            ports: ports.collect(),
        }
    }

    /// Whether selectors of policies can find it as a pod: it lives and has an address of its own.
    pub fn is_peer(&self) -> bool {
        !self.finished && !self.host_network && !self.addresses.is_empty()
    }
}

impl Protocol {
    /// By the name the API gives it.
    pub fn parse(name: &str) -> Option<Protocol> {
        match name {
            "TCP" => Some(Protocol::Tcp),
            "UDP" => Some(Protocol::Udp),
            "SCTP" => Some(Protocol::Sctp),
            _ => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
            Protocol::Icmp => "icmp",
        })
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Pod(namespace, name) => write!(f, "{namespace}/{name}"),
            Party::Node(name) => write!(f, "node {name}"),
            Party::Address(ip) => write!(f, "{ip}"),
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.v6 { 6 } else { 4 };
        write!(f, "{} -> {}:{}/{} over IPv{family}", self.from, self.to, self.port, self.protocol)
    }
}

fn labels(metadata: &Value) -> Labels {
    let labels = metadata.get("labels").and_then(Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
