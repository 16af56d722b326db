//! Services.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::meta::or_default;
use crate::port::{IntOrString, Protocol};
use crate::{Meta, Object, Resource};

/// Label that gives a service, and its slices, to another implementation of services.
pub const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// Label of services, and their slices, that nobody balances.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// A service (core/v1). Addresses stay text: an unreadable one must not hide the rest of the object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Metadata.
    pub metadata: Meta,
    /// Desired state.
    #[serde(deserialize_with = "or_default")]
    pub spec: ServiceSpec,
    /// Observed state.
    #[serde(deserialize_with = "or_default")]
    pub status: ServiceStatus,
}

/// The part of a service's spec we read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// How the service is reached.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: ServiceType,
    /// The first of `cluster_ips`; the only one in objects written by old clients.
    #[serde(rename = "clusterIP", skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub cluster_ip: String,
    /// Addresses inside the cluster, at most one a family; `None` for a headless service.
    #[serde(rename = "clusterIPs", skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub cluster_ips: Vec<String>,
    /// Families (`IPv4`, `IPv6`) in order of preference.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub ip_families: Vec<String>,
    /// Ports.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub ports: Vec<ServicePort>,
    /// Labels of the pods behind; none if somebody else writes the slices.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty", deserialize_with = "or_default")]
    pub selector: std::collections::BTreeMap<String, String>,
    /// Further addresses, which the administrator leads to the nodes.
    #[serde(rename = "externalIPs", skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub external_ips: Vec<String>,
    /// The address asked of the provider of load balancers.
    #[serde(
        rename = "loadBalancerIP",
        skip_serializing_if = "String::is_empty",
        deserialize_with = "or_default"
    )]
    pub load_balancer_ip: String,
    /// Which provider the load balancer comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer_class: Option<String>,
    /// Clients that may use the load balancer's addresses; all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub load_balancer_source_ranges: Vec<String>,
    /// Whether a load balancer's ports get node ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocate_load_balancer_node_ports: Option<bool>,
    /// `ClientIP` or `None`.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub session_affinity: String,
    /// Details of the affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// `Local` keeps traffic from outside on the node it arrives at.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub external_traffic_policy: String,
    /// `Local` keeps traffic from inside on the node it starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_traffic_policy: Option<String>,
    /// Port on which nodes tell load balancers whether they have endpoints; 0 if none.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "or_default")]
    pub health_check_node_port: i32,
    /// Whether endpoints count that are not ready.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "or_default")]
    pub publish_not_ready_addresses: bool,
    /// `PreferSameZone` (or `PreferClose`), `PreferSameNode`: what the slices' hints express.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<String>,
}

/// How a service is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceType {
    /// At an address inside the cluster.
    #[default]
    ClusterIP,
    /// Also at a port of every node.
    NodePort,
    /// Also through a load balancer outside.
    LoadBalancer,
    /// A name in DNS, nothing else.
    ExternalName,
    /// One we do not know.
    #[serde(other)]
    Other,
}

/// One port of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Name, by which slices refer to the port; empty if it is the only one.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub name: String,
    /// Protocol.
    #[serde(deserialize_with = "or_default")]
    pub protocol: Protocol,
    /// What is spoken on the port, for those who look into it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    /// The port clients use.
    pub port: i32,
    /// The port of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_port: Option<IntOrString>,
    /// The port on every node; 0 if none.
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "or_default")]
    pub node_port: i32,
}

/// Details of session affinity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionAffinityConfig {
    /// Of affinity by client address.
    #[serde(rename = "clientIP", skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<ClientIpConfig>,
}

/// Details of affinity by client address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIpConfig {
    /// How long a client that is silent keeps its endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
}

/// The part of a service's status we read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    /// What the provider of load balancers made.
    #[serde(deserialize_with = "or_default")]
    pub load_balancer: LoadBalancerStatus,
}

/// What the provider of load balancers made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadBalancerStatus {
    /// Where traffic enters.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub ingress: Vec<LoadBalancerIngress>,
}

/// Where a load balancer takes traffic in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerIngress {
    /// Address; empty for balancers known by name.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub ip: String,
    /// `VIP`: traffic arrives at the nodes with this destination; `Proxy`: it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl Object for Service {
    const RESOURCE: Resource =
        Resource { group: "", version: "v1", plural: "services", kind: "Service", namespaced: true };

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// Namespace and name of a service. One shared text: every feature's tables hold many of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey(Arc<str>);

impl ServiceKey {
    /// The key of `namespace`/`name`.
    pub fn new(namespace: &str, name: &str) -> ServiceKey {
        ServiceKey(format!("{namespace}/{name}").into())
    }

    /// The key as `namespace/name`, if the text has that form.
    pub fn parse(text: &str) -> Option<ServiceKey> {
        let (namespace, name) = text.split_once('/')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then(|| ServiceKey(text.into()))
    }

    /// Namespace.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }

    /// `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
