//! The node agent: Open vSwitch set-up, management port, node annotations, the pod board and the CNI server.

pub mod addresses;
pub mod annotations;
pub mod board;
pub mod cni;
pub mod conf_file;
mod error;
pub mod host_view;
pub mod mgmt_port;
pub mod mtu;
pub mod ovs;
mod settings;
pub mod uplink;

pub use error::NodeError;
pub use settings::{CniConf, Encap, Gateway, OvnController, Settings};
