//! EndpointSlices.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::meta::or_default;
use crate::port::Protocol;
use crate::{Meta, Object, Resource, ServiceKey, parse_time};

/// Label that names the service a slice belongs to.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Annotation with the time at which the pod or service changed that made the slice change.
pub const LAST_CHANGE_TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Some of the endpoints of a service (discovery.k8s.io/v1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// Metadata.
    pub metadata: Meta,
    /// `IPv4`, `IPv6` or `FQDN`.
    #[serde(deserialize_with = "or_default")]
    pub address_type: String,
    /// Endpoints.
    #[serde(deserialize_with = "or_default")]
    pub endpoints: Vec<Endpoint>,
    /// Ports every endpoint of the slice has.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub ports: Vec<EndpointPort>,
}

/// One endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Addresses; only the first has a meaning.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<String>,
    /// What the endpoint is able to do.
    #[serde(deserialize_with = "or_default")]
    pub conditions: EndpointConditions,
    /// The node it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The zone it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Who should use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<EndpointHints>,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
}

/// What an endpoint is able to do; nothing said is not the same as no.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// Whether it takes connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Whether it answers, going away or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serving: Option<bool>,
    /// Whether it is going away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<bool>,
}

impl EndpointConditions {
    /// Whether it takes connections; unknown counts as yes.
    pub fn is_ready(&self) -> bool {
        self.ready.unwrap_or(true)
    }

    /// Whether it answers; unknown counts as whether it is ready.
    pub fn is_serving(&self) -> bool {
        self.serving.unwrap_or_else(|| self.is_ready())
    }

    /// Whether it is going away; unknown counts as no.
    pub fn is_terminating(&self) -> bool {
        self.terminating.unwrap_or(false)
    }
}

/// Who should use an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointHints {
    /// Clients in these zones.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub for_zones: Vec<HintFor>,
    /// Clients on these nodes.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub for_nodes: Vec<HintFor>,
}

/// A zone or a node by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HintFor {
    /// Its name.
    pub name: String,
}

/// What an endpoint is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetRef {
    /// Kind, mostly `Pod`.
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    /// Namespace.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub namespace: String,
    /// Name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
}

/// One port every endpoint of a slice has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointPort {
    /// The service port it belongs to.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Protocol.
    #[serde(deserialize_with = "or_default")]
    pub protocol: Protocol,
    /// Number; none means that it is not restricted, which only matters to those who do not forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

impl EndpointSlice {
    /// The service the slice belongs to; none if it names none.
    pub fn service(&self) -> Option<ServiceKey> {
        let name = self.metadata.labels.get(SERVICE_NAME).filter(|name| !name.is_empty())?;
        Some(ServiceKey::new(&self.metadata.namespace, name))
    }

    /// When that happened which made the slice change.
    pub fn triggered(&self) -> Option<SystemTime> {
        parse_time(self.metadata.annotation(LAST_CHANGE_TRIGGER)?)
    }
}

impl Object for EndpointSlice {
    const RESOURCE: Resource = Resource {
        group: "discovery.k8s.io",
        version: "v1",
        plural: "endpointslices",
        kind: "EndpointSlice",
        namespaced: true,
    };

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
