//! Namespaces: the port group of all their pods.

use ovn::names::ObjectIds;
use world::World;

use crate::desired::{Desired, RowId};
use crate::settings::Settings;
use crate::table;

pub(crate) fn rows(world: &World, settings: &Settings, name: &str) -> Desired {
    let mut desired = Desired::default();
    if settings.namespace_groups && world.has_namespace(name) {
        let ids = ObjectIds::named("Namespace", name);
        desired
            .row(table::PORT_GROUP, ids.primary())
            .set("name", ids.hashed_name())
            .entries("external_ids", ids.external_ids().iter().cloned());
    }
    desired
}

/// The port group of a namespace's pods.
pub(crate) fn group(name: &str) -> RowId {
    RowId::new(table::PORT_GROUP, ObjectIds::named("Namespace", name).primary())
}
