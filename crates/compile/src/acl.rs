//! Access-control rules.

use ovn::names::{self, ObjectIds};
use ovsdb::Datum;
use policy::{Direction, Severity};

use crate::desired::{Desired, RowId, RowSpec};
use crate::table;

/// Priority of rules that allow.
pub(crate) const ALLOW_PRIORITY: i64 = 1001;
/// Tier of network policies; admin policies come before, the baseline after it.
pub(crate) const POLICY_TIER: i64 = 2;
/// Longest name OVN takes.
const NAME_LIMIT: usize = 63;

/// A rule of a policy.
pub(crate) struct Spec {
    pub(crate) ids: ObjectIds,
    pub(crate) direction: Direction,
    pub(crate) tier: i64,
    pub(crate) priority: i64,
    pub(crate) action: &'static str,
    pub(crate) matching: String,
    /// What log messages call it.
    pub(crate) name: Option<String>,
    /// How loud it is logged, if at all.
    pub(crate) severity: Option<Severity>,
}

impl Spec {
    /// Asks for the rule, listed in the port group `parent`.
    pub(crate) fn add(self, desired: &mut Desired, parent: RowId) {
        let row = desired.row(table::ACL, self.ids.primary());
        row.set("action", self.action)
            .set("match", self.matching)
            .set("priority", self.priority)
            .set("tier", self.tier)
            .set("meter", names::ACL_METER)
            .set("log", self.severity.is_some())
            .set("severity", self.severity.map_or_else(Datum::empty, |severity| severity.name().into()))
            .entries("external_ids", self.ids.external_ids().iter().cloned());
        if let Some(name) = self.name {
            let cut: String = name.chars().take(NAME_LIMIT).collect();
            row.set("name", cut);
        }
        set_direction(row, self.direction);
        let child = row.id.clone();
        desired.member(parent, "acls", child);
    }
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
    set_direction(row, direction);
    let child = row.id.clone();
    desired.member(parent, "acls", child);
}

/// The condition that the pod's own end is a member of the port group.
pub(crate) fn port_match(direction: Direction, group: &str) -> String {
    match direction {
        Direction::Ingress => format!("outport == @{group}"),
        Direction::Egress => format!("inport == @{group}"),
    }
}

/// Traffic from the pod is judged after load balancing, by its real destination.
fn set_direction(row: &mut RowSpec, direction: Direction) {
    match direction {
        Direction::Ingress => row.set("direction", "to-lport"),
        Direction::Egress => row.set("direction", "from-lport").map("options", [("apply-after-lb", "true")]),
    };
}
