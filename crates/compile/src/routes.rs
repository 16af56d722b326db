//! Static routes and router policies.

use crate::desired::{Desired, RowId};
use crate::identity;
use crate::table;

/// Adds a destination route of `router`: `prefix` via `next_hop`, marked with `external_ids`.
pub(crate) fn destination(
    desired: &mut Desired,
    router: &str,
    prefix: &str,
    next_hop: &str,
    external_ids: &[(&str, &str)],
) {
    let name = identity::route_name(prefix, next_hop, "", "");
    let row = desired.row(table::STATIC_ROUTE, name);
    row.set("ip_prefix", prefix).set("nexthop", next_hop);
    row.entries("external_ids", external_ids.iter().copied());
    let child = row.id.clone();
    desired.member(RowId::new(table::ROUTER, router), "static_routes", child);
}
