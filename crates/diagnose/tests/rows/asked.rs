//! The model's questions put to the product.

use std::env;

use diagnose::policy::{Cluster, Party, Question, Settings, Traffic};
use kapi::PodKey;
use policy_model::Protocol;
use serde_json::Value;

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

pub(crate) fn load(objects: &[Value]) -> Cluster {
    let mut cluster = Cluster::new(Settings::default());
    for object in objects {
        cluster.add_object(object.clone(), "default").unwrap();
    }
    assert_eq!(cluster.assumed_namespaces().count(), 0);
    cluster
}

pub(crate) fn party(of: &policy_model::Party) -> Party {
    match of {
        policy_model::Party::Pod(namespace, name) => Party::Pod(PodKey::new(namespace, name)),
        policy_model::Party::Node(name) => Party::Node(name.clone()),
        policy_model::Party::Address(ip) => Party::Address(*ip),
    }
}

pub(crate) fn question(of: &policy_model::Traffic) -> Question {
    let traffic = match of.protocol {
        Protocol::Tcp => Traffic::Port(::policy::Protocol::Tcp, of.port),
        Protocol::Udp => Traffic::Port(::policy::Protocol::Udp, of.port),
        Protocol::Sctp => Traffic::Port(::policy::Protocol::Sctp, of.port),
        Protocol::Icmp => Traffic::Icmp,
    };
    Question { from: party(&of.from), to: party(&of.to), traffic }
}
