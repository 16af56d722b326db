//! The parts of Kubernetes and k8s.ovn.org objects that we read, in slim form, and the codecs of the
//! annotations that are the contract between the processes. Pure: decoding only, no client.
//!
//! Objects keep just the fields some feature uses: a node process holds thousands of them.

mod admin_policy;
pub mod annotations;
mod endpoint_slice;
mod meta;
mod namespace;
mod network_policy;
mod node;
mod object;
mod pod;
mod port;
mod selector;
mod selector_text;
mod service;
mod time;

pub use admin_policy::{
    AdminEgressRule, AdminIngressRule, AdminNetworkPolicy, AdminPeer, AdminPolicyPods, AdminPolicySpec,
    AdminPolicyStatus, AdminPort, AdminPortNumber, AdminPortRange, BaselineAdminNetworkPolicy,
    ClusterNetworkPolicy, ClusterPort, ClusterPortRange, ClusterPorts, ClusterProtocol, Condition,
    NamespacedPods,
};
pub use endpoint_slice::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, HintFor, LAST_CHANGE_TRIGGER,
    SERVICE_NAME, TargetRef,
};
pub use meta::Meta;
pub use namespace::Namespace;
pub use network_policy::{
    IpBlock, NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer,
    NetworkPolicyPort, NetworkPolicySpec,
};
pub use node::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus};
pub use object::{Object, ObjectKey, Resource};
pub use pod::{NamedPort, Pod, PodIp, PodKey, PodPhase, PodSpec, PodStatus};
pub use port::{IntOrString, Protocol};
pub use selector::{LabelSelector, Operator, Requirement};
pub use selector_text::ParseSelectorError;
pub use service::{
    ClientIpConfig, HEADLESS, LoadBalancerIngress, LoadBalancerStatus, SERVICE_PROXY_NAME, Service,
    ServiceKey, ServicePort, ServiceSpec, ServiceStatus, ServiceType, SessionAffinityConfig,
};
pub use time::parse_time;
