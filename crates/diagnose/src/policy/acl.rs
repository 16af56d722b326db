//! Which row of the Northbound database a rule became.

use ovn::names::{OBJECT_NAME, ObjectIds};
use policy::{Direction, Kind, Policy, Ports, Rule};
use serde::Serialize;

use super::party::Traffic;

/// A row of the ACL table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AclName {
    /// `external_ids:k8s.ovn.org/id`, unique.
    pub id: String,
    /// The name it has in logs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// Names in OVN end after so many characters.
const LONGEST_NAME: usize = 63;

/// The row of a rule for this traffic; `by_block` tells whether it is the one with the rule's address ranges.
pub(crate) fn of_rule(policy: &Policy, rule: &Rule, by_block: bool, traffic: Traffic) -> AclName {
    let (direction, index) = (rule.direction.name(), rule.index.to_string());
    let protocol = match (&rule.ports, traffic) {
        (Ports::Of(_), Traffic::Port(protocol, _)) => protocol.ovn(),
        _ => "None",
    };
    let id = &policy.id;
    match id.kind {
        Kind::NetworkPolicy => {
            let block = if by_block { "-2" } else { "-1" };
            let keys = [
                (OBJECT_NAME, &*format!("{}:{}", id.namespace, id.name)),
                ("direction", direction),
                ("gress-index", &index),
                ("port-policy-protocol", protocol),
                ("ip-block-index", block),
            ];
            named(
                ObjectIds::new(id.kind.name(), &keys),
                format!("NP:{}:{}:{direction}:{index}", id.namespace, id.name),
            )
        }
        kind => {
            let keys = [
                (OBJECT_NAME, id.name.as_str()),
                ("direction", direction),
                ("gress-index", &index),
                ("port-policy-protocol", protocol),
            ];
            let short = match kind {
                Kind::AdminNetworkPolicy => "ANP",
                Kind::BaselineAdminNetworkPolicy => "BANP",
                _ => "CNP",
            };
            named(ObjectIds::new(kind.name(), &keys), format!("{short}:{}:{direction}:{index}", id.name))
        }
    }
}

/// The row that drops what no rule allows to or from the isolated pods of a namespace.
pub(crate) fn default_deny(namespace: &str, direction: Direction) -> AclName {
    let keys = [(OBJECT_NAME, namespace), ("direction", direction.name()), ("type", "defaultDeny")];
    named(ObjectIds::new("NetpolNamespace", &keys), format!("NP:{namespace}:{}", direction.name()))
}

fn named(ids: ObjectIds, name: String) -> AclName {
    AclName { id: ids.primary().to_owned(), name: name.chars().take(LONGEST_NAME).collect() }
}
