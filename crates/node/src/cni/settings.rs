//! Settings of the CNI server.

use std::{path::PathBuf, time::Duration};

use ::cni::KubeAuth;

/// What the CNI server has to know; every field has the reference's value by default.
#[derive(Debug, Clone)]
pub struct CniSettings {
    /// Directory of the socket; made 0700 and owned by root.
    pub socket_dir: PathBuf,
    /// Socket of the local Open_vSwitch database.
    pub ovs_socket: PathBuf,
    /// The integration bridge.
    pub bridge: String,
    /// MTU of pod interfaces whose configuration says none.
    pub mtu: u32,
    /// MTU that the routes of pods carry; 0 for none.
    pub routable_mtu: u32,
    /// Bound of one ADD.
    pub add_timeout: Duration,
    /// How long the pod list may lag behind the runtime: a pod not known, or known by another UID from the very
    /// start, is waited for that long.
    pub lag: Duration,
    /// Leave all plumbing to the shim.
    pub unprivileged: bool,
    /// Credentials handed to an unprivileged shim.
    pub kube_auth: Option<KubeAuth>,
}

impl Default for CniSettings {
    fn default() -> Self {
        CniSettings {
            socket_dir: ::cni::SOCKET_DIR.into(),
            ovs_socket: "/var/run/openvswitch/db.sock".into(),
            bridge: "br-int".into(),
            mtu: 1400,
            routable_mtu: 0,
            add_timeout: Duration::from_secs(120),
            lag: Duration::from_millis(800),
            unprivileged: false,
            kube_auth: None,
        }
    }
}
