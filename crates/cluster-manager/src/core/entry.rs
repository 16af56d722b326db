//! What is known of one node.

use std::net::IpAddr;
use std::time::Duration;

use kapi::annotations::{LEGACY_ROUTER_LRP_ADDRESSES, NODE_ID, NODE_SUBNETS, TRANSIT_ADDRESSES};
use kapi::{Node, ObjectKey};

use super::NodePatch;
use super::pools::Held;
use crate::NetworkPlan;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// The part of a Node that decisions depend on; everything else of it may change without a thought.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Facts {
    pub(super) uid: String,
    pub(super) version: String,
    pub(super) created: String,
    pub(super) subnets: Option<String>,
    pub(super) id: Option<String>,
    pub(super) transit: Option<String>,
    pub(super) legacy: bool,
    pub(super) addresses: Vec<IpAddr>,
    /// Selected by the label selector of nodes without a subnet.
    pub(super) excluded: bool,
    /// The cloud's route controller has left NetworkUnavailable set.
    pub(super) unavailable: bool,
}

impl Facts {
    pub(super) fn of(node: &Node, plan: &NetworkPlan) -> Self {
        let meta = &node.metadata;
        let annotation = |key| meta.annotation(key).map(str::to_owned);
        Self {
            uid: meta.uid.clone(),
            version: meta.resource_version.clone(),
            created: meta.creation_timestamp.clone().unwrap_or_default(),
            subnets: annotation(NODE_SUBNETS),
            id: annotation(NODE_ID),
            transit: annotation(TRANSIT_ADDRESSES),
            legacy: meta.annotation(LEGACY_ROUTER_LRP_ADDRESSES).is_some(),
            addresses: node.internal_ips().collect(),
            excluded: plan.no_subnet_nodes.as_ref().is_some_and(|selector| selector.matches(&meta.labels)),
            unavailable: node.status.conditions.iter().any(|condition| {
                condition.kind == "NetworkUnavailable"
                    && condition.status == "True"
                    && condition.reason == "NoRouteCreated"
            }),
        }
    }

    /// A late word about the same node, from before what is known. Versions that are not numbers are taken as new.
    pub(super) fn is_older_than(&self, known: &Self) -> bool {
        let version = |facts: &Self| facts.version.parse::<u64>().ok();
        self.uid == known.uid
            && matches!((version(self), version(known)), (Some(new), Some(old)) if new < old)
    }

    /// The same in everything but the version.
    pub(super) fn same_as(&self, known: &Self) -> bool {
        let unversioned = |facts: &Self| Self { version: String::new(), ..facts.clone() };
        unversioned(self) == unversioned(known)
    }
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) facts: Facts,
    pub(super) held: Held,
    /// What the annotations claim and cannot have.
    pub(super) refused: Vec<String>,
    /// The problem last reported.
    pub(super) problem: Option<String>,
    pub(super) in_flight: Option<NodePatch>,
    pub(super) retry_at: Option<Duration>,
    failures: u32,
}

impl Entry {
    pub(super) fn new(facts: Facts) -> Self {
        Self { facts, ..Self::default() }
    }

    pub(super) fn key(&self, name: &str) -> ObjectKey {
        ObjectKey { namespace: String::new(), name: name.to_string(), uid: self.facts.uid.clone() }
    }

    /// A patch was written: this is what the node looks like now, until the watch says otherwise.
    pub(super) fn written(&mut self, patch: NodePatch, version: &str) {
        self.failures = 0;
        let now = Facts { version: version.to_string(), ..self.facts.clone() };
        if now.is_older_than(&self.facts) {
            return;
        }
        self.facts.version = now.version;
        for (key, value) in patch.annotations {
            match key {
                NODE_SUBNETS => self.facts.subnets = value,
                NODE_ID => self.facts.id = value,
                TRANSIT_ADDRESSES => self.facts.transit = value,
                _ => self.facts.legacy = false,
            }
        }
        if patch.clear_network_unavailable {
            self.facts.unavailable = false;
        }
    }

    /// A patch failed: when to try again.
    pub(super) fn fail(&mut self, now: Duration) -> Duration {
        let delay = FIRST_RETRY.saturating_mul(1 << self.failures.min(10)).min(LONGEST_RETRY);
        self.failures += 1;
        let at = now + delay;
        self.retry_at = Some(at);
        at
    }
}
