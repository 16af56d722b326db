//! Access-control rules.

use ovn::names::{self, ObjectIds};

use crate::desired::{Desired, RowId};
use crate::table;

/// Priority of rules that allow.
pub(crate) const ALLOW_PRIORITY: i64 = 1001;
/// Tier of network policies; admin policies come before, the baseline after it.
pub(crate) const POLICY_TIER: i64 = 2;

/// Which way the traffic of a rule goes, seen from the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the pod: `to-lport`.
    Ingress,
    /// From the pod: `from-lport`, after load balancing.
    Egress,
}

/// Adds a rule that allows `matching` statefully and hangs it on `parent`.
pub(crate) fn allow(
    desired: &mut Desired,
    parent: RowId,
    ids: &ObjectIds,
    direction: Direction,
    matching: &str,
) {
    let row = desired.row(table::ACL, ids.primary());
    row.set("action", "allow-related")
        .set("match", matching)
        .set("priority", ALLOW_PRIORITY)
        .set("tier", POLICY_TIER)
        .set("meter", names::ACL_METER)
        .entries("external_ids", ids.external_ids().iter().cloned());
    match direction {
        Direction::Ingress => row.set("direction", "to-lport"),
        Direction::Egress => row.set("direction", "from-lport").map("options", [("apply-after-lb", "true")]),
    };
    let child = row.id.clone();
    desired.member(parent, "acls", child);
}
