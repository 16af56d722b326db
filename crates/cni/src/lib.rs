//! CNI as data: network configuration, results, errors and versions of the specification 0.1.0 to 1.1.0, and the
//! protocol between the `ovn-k8s-cni-overlay` shim and the CNI server. Pure: no sockets, no files.

mod conf;
mod error;
pub mod http;
mod invocation;
mod pod_if;
mod protocol;
mod result;
mod version;

pub use conf::{Attachment, ConfError, NetConf, PLUGIN_TYPE, RuntimeConfig, valid_attachments};
pub use error::{CniError, code};
pub use invocation::{Command, DEFAULT_IFNAME, Invocation, PodRef};
pub use pod_if::PodIfInfo;
pub use protocol::{
    COUNTED_HEADER, KubeAuth, METRICS_PATH, MetricsPost, REQUEST_PATH, Request, Response, SOCKET_NAME,
    STARTED_HEADER,
};
pub use result::{CniResult, Interface, IpConfig, Route};
pub use version::{PLUGIN_VERSION, SUPPORTED, Version, version_reply};

/// Directory of the server's socket.
pub const SOCKET_DIR: &str = "/var/run/ovn-kubernetes/cni";
