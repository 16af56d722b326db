//! A Kubernetes cluster for development on one machine: network namespaces as nodes with real OVN and Open vSwitch.
//!
//! ```text
//!  builder (test, bench, demo) ── pipes ──▶ first process of node1 ─▶ ovsdb-server, vswitchd, northd, ovn-controller,
//!      │                      ╲                                     ovnkube, pods …
//!      │                       ╲─────────▶ first process of node2 ─▶ …
//!      └─ API server ◀─ 172.18.0.254 ── underlay (bridge in its own namespace)
//! ```
//!
//! A node is a network, mount and PID namespace, held by its first process (`devcluster-init`) and by nothing else.
//! When the builder goes away, in whatever way, the pipe to the first process closes, it exits, and the kernel frees
//! everything with it. Namespaces have no names and mounts are private, so nothing of a node is visible, or can stay
//! behind, outside; its files live in one directory that a small process removes when the builder is gone.

mod addresses;
pub mod agent;
pub mod api;
pub mod binaries;
mod cluster;
mod datapath;
pub mod matrix;
pub mod node;
mod notify;
pub mod prefix;
mod relay;
pub mod runner;
pub mod sandbox;
mod space;
mod stack;
pub mod underlay;
pub mod wire;
mod work_dir;

pub use addresses::{Families, GATEWAY, chassis, node_mac};
pub use agent::{AgentOptions, Agents, install_shim};
pub use api::{Api, ApiChoice};
pub use cluster::{Builder, Cluster};
pub use datapath::{DATAPATH_VARIABLE, Datapath};
pub use node::{Daemon, Node};
pub use relay::Relay;
pub use runner::{PodHandle, Runner};
pub use sandbox::{CniCall, CniReply, PodArgs, Sandbox};
pub use space::{Process, Space};
pub use stack::{Stack, mk_namespace, mk_pod};
pub use wire::{Exit, Program};
