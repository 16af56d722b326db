//! Our part of the Open_vSwitch database: the keys that steer ovn-controller, the integration bridge, and the
//! management port. Planning only reads a cache and returns operations; a second plan over the result is empty.

mod bridge;
mod gateway;
mod mappings;
mod port;
mod row;
mod schema;
mod takeover;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use ovsdb::{Cache, Mutation, Op, Row};

pub use self::bridge::{INTEGRATION_BRIDGE, ensure_integration_bridge, other_bridges, userspace_datapath};
pub use self::gateway::{PortView, is_userspace, patch_port, ports, set_host_vlan, uplink};
pub use self::mappings::{EXTERNAL_NETWORK, PHYSICAL_NETWORK, mapped_bridge, set_mappings};
pub use self::port::{PortSpec, ensure_port, iface_id, is_installed, remove_legacy_port, remove_port};
pub use self::row::{OwnKeys, remove_own_keys, root, set_keys, system_id};
pub use self::schema::{missing_column, monitor_spec};
pub(crate) use self::takeover::{
    attach_card, forget_takeover, remove_bridge, save_takeover, takeover_row, unfinished_takeover,
};

/// Adds, changes and removes keys of a map column with the least mutation; nothing if all is as wanted.
fn edit_map(row: &Row, column: &'static str, wanted: &[(String, Option<String>)]) -> Vec<Mutation> {
    let differs = |(key, value): &&(String, Option<String>)| row.key(column, key) != value.as_deref();
    let changed: Vec<_> = wanted.iter().filter(differs).collect();
    // An insert does not replace the value of a key that is there, so such keys are deleted first.
    let stale = changed.iter().filter(|(key, _)| row.key(column, key).is_some()).map(|(key, _)| key.clone());
    let fresh = changed.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
    let stale = ovsdb::Datum::set(stale);
    let fresh = ovsdb::Datum::map(fresh);
    let mut mutations = Vec::new();
    if !stale.is_empty() {
        mutations.push(Mutation::delete(column, stale));
    }
    if !fresh.is_empty() {
        mutations.push(Mutation::insert(column, fresh));
    }
    mutations
}

/// The row of `table` with this name.
fn named<'a>(cache: &'a Cache, table: &str, name: &str) -> Option<&'a Arc<Row>> {
    cache.table(table)?.find_one("name", name)
}

fn mutate(table: &'static str, row: &Row, mutations: Vec<Mutation>) -> Option<Op> {
    (!mutations.is_empty()).then(|| Op::mutate(table, row.uuid(), mutations))
}
