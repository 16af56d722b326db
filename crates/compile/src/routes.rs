//! Static routes.

use crate::desired::{Desired, RowId, RowSpec};
use crate::identity;
use crate::table;

/// A route as asked for; empty texts are left out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Route<'a> {
    /// What is matched: a prefix.
    pub(crate) prefix: &'a str,
    /// The next hop.
    pub(crate) next_hop: &'a str,
    /// Matched against the source instead of the destination.
    pub(crate) by_source: bool,
    /// Router port it leaves through.
    pub(crate) output_port: &'a str,
}

/// Adds a route of `router`.
pub(crate) fn add<'a>(desired: &'a mut Desired, router: &str, route: Route<'_>) -> &'a mut RowSpec {
    let policy = if route.by_source { "src-ip" } else { "" };
    let name = identity::route_name(route.prefix, route.next_hop, policy, route.output_port);
    desired.member(
        RowId::new(table::ROUTER, router),
        "static_routes",
        RowId::new(table::STATIC_ROUTE, &*name),
    );
    let row = desired.row(table::STATIC_ROUTE, name);
    row.set("ip_prefix", route.prefix).set("nexthop", route.next_hop);
    if route.by_source {
        row.set("policy", policy);
    }
    if !route.output_port.is_empty() {
        row.set("output_port", route.output_port);
    }
    row
}
