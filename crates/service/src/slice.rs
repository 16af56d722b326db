//! An EndpointSlice, read once.

use std::net::IpAddr;
use std::sync::Arc;

use kapi::{HEADLESS, Protocol, SERVICE_PROXY_NAME};
use net::Family;

use crate::names::Names;

/// Some endpoints of a service and the ports all of them have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Family of all endpoints.
    pub family: Family,
    /// Ports with a number.
    pub ports: Box<[SlicePort]>,
    /// Endpoints whose address can be used.
    pub endpoints: Box<[Endpoint]>,
    /// What of the object cannot be used, in words.
    pub problems: Box<[Box<str>]>,
}

/// One port all endpoints of a slice have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// The service port it belongs to.
    pub name: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Number at the endpoints.
    pub port: u16,
}

/// One endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub ip: IpAddr,
    /// Whether it takes connections.
    pub ready: bool,
    /// Whether it answers although it is going away. Counts only while no endpoint is ready.
    pub draining: bool,
    /// The node it is on, where that is known.
    pub node: Option<Arc<str>>,
    /// Who should use it; most slices say nothing.
    pub hints: Option<Box<Hints>>,
}

/// Who should use an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hints {
    /// Clients in these zones.
    pub zones: Box<[Arc<str>]>,
    /// Clients on these nodes.
    pub nodes: Box<[Arc<str>]>,
}

impl Slice {
    /// Reads an EndpointSlice object; `None` if it is of no use to us: names instead of addresses, or for another
    /// implementation by label.
    pub(crate) fn read(object: &kapi::EndpointSlice, names: &mut Names) -> Option<Slice> {
        let labels = &object.metadata.labels;
        let foreign = [SERVICE_PROXY_NAME, HEADLESS].iter().any(|label| labels.contains_key(*label));
        let name = &object.metadata.name;
        let mut problems: Vec<Box<str>> = Vec::new();
        let family = match object.address_type.as_str() {
            _ if foreign => return None,
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            _ => return None,
        };
        let mut ports = Vec::with_capacity(object.ports.len());
        for port in &object.ports {
            let Some(number) = port.port else { continue };
            match u16::try_from(number).ok().filter(|number| *number != 0) {
                Some(number) if port.protocol != Protocol::Other => ports.push(SlicePort {
                    name: names.shared(&port.name),
                    protocol: port.protocol,
                    port: number,
                }),
                _ => problems.push(
                    format!(
                        "EndpointSlice {name}: port {number} of protocol {} cannot be used; correct it",
                        port.protocol
                    )
                    .into(),
                ),
            }
        }
        let mut endpoints = Vec::with_capacity(object.endpoints.len());
        for endpoint in &object.endpoints {
            let Some(text) = endpoint.addresses.first() else { continue };
            match text.parse::<IpAddr>() {
                Ok(ip) if Family::of(ip) == family => endpoints.push(read_endpoint(ip, endpoint, names)),
                Ok(ip) => problems.push(
                    format!(
                        "EndpointSlice {name}: address {ip} is not of the slice's type {}; put it into a slice of its own type",
                        object.address_type
                    )
                    .into(),
                ),
                Err(_) => problems
                    .push(format!("EndpointSlice {name}: {text:?} is no IP address; correct it").into()),
            }
        }
        Some(Slice { family, ports: ports.into(), endpoints: endpoints.into(), problems: problems.into() })
    }
}

fn read_endpoint(ip: IpAddr, endpoint: &kapi::Endpoint, names: &mut Names) -> Endpoint {
    let conditions = &endpoint.conditions;
    let mut shared = |list: &[kapi::HintFor]| list.iter().map(|hint| names.shared(&hint.name)).collect();
    let hints =
        endpoint.hints.as_ref().filter(|hints| !(hints.for_zones.is_empty() && hints.for_nodes.is_empty()));
    let hints = hints
        .map(|hints| Box::new(Hints { zones: shared(&hints.for_zones), nodes: shared(&hints.for_nodes) }));
    Endpoint {
        ip,
        ready: conditions.is_ready(),
        draining: !conditions.is_ready() && conditions.is_serving() && conditions.is_terminating(),
        node: endpoint.node_name.as_deref().filter(|node| !node.is_empty()).map(|node| names.shared(node)),
        hints,
    }
}
