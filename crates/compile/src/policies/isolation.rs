//! What denies traffic of the pods NetworkPolicies isolate: two groups in each namespace that has policies.

use ovn::names::{self, ObjectIds};
use policy::Direction;
use world::World;

use crate::acl;
use crate::desired::{Desired, RowId};
use crate::settings::Settings;
use crate::table;

/// Priority below the rules that allow.
const DENY_PRIORITY: i64 = acl::ALLOW_PRIORITY - 1;

pub(crate) fn rows(world: &World, settings: &Settings, namespace: &str) -> Desired {
    let mut desired = Desired::default();
    if world.policies().of_namespace(namespace).next().is_none() {
        return desired;
    }
    let logging = world.policies().namespace(namespace).map(|state| state.logging).unwrap_or_default();
    for direction in Direction::ALL {
        let ids = group_ids(namespace, direction);
        let group = RowId::new(table::PORT_GROUP, ids.primary());
        desired
            .row(table::PORT_GROUP, ids.primary())
            .set("name", ids.hashed_name())
            .entries("external_ids", ids.external_ids().iter().cloned());
        let port = acl::port_match(direction, &ids.hashed_name());
        let mut rules = vec![
            ("defaultDeny", "drop", DENY_PRIORITY, port.clone(), logging.deny),
            ("arpAllow", "allow", acl::ALLOW_PRIORITY, format!("{port} && (arp || nd)"), None),
        ];
        if settings.policies.allow_icmp {
            let matching = format!("{port} && (icmp || icmp6)");
            rules.push(("icmpAllow", "allow-related", acl::ALLOW_PRIORITY, matching, None));
        }
        for (kind, action, priority, matching, severity) in rules {
            let keys = [(names::OBJECT_NAME, namespace), ("direction", direction.name()), ("type", kind)];
            let spec = acl::Spec {
                ids: ObjectIds::new("NetpolNamespace", &keys),
                direction,
                tier: acl::POLICY_TIER,
                priority,
                action,
                matching,
                name: Some(format!("NP:{namespace}:{}", direction.name())),
                severity,
            };
            spec.add(&mut desired, group.clone());
        }
    }
    desired
}

/// The group of the namespace's pods that are isolated in `direction`.
pub(crate) fn group(namespace: &str, direction: Direction) -> RowId {
    RowId::new(table::PORT_GROUP, group_ids(namespace, direction).primary())
}

fn group_ids(namespace: &str, direction: Direction) -> ObjectIds {
    ObjectIds::new("NetpolNamespace", &[(names::OBJECT_NAME, namespace), ("direction", direction.name())])
}
