//! From the cluster's tables to the OVN rows they ask for: one pure function per feature.
//!
//! [`compile`] answers for one [`Key`] which rows it wants ([`Desired`]), without looking at what a database
//! holds; the planner compares the two. The other direction lives here too: [`identity`] tells for a row found in
//! a database what it is called and which key it would belong to, so that leftovers and rows of another
//! implementation are recognised.

mod acl;
mod cluster;
mod desired;
mod gateway;
pub mod identity;
mod local_node;
mod namespace;
mod pod;
pub mod pod_network;
mod policies;
mod remote_node;
mod routes;
mod services;
mod settings;
pub mod table;

pub use desired::{Desired, Member, RowId, RowSpec, Value};
pub use services::problems as service_problems;
pub use settings::{PolicySettings, Settings};
pub use table::{Db, Table};

use world::{Key, World};

/// The rows `key` wants now. An empty answer means: nothing, so whatever the key owns goes away. `None` means
/// that it cannot be told yet, because an annotation is missing, so that what is there stays as it is.
pub fn compile(world: &World, settings: &Settings, key: &Key) -> Option<Desired> {
    match key {
        Key::Cluster => Some(cluster::rows(settings)),
        Key::LocalNode => Some(local_node::rows(world.local_node()?, settings)),
        Key::Gateway => gateway::rows(world.local_node()?, settings),
        Key::RemoteNode(name) => remote_node::rows(world, settings, name),
        Key::Namespace(name) => Some(namespace::rows(world, settings, name)),
        Key::Service(service) => Some(services::rows(world, settings, world.local_node()?, service)),
        Key::Templates => Some(services::templates(settings, world.local_node()?)),
        Key::PeerSet(text) => Some(policies::sets::peer_set(world, settings, text)),
        Key::RuleSet(rule) => Some(policies::sets::rule_set(world, settings, rule)),
        Key::Isolation(namespace) => Some(policies::isolation::rows(world, settings, namespace)),
        Key::Policy(id) => Some(policies::rows(world, settings, id)),
        // Which policies are for the pod cannot be told without its namespace's labels.
        Key::Pod(pod) if policies::lack_namespace(world, pod) => None,
        Key::Pod(pod) => Some(pod::rows(world, settings, world.local_node()?, pod)),
    }
}
