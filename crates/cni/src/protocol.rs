//! The protocol between shim and server: one JSON object each way over HTTP on a unix socket.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{pod_if::PodIfInfo, result::CniResult};

/// Name of the socket in its directory.
pub const SOCKET_NAME: &str = "ovn-cni-server.sock";
/// Path of CNI requests.
pub const REQUEST_PATH: &str = "/";
/// Path of duration reports.
pub const METRICS_PATH: &str = "/metrics";
/// Header of a request: when the shim was started, in nanoseconds since the epoch. A server that understands it counts
/// the request's duration from there, which spares the shim a report before its end.
pub const STARTED_HEADER: &str = "ovnkube-started";
/// Header of the answer of a server that has counted the duration.
pub const COUNTED_HEADER: &str = "ovnkube-counted";

/// What the shim sends: the runtime's request as it came.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The shim's whole environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its standard input.
    #[serde(default, with = "go_bytes")]
    pub config: Vec<u8>,
    /// Device information (`type`, `version`, `pci` …) of an ADD with a device.
    #[serde(flatten)]
    pub device_info: Map<String, Value>,
}

/// What the server answers to a request it could serve.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Response {
    /// The result of a privileged server.
    pub result: Option<CniResult>,
    /// What an unprivileged server's shim has to plumb.
    #[serde(rename = "PodIFInfo")]
    pub pod_if_info: Option<PodIfInfo>,
    /// The same for the primary user-defined network.
    #[serde(rename = "PrimaryUDNPodInfo")]
    pub primary_udn_pod_info: Option<PodIfInfo>,
    /// The request for it.
    #[serde(rename = "PrimaryUDNPodReq")]
    pub primary_udn_pod_req: Option<Value>,
    /// How the shim may ask the API server.
    pub kube_auth: Option<KubeAuth>,
}

/// Credentials for an unprivileged shim's own look-ups.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KubeAuth {
    /// Path of a kubeconfig.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kubeconfig: String,
    /// URL of the API server.
    #[serde(rename = "kube-api-server", skip_serializing_if = "String::is_empty")]
    pub api_server: String,
    /// Bearer token.
    #[serde(rename = "kube-api-token", skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// Path of the token.
    #[serde(rename = "kube-api-token-file", skip_serializing_if = "String::is_empty")]
    pub token_file: String,
    /// CA bundle.
    #[serde(rename = "kube-ca-data", with = "go_bytes", skip_serializing_if = "Vec::is_empty")]
    pub ca_data: Vec<u8>,
}

/// How long the shim took, for the server's metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricsPost {
    /// `ADD`, `DEL` …
    pub command: String,
    /// Seconds.
    #[serde(rename = "elapsedTime")]
    pub elapsed: f64,
    /// Whether it failed.
    #[serde(rename = "hasErr")]
    pub failed: bool,
}

impl std::fmt::Debug for KubeAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeAuth").field("api_server", &self.api_server).finish_non_exhaustive()
    }
}

/// A byte slice as Go's JSON has it: base64, null when empty.
mod go_bytes {
    use super::*;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        if bytes.is_empty() {
            serializer.serialize_none()
        } else {
            serializer.serialize_str(&STANDARD.encode(bytes))
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        match Option::<String>::deserialize(deserializer)? {
            Some(text) => STANDARD.decode(text).map_err(serde::de::Error::custom),
            None => Ok(Vec::new()),
        }
    }
}
