//! What a node should have, and the patch that gets it there.

use kapi::Meta;
use kapi::annotations::{
    DEFAULT_NETWORK, LEGACY_ROUTER_LRP_ADDRESSES, NODE_ID, NODE_SUBNETS, TRANSIT_ADDRESSES, parse_cidr_pair,
    parse_node_subnets, write_cidr_pair, write_node_subnets,
};
use net::{Dual, IpNet, nth_address};

use super::entry::Entry;
use super::{Core, NodePatch, Output, REASON};

impl Core {
    /// Hands out what the node lacks and writes what its annotations lack; or says why not.
    pub(super) fn settle(&mut self, name: &str, out: &mut Vec<Output>) {
        let Some(entry) = self.nodes.get(name) else { return };
        if entry.facts.excluded {
            self.set_problem(name, None, out);
            return;
        }
        match self.serve(name) {
            Err(problem) => self.set_problem(name, Some(problem), out),
            Ok(transit) => {
                self.set_problem(name, None, out);
                self.write(name, &transit, out);
            }
        }
    }

    /// The node's transit addresses, once it holds all it needs.
    fn serve(&mut self, name: &str) -> Result<Dual<IpNet>, String> {
        let Some(entry) = self.nodes.get_mut(name) else { return Ok(Dual::default()) };
        let mut problems = entry.refused.clone();
        for address in &entry.facts.addresses {
            if let Some((range_name, range)) = self.plan.range_with(*address) {
                problems.push(format!(
                    "node address {address} lies in the {range_name} {range}: pods could not reach the node; change \
                     the node's address or the range"
                ));
            }
        }
        if !problems.is_empty() {
            return Err(problems.join("; "));
        }
        self.pools.complete(name, &mut entry.held, self.plan.families())?;
        let id = u128::from(entry.held.id.unwrap_or_default());
        let mut transit = Dual::default();
        for family in self.plan.families() {
            for (range_name, range) in [("transit", &self.plan.transit), ("join", &self.plan.join)] {
                let Some(range) = range.get(family) else { continue };
                let address = nth_address(range, id)
                    .and_then(|address| IpNet::new(address, range.prefix_len()).ok())
                    .ok_or_else(|| format!("the {range_name} subnet {range} has no address for node id {id}: use a larger one"))?;
                if range_name == "transit" {
                    transit.set(family, address);
                }
            }
        }
        Ok(transit)
    }

    fn set_problem(&mut self, name: &str, problem: Option<String>, out: &mut Vec<Output>) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if problem.is_some() {
            self.blocked.insert(name.to_string());
        } else {
            self.blocked.remove(name);
        }
        if entry.problem != problem {
            if let Some(message) = &problem {
                out.push(Output::Warn { key: entry.key(name), reason: REASON, message: message.clone() });
            }
            entry.problem = problem;
        }
    }

    fn write(&mut self, name: &str, transit: &Dual<IpNet>, out: &mut Vec<Output>) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if entry.in_flight.is_some() || entry.retry_at.is_some() {
            return;
        }
        let patch = difference(entry, name, transit);
        if patch.annotations.is_empty() && !patch.clear_network_unavailable {
            return;
        }
        entry.in_flight = Some(patch.clone());
        out.push(Output::Patch(patch));
    }
}

/// Only what differs in meaning: another spelling of the same value is left alone.
fn difference(entry: &Entry, name: &str, transit: &Dual<IpNet>) -> NodePatch {
    let facts = &entry.facts;
    let mut annotations = Vec::new();
    let meta = |key: &str, value: &Option<String>| {
        let mut meta = Meta::default();
        if let Some(value) = value {
            meta.annotations.insert(key.to_string(), value.clone());
        }
        meta
    };
    let subnets = parse_node_subnets(&meta(NODE_SUBNETS, &facts.subnets), DEFAULT_NETWORK).ok().flatten();
    if subnets.as_ref() != Some(&entry.held.subnets) {
        let value = write_node_subnets(facts.subnets.as_deref(), DEFAULT_NETWORK, &entry.held.subnets);
        annotations.push((NODE_SUBNETS, Some(value)));
    }
    let id = entry.held.id.map(|id| id.to_string());
    if facts.id != id {
        annotations.push((NODE_ID, id));
    }
    let annotated =
        parse_cidr_pair(&meta(TRANSIT_ADDRESSES, &facts.transit), TRANSIT_ADDRESSES).ok().flatten();
    if annotated.as_ref() != Some(transit) {
        annotations.push((TRANSIT_ADDRESSES, Some(write_cidr_pair(transit))));
    }
    if facts.legacy {
        annotations.push((LEGACY_ROUTER_LRP_ADDRESSES, None));
    }
    NodePatch { key: entry.key(name), annotations, clear_network_unavailable: facts.unavailable }
}
