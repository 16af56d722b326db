//! A Service, read once.

use std::net::IpAddr;

use kapi::{HEADLESS, Protocol, SERVICE_PROXY_NAME, ServiceKey, ServiceType};
use net::IpNet;

/// Seconds of session affinity that mean "for ever" (the longest the API takes).
pub const MAX_AFFINITY: u32 = 86_400;
/// Seconds of session affinity where the API says nothing.
const DEFAULT_AFFINITY: u32 = 10_800;
/// Annotation a service has while its pods are asleep.
const IDLED_AT: &str = "k8s.ovn.org/idled-at";

/// A service somebody balances, in normal form. Owns no endpoints: those are in its slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub key: ServiceKey,
    /// UID of the object.
    pub uid: Box<str>,
    /// How the service is reached; never `ExternalName`.
    pub kind: ServiceType,
    /// Addresses inside the cluster.
    pub cluster_ips: Box<[IpAddr]>,
    /// `spec.externalIPs`.
    pub external_ips: Box<[IpAddr]>,
    /// Addresses of the load balancer with which traffic arrives at the nodes (mode `VIP`).
    pub ingress_ips: Box<[IpAddr]>,
    /// Ports in the order of the object.
    pub ports: Box<[Port]>,
    /// Seconds a silent client keeps its endpoint; none without affinity.
    pub affinity: Option<u32>,
    /// Whether traffic from outside stays on the node it arrives at. Only with kind NodePort or LoadBalancer, or
    /// external addresses.
    pub external_local: bool,
    /// Whether traffic from inside stays on the node it starts from.
    pub internal_local: bool,
    /// Port on which nodes tell whether they have endpoints.
    pub health_check_port: Option<u16>,
    /// Whether endpoints count that are not ready.
    pub publish_not_ready: bool,
    /// Clients that may use the load balancer's addresses; empty means all.
    pub source_ranges: Box<[IpNet]>,
    /// Whether the service's pods are asleep and to be woken by the first packet.
    pub idled: bool,
    /// What of the object cannot be used, in words.
    pub problems: Box<[Box<str>]>,
}

/// One port of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Name, by which slices refer to the port; empty if it is the only one.
    pub name: Box<str>,
    /// Protocol; never [`Protocol::Other`].
    pub protocol: Protocol,
    /// The port clients use.
    pub port: u16,
    /// The port on every node.
    pub node_port: Option<u16>,
}

impl Service {
    /// Reads a Service object; `None` if it is not for us to balance.
    pub fn read(object: &kapi::Service) -> Option<Service> {
        let (meta, spec) = (&object.metadata, &object.spec);
        let foreign = [SERVICE_PROXY_NAME, HEADLESS].iter().any(|label| meta.labels.contains_key(*label));
        let reachable =
            matches!(spec.kind, ServiceType::ClusterIP | ServiceType::NodePort | ServiceType::LoadBalancer);
        let texts = match spec.cluster_ips.as_slice() {
            [] => std::slice::from_ref(&spec.cluster_ip),
            all => all,
        };
        if foreign || !reachable || matches!(texts.first().map(String::as_str), None | Some("" | "None")) {
            return None;
        }
        let mut problems = Problems::default();
        let cluster_ips = problems.ips("spec.clusterIPs", texts);
        let external_ips = problems.ips("spec.externalIPs", &spec.external_ips);
        let has_outside = spec.kind != ServiceType::ClusterIP;
        let ingress: Vec<String> = object
            .status
            .load_balancer
            .ingress
            .iter()
            .filter(|entry| !entry.ip.is_empty() && entry.ip_mode.as_deref() != Some("Proxy"))
            .map(|entry| entry.ip.clone())
            .collect();
        let ingress_ips = match spec.kind {
            ServiceType::LoadBalancer => problems.ips("status.loadBalancer.ingress", &ingress),
            _ => Box::default(),
        };
        let ports = spec.ports.iter().filter_map(|port| problems.port(port, has_outside)).collect();
        let source_ranges = match spec.kind {
            ServiceType::LoadBalancer => problems.ranges(&spec.load_balancer_source_ranges),
            _ => Box::default(),
        };
        Some(Service {
            key: ServiceKey::new(&meta.namespace, &meta.name),
            uid: meta.uid.as_str().into(),
            kind: spec.kind,
            external_local: spec.external_traffic_policy == "Local"
                && (has_outside || !external_ips.is_empty()),
            internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            cluster_ips,
            external_ips,
            ingress_ips,
            ports,
            affinity: affinity(spec),
            health_check_port: u16::try_from(spec.health_check_node_port).ok().filter(|port| *port != 0),
            publish_not_ready: spec.publish_not_ready_addresses,
            source_ranges,
            idled: meta.annotation(IDLED_AT).is_some_and(|value| !value.is_empty()),
            problems: problems.list.into(),
        })
    }
}

fn affinity(spec: &kapi::ServiceSpec) -> Option<u32> {
    if spec.session_affinity != "ClientIP" {
        return None;
    }
    let client = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds =
        client.and_then(|client| client.timeout_seconds).and_then(|value| u32::try_from(value).ok());
    Some(seconds.filter(|value| *value > 0).unwrap_or(DEFAULT_AFFINITY))
}

#[derive(Default)]
struct Problems {
    list: Vec<Box<str>>,
}

impl Problems {
    fn ips(&mut self, place: &str, texts: &[String]) -> Box<[IpAddr]> {
        let mut ips: Vec<IpAddr> = Vec::with_capacity(texts.len());
        for text in texts {
            match text.parse::<IpAddr>() {
                Ok(ip) if ips.contains(&ip) => {}
                Ok(ip) => ips.push(ip),
                Err(_) => self.list.push(format!("{place}: {text:?} is no IP address; correct it").into()),
            }
        }
        ips.into()
    }

    fn ranges(&mut self, texts: &[String]) -> Box<[IpNet]> {
        let mut ranges: Vec<IpNet> = Vec::with_capacity(texts.len());
        for text in texts {
            match text.trim().parse::<IpNet>() {
                Ok(range) => ranges.push(range.trunc()),
                Err(_) => self.list.push(
                    format!(
                        "spec.loadBalancerSourceRanges: {text:?} is no range such as 192.0.2.0/24; correct it"
                    )
                    .into(),
                ),
            }
        }
        if ranges.is_empty() && !texts.is_empty() {
            // Nobody can be let in by a list that cannot be read; everybody would be the opposite of what was meant.
            ranges.extend(NOBODY.iter().filter_map(|text| text.parse::<IpNet>().ok()));
        }
        ranges.sort_unstable();
        ranges.dedup();
        ranges.into()
    }

    fn port(&mut self, port: &kapi::ServicePort, has_outside: bool) -> Option<Port> {
        let number = u16::try_from(port.port).ok().filter(|number| *number != 0);
        let (Some(number), true) = (number, port.protocol != Protocol::Other) else {
            self.list.push(
                format!(
                    "spec.ports: port {} of protocol {} cannot be served; correct it",
                    port.port, port.protocol
                )
                .into(),
            );
            return None;
        };
        let node_port = u16::try_from(port.node_port).ok().filter(|number| *number != 0 && has_outside);
        Some(Port { name: port.name.as_str().into(), protocol: port.protocol, port: number, node_port })
    }
}

/// Ranges no client is in.
const NOBODY: [&str; 2] = ["0.0.0.0/32", "::/128"];
