//! The parts of Kubernetes and k8s.ovn.org objects that we read, in slim form, and the codecs of the
//! annotations that are the contract between the processes. Pure: decoding only, no client.
//!
//! Objects keep just the fields some feature uses: a node process holds thousands of them.

pub mod annotations;
mod endpoint_slice;
mod meta;
mod namespace;
mod node;
mod object;
mod pod;
mod port;
mod selector;
mod selector_text;
mod service;
mod time;

pub use endpoint_slice::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, HintFor, LAST_CHANGE_TRIGGER,
    SERVICE_NAME, TargetRef,
};
pub use meta::Meta;
pub use namespace::Namespace;
pub use node::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus};
pub use object::{Object, ObjectKey, Resource};
pub use pod::{Pod, PodIp, PodKey, PodPhase, PodSpec, PodStatus};
pub use port::{IntOrString, Protocol};
pub use selector::{LabelSelector, Operator, Requirement};
pub use selector_text::ParseSelectorError;
pub use service::{
    ClientIpConfig, HEADLESS, LoadBalancerIngress, LoadBalancerStatus, SERVICE_PROXY_NAME, Service,
    ServiceKey, ServicePort, ServiceSpec, ServiceStatus, ServiceType, SessionAffinityConfig,
};
pub use time::parse_time;
