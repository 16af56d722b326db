//! The node agent: Open vSwitch set-up, management port, node annotations, the pod board and the CNI server.

pub mod addresses;
mod agent;
pub mod annotations;
pub mod board;
pub mod chassis;
mod cleanup;
pub mod cni;
pub mod conf_file;
mod encap_port;
mod error;
pub mod fault;
pub mod gateway;
pub mod host_plan;
pub mod host_view;
mod host_watch;
pub mod kube_feed;
pub mod mgmt_port;
pub mod mtu;
mod ovn_controller;
mod ovn_sync;
pub mod ovs;
mod run;
pub mod services;
mod settings;
mod status;
mod unixctl;
pub mod uplink;

pub use agent::{Boards, Shared, run_with};
pub use cleanup::cleanup;
pub use error::NodeError;
pub use run::{Hooks, run};
pub use settings::{CniConf, Encap, Gateway, OvnController, Programs, Settings};
pub use status::{Awaited, Status};
