//! Why a request failed, in words for the pod's events.

use ::cni::{CniError, code};
use kapi::{PodKey, annotations::DEFAULT_NETWORK};

use super::{bandwidth::BandwidthError, plug::PlugError};

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the request was cancelled: its caller went away or a newer request for the pod arrived")]
    Cancelled,
    #[error("pod {0} is not known to the API server")]
    NoPod(PodKey),
    #[error("pod {0} was deleted while its sandbox was being attached")]
    PodDeleted(PodKey),
    #[error(
        "pod {key} was deleted before the operation began: the sandbox is for UID {asked}, the API server has UID {actual}"
    )]
    OtherUid { key: PodKey, asked: String, actual: String },
    #[error(
        "pod {key} was re-created while its sandbox was being attached (canceled old pod sandbox): the sandbox is for UID {asked}, the API server has UID {actual}"
    )]
    Recreated { key: PodKey, asked: String, actual: String },
    #[error("pod {0} uses its node's network and gets no interface")]
    HostNetwork(PodKey),
    #[error("the addresses of pod {key} changed from {old} to {new} while its sandbox was being attached")]
    AddressesChanged { key: PodKey, old: String, new: String },
    #[error("the addresses of pod {0} were withdrawn while its sandbox was being attached")]
    AnnotationGone(PodKey),
    #[error(
        "sandbox {ours} is older than sandbox {newer} of the same pod, which holds or is getting its port"
    )]
    Outdated { ours: String, newer: String },
    #[error("OVS sandbox port {name} is no longer active (probably due to a subsequent CNI ADD)")]
    LostPort { name: String },
    #[error("timed out waiting for annotations of pod {key} after {seconds} s: {why}")]
    NoAnnotation { key: PodKey, seconds: u64, why: String },
    #[error("timed out after {seconds} s waiting for {what}")]
    TimedOut { seconds: u64, what: String },
    #[error(
        "timed out waiting for OVS port binding (ovn-installed) for {mac} {ips} after {seconds} s: {why}"
    )]
    NotInstalled { mac: String, ips: String, seconds: u64, why: String },
    #[error(transparent)]
    Bandwidth(#[from] BandwidthError),
    #[error("failed to configure pod interface: {0}")]
    Host(#[from] host::Error),
    #[error("failed to configure pod interface: {0}")]
    Plug(#[from] PlugError),
    #[error("failed to configure pod interface: Open vSwitch refused the port: {0}")]
    Ovsdb(#[from] ovsdb::TxnError),
    #[error("the plumbing thread ended unexpectedly")]
    Thread,
    #[error("user network {0}: only the cluster network is served by this node yet")]
    UserNetwork(String),
    #[error("{0}")]
    Check(String),
    #[error("no interface {ifname} of sandbox {sandbox} is attached")]
    Unknown { sandbox: String, ifname: String },
}

// === impl Failure ===

impl Failure {
    /// The CNI error code.
    pub(crate) fn code(&self) -> u32 {
        match self {
            Failure::NoAnnotation { .. } | Failure::TimedOut { .. } | Failure::NotInstalled { .. } => {
                code::TRY_AGAIN
            }
            Failure::Bandwidth(_) => code::INVALID_CONFIG,
            Failure::UserNetwork(_) => code::UNSUPPORTED_FIELD,
            Failure::Unknown { .. } => code::UNKNOWN_CONTAINER,
            _ => code::INTERNAL,
        }
    }

    /// The error object, its text beginning with what it is about, as the reference's does.
    pub(crate) fn to_cni(&self, key: &PodKey, sandbox: &str) -> CniError {
        let network = DEFAULT_NETWORK;
        let text = format!("[{key} {sandbox} network {network} NAD {network} NAD key {network}] {self}");
        CniError::new(self.code(), text, "")
    }
}
