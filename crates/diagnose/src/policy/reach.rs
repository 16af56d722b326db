//! What passes between two classes of parties.

use net::Family;
use policy::{Direction, Policy};

use super::classes::Class;
use super::cluster::Cluster;
use super::decide::{Decision, End};
use super::party::{Party, Traffic};
use super::ports::{PortSet, Spans};

/// A class's example in one cluster, with the policies for it.
pub(crate) struct Side<'a> {
    end: End<'a>,
    policies: Vec<&'a Policy>,
}

impl<'a> Side<'a> {
    /// The example as the source or destination of a connection; none if it cannot be that over this family.
    pub(crate) fn new(
        cluster: &'a Cluster,
        party: &'a Party,
        family: Option<Family>,
        is_source: bool,
    ) -> Option<Side<'a>> {
        let mut end = if is_source {
            cluster.source(party, family).ok()?
        } else {
            cluster.destination(party, family).ok()?
        };
        // A pod that was not started yet has no address; only rules about addresses cannot be judged for it then.
        let not_started = end.pod.is_some_and(|(_, pod)| pod.addresses.is_empty());
        if family.is_some() && end.ip.is_none() && !not_started {
            return None;
        }
        // A class holds pods of many nodes: their own node, which always reaches them, is not what is asked about.
        if is_source {
            end.node = None;
        }
        let policies = end.pod.map(|(key, pod)| cluster.policies_for(key, pod)).unwrap_or_default();
        Some(Side { end, policies })
    }
}

/// What policies of `cluster` let pass.
pub(crate) fn allowed(cluster: &Cluster, from: &Side<'_>, to: &Side<'_>, spans: &Spans) -> PortSet {
    spans.filter(|traffic| decisions(cluster, from, to, traffic).iter().all(|decision| decision.allowed))
}

/// What source and destination say.
pub(crate) fn decisions(
    cluster: &Cluster,
    from: &Side<'_>,
    to: &Side<'_>,
    traffic: Traffic,
) -> [Decision; 2] {
    [
        cluster.decide_by(&from.policies, Direction::Egress, &from.end, &to.end, traffic),
        cluster.decide_by(&to.policies, Direction::Ingress, &from.end, &to.end, traffic),
    ]
}

/// The families in which two classes can talk in `cluster`.
pub(crate) fn families(cluster: &Cluster, from: &Class, to: &Class) -> Vec<Option<Family>> {
    match (from.families(cluster), to.families(cluster)) {
        (from, to) if from.is_empty() && to.is_empty() => vec![None],
        (from, to) if from.is_empty() => to,
        (from, to) if to.is_empty() => from,
        (from, to) => from.into_iter().filter(|family| to.contains(family)).collect(),
    }
}
