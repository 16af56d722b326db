//! Address sets.

use std::net::IpAddr;

use net::{Dual, Family, IpNet, nth_address};
use ovn::names::{self, ObjectIds};
use policy::{Peer, Peers, Selection};
use world::{RuleKey, World};

use crate::desired::{Desired, RowId};
use crate::settings::Settings;
use crate::table;

/// The set of a selection's pods, or of pods at which a named port has one number: a row a family.
pub(crate) fn peer_set(world: &World, settings: &Settings, text: &str) -> Desired {
    let policies = world.policies();
    let addresses: Vec<IpAddr> = if let Some(selection) = policies.peer_set(text) {
        selected(world, settings, selection)
    } else if let Some(set) = policies.port_set(text) {
        policies.port_set_addresses(set).collect()
    } else {
        return Desired::default();
    };
    let nets: Vec<IpNet> = addresses.into_iter().map(IpNet::from).collect();
    rows(settings, &nets, |family| peer_set_ids(text, family))
}

/// The set of everything a rule's peers are: a row a family.
pub(crate) fn rule_set(world: &World, settings: &Settings, key: &RuleKey) -> Desired {
    let policy = world.policies().policy(&key.policy);
    let rule = policy.and_then(|policy| {
        policy.rules.iter().find(|rule| rule.direction == key.direction && rule.index == key.index)
    });
    let Some(Peers::Of(peers)) = rule.map(|rule| &rule.peers) else { return Desired::default() };
    let mut nets: Vec<IpNet> = Vec::new();
    for peer in peers {
        match peer {
            Peer::Pods(selection) => {
                nets.extend(selected(world, settings, selection).into_iter().map(IpNet::from));
            }
            Peer::Block(block) => nets.push(block.range),
            Peer::Nodes(selector) => {
                let nodes = world.nodes().filter(|node| selector.matches(&node.labels));
                nets.extend(nodes.flat_map(|node| node.addresses.iter().copied()).map(IpNet::from));
            }
        }
    }
    rows(settings, &nets, |family| rule_set_ids(key, family))
}

/// The row of a selection's set.
pub(crate) fn peer_set_ids(text: &str, family: Family) -> ObjectIds {
    ObjectIds::new("PodSelector", &[(names::OBJECT_NAME, text), ("ip-family", short(family))])
}

/// The row of a rule's set.
pub(crate) fn rule_set_ids(key: &RuleKey, family: Family) -> ObjectIds {
    let index = key.index.to_string();
    let keys = [
        (names::OBJECT_NAME, key.policy.name.as_str()),
        ("direction", key.direction.name()),
        ("gress-index", &index),
        ("ip-family", short(family)),
    ];
    ObjectIds::new(key.policy.kind.name(), &keys)
}

fn rows(settings: &Settings, nets: &[IpNet], ids: impl Fn(Family) -> ObjectIds) -> Desired {
    let mut desired = Desired::default();
    for family in settings.families() {
        let ids = ids(family);
        let of_family = nets.iter().filter(|net| Family::of_net(net) == family);
        desired
            .row(table::ADDRESS_SET, ids.primary())
            .set("name", ids.hashed_name())
            .strings("addresses", of_family.map(address))
            .entries("external_ids", ids.external_ids().iter().cloned());
    }
    desired
}

/// A single address without its prefix length, as the reference writes it.
fn address(net: &IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

fn selected(world: &World, settings: &Settings, selection: &Selection) -> Vec<IpAddr> {
    let policies = world.policies();
    let mut addresses: Vec<IpAddr> =
        policies.members(selection).flat_map(|(_, pod)| pod.ips.iter().copied()).collect();
    if policies.adds_nodes(selection) {
        addresses.extend(node_addresses(world, settings));
    }
    addresses
}

/// From where nodes reach pods: their management ports, and their gateways' addresses on the join switch.
fn node_addresses(world: &World, settings: &Settings) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for node in world.usable_nodes() {
        let management: Dual<Option<IpAddr>> = node.subnets.map(|subnet| nth_address(subnet, 2));
        addresses.extend(management.iter().flatten());
        let join = node.id.map(|id| settings.numbered(&settings.join, id)).unwrap_or_default();
        addresses.extend(join.iter().map(IpNet::addr));
    }
    addresses
}

fn short(family: Family) -> &'static str {
    match family {
        Family::V4 => "v4",
        Family::V6 => "v6",
    }
}

/// The row called so in the table of address sets.
pub(crate) fn row(ids: &ObjectIds) -> RowId {
    RowId::new(table::ADDRESS_SET, ids.primary())
}
