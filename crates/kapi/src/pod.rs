//! Pods.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::meta::or_default;
use crate::{Meta, Object, Resource};

/// A pod (core/v1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata.
    pub metadata: Meta,
    /// Desired state.
    #[serde(deserialize_with = "or_default")]
    pub spec: PodSpec,
    /// Observed state.
    #[serde(deserialize_with = "or_default")]
    pub status: PodStatus,
}

/// The part of a pod's spec we read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node the pod is bound to; empty while unscheduled.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub node_name: String,
    /// Whether the pod uses its node's network.
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "or_default")]
    pub host_network: bool,
    /// Ports of containers that have a name. Not written back.
    #[serde(rename = "containers", deserialize_with = "container_ports", skip_serializing)]
    pub named_ports: Vec<NamedPort>,
    /// Ports of sidecars that have a name. Not written back.
    #[serde(rename = "initContainers", deserialize_with = "sidecar_ports", skip_serializing)]
    pub sidecar_ports: Vec<NamedPort>,
}

/// A port of a container that has a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamedPort {
    /// Its name.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Its number.
    pub port: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default, deserialize_with = "or_default")]
    ports: Vec<ContainerPort>,
    #[serde(default)]
    restart_policy: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    protocol: Option<String>,
    #[serde(default)]
    container_port: u16,
}

fn named(containers: impl Iterator<Item = Container>) -> Vec<NamedPort> {
    let ports = containers.flat_map(|container| container.ports);
    let named = ports.filter_map(|port| {
        let protocol = port.protocol.unwrap_or_else(|| "TCP".into());
        Some(NamedPort { name: port.name?, protocol, port: port.container_port })
    });
    named.collect()
}

fn container_ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NamedPort>, D::Error> {
    Ok(named(Option::<Vec<Container>>::deserialize(deserializer)?.unwrap_or_default().into_iter()))
}

/// Of the containers that run before the others only those count that stay.
fn sidecar_ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NamedPort>, D::Error> {
    let containers = Option::<Vec<Container>>::deserialize(deserializer)?.unwrap_or_default().into_iter();
    Ok(named(containers.filter(|container| container.restart_policy.as_deref() == Some("Always"))))
}

/// The part of a pod's status we read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Where the pod stands in its life.
    #[serde(deserialize_with = "or_default")]
    pub phase: PodPhase,
    /// When the scheduler bound the pod (RFC 3339), from its `PodScheduled` condition. Not written back.
    #[serde(rename = "conditions", deserialize_with = "scheduled_at", skip_serializing)]
    pub scheduled_at: Option<String>,
    /// The pod's addresses.
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub pod_ips: Vec<PodIp>,
}

/// Of all conditions only the time of scheduling is kept.
fn scheduled_at<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Condition {
        #[serde(rename = "type", default)]
        kind: String,
        #[serde(default)]
        status: String,
        #[serde(default)]
        last_transition_time: Option<String>,
    }
    let conditions = Option::<Vec<Condition>>::deserialize(deserializer)?.unwrap_or_default();
    let scheduled = conditions.into_iter().find(|one| one.kind == "PodScheduled" && one.status == "True");
    Ok(scheduled.and_then(|condition| condition.last_transition_time))
}

/// One address of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodIp {
    /// The address.
    pub ip: IpAddr,
}

/// Where a pod stands in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodPhase {
    /// Accepted, not all containers run.
    #[default]
    Pending,
    /// Bound and running.
    Running,
    /// All containers ended well and stay ended.
    Succeeded,
    /// All containers ended, at least one badly.
    Failed,
    /// The node cannot be asked.
    #[serde(other)]
    Unknown,
}

/// Namespace and name of a pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl PodKey {
    /// The key of `namespace`/`name`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> PodKey {
        PodKey { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Pod {
    /// Namespace and name.
    pub fn pod_key(&self) -> PodKey {
        PodKey::new(&*self.metadata.namespace, &*self.metadata.name)
    }

    /// Whether the pod's containers have all ended for good; its address is free then.
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether the pod should have a port on the cluster network: bound, not on the host's network, not ended.
    pub fn wants_network(&self) -> bool {
        !self.spec.node_name.is_empty() && !self.spec.host_network && !self.is_finished()
    }

    /// The ports that have a name, those of sidecars included.
    pub fn named_ports(&self) -> impl Iterator<Item = &NamedPort> {
        self.spec.named_ports.iter().chain(&self.spec.sidecar_ports)
    }

    /// Whether the pod is a static pod mirrored by its kubelet: the runtime knows it by another UID than the
    /// API server then.
    pub fn is_static(&self) -> bool {
        self.metadata.annotation("kubernetes.io/config.source").is_some_and(|source| source != "api")
    }
}

impl Object for Pod {
    const RESOURCE: Resource =
        Resource { group: "", version: "v1", plural: "pods", kind: "Pod", namespaced: true };

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
