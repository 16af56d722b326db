//! What the agent says about its node: the annotations other nodes and the controllers build on. All of them go
//! into one patch, and only those that differ.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use kapi::Meta;
use kapi::annotations as key;
use net::Dual;

/// Layout of primary layer-2 networks we speak.
const LAYER2_TOPOLOGY: &str = "2.0";

/// What is known about the node; `None` leaves an annotation as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The chassis id.
    pub chassis_id: Option<String>,
    /// Tunnel addresses.
    pub encap_ips: Option<Vec<IpAddr>>,
    /// The uplink's addresses.
    pub primary: Option<Dual<IpNet>>,
    /// All usable addresses, sorted.
    pub host_cidrs: Option<Vec<IpNet>>,
    /// The masquerade ranges.
    pub masquerade: Option<Dual<IpNet>>,
    /// The gateway's description.
    pub gateway: Option<String>,
    /// Whether the gateway tells senders of too large packets so.
    pub gateway_mtu_support: bool,
}

/// An annotation to write (`Some`) or to remove (`None`).
pub type Edit = (&'static str, Option<String>);

/// The edits that make the node's annotations say what `facts` say.
pub fn plan(meta: &Meta, facts: &Facts) -> Vec<Edit> {
    let mut desired: BTreeMap<&'static str, Option<String>> = BTreeMap::new();
    let mut say = |key, value: Option<String>| {
        if value.is_some() {
            desired.insert(key, value);
        }
    };
    say(key::CHASSIS_ID, facts.chassis_id.clone());
    say(key::ENCAP_IPS, facts.encap_ips.as_ref().map(key::write_list));
    say(key::PRIMARY_IFADDR, facts.primary.as_ref().map(key::write_cidr_pair));
    say(key::HOST_CIDRS, facts.host_cidrs.as_ref().map(key::write_list));
    say(key::MASQUERADE_SUBNET, facts.masquerade.as_ref().map(key::write_cidr_pair));
    say(key::GATEWAY_CONFIG, facts.gateway.clone());
    // Admission lets this one be added or removed but not changed.
    if meta.annotation(key::LAYER2_TOPOLOGY_VERSION).is_none() {
        desired.insert(key::LAYER2_TOPOLOGY_VERSION, Some(LAYER2_TOPOLOGY.to_owned()));
    }
    desired.insert(key::GATEWAY_MTU_SUPPORT, (!facts.gateway_mtu_support).then(|| "false".to_owned()));
    desired.into_iter().filter(|(key, value)| meta.annotation(key) != value.as_deref()).collect()
}

/// The edits without the one that admission refuses once it was set, or `None` if that was not among them.
pub fn without_chassis_id(edits: &[Edit]) -> Option<Vec<Edit>> {
    let rest: Vec<Edit> = edits.iter().filter(|(key, _)| *key != key::CHASSIS_ID).cloned().collect();
    (rest.len() < edits.len()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            chassis_id: Some("00000000-0000-4000-8000-000000000001".into()),
            encap_ips: Some(vec!["172.18.0.1".parse().unwrap()]),
            primary: Some(Dual { v4: Some("172.18.0.1/24".parse().unwrap()), v6: None }),
            host_cidrs: Some(vec!["172.18.0.1/24".parse().unwrap()]),
            masquerade: Some(Dual {
                v4: Some("169.254.169.0/29".parse().unwrap()),
                v6: Some("fd69::/125".parse().unwrap()),
            }),
            gateway: Some(r#"{"default":{"mode":""}}"#.into()),
            gateway_mtu_support: true,
        }
    }

    fn applied(mut meta: Meta, edits: Vec<Edit>) -> Meta {
        for (key, value) in edits {
            match value {
                Some(value) => meta.annotations.insert(key.to_owned(), value),
                None => meta.annotations.remove(key),
            };
        }
        meta
    }

    #[test]
    fn the_recorded_annotations_to_the_letter() {
        let meta = applied(Meta::default(), plan(&Meta::default(), &facts()));
        let expected = [
            ("k8s.ovn.org/host-cidrs", r#"["172.18.0.1/24"]"#),
            ("k8s.ovn.org/l3-gateway-config", r#"{"default":{"mode":""}}"#),
            ("k8s.ovn.org/layer2-topology-version", "2.0"),
            ("k8s.ovn.org/node-chassis-id", "00000000-0000-4000-8000-000000000001"),
            ("k8s.ovn.org/node-encap-ips", r#"["172.18.0.1"]"#),
            ("k8s.ovn.org/node-masquerade-subnet", r#"{"ipv4":"169.254.169.0/29","ipv6":"fd69::/125"}"#),
            ("k8s.ovn.org/node-primary-ifaddr", r#"{"ipv4":"172.18.0.1/24"}"#),
        ];
        let actual: Vec<_> = meta.annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(actual, expected);
    }

    #[test]
    fn a_second_plan_is_empty_and_a_change_touches_one_key() {
        let meta = applied(Meta::default(), plan(&Meta::default(), &facts()));
        assert_eq!(plan(&meta, &facts()), []);
        let mut moved = facts();
        moved.host_cidrs = Some(vec!["172.18.0.1/24".parse().unwrap(), "192.0.2.1/24".parse().unwrap()]);
        assert_eq!(
            plan(&meta, &moved),
            [("k8s.ovn.org/host-cidrs", Some(r#"["172.18.0.1/24","192.0.2.1/24"]"#.to_owned()))]
        );
    }

    #[test]
    fn what_is_not_known_is_left_alone_and_foreign_keys_stay() {
        let mut meta = applied(Meta::default(), plan(&Meta::default(), &facts()));
        meta.annotations.insert("example.com/note".into(), "mine".into());
        assert_eq!(plan(&meta, &Facts { gateway_mtu_support: true, ..Facts::default() }), []);
    }

    #[test]
    fn missing_mtu_support_is_announced_and_withdrawn() {
        let without = Facts { gateway_mtu_support: false, ..facts() };
        let meta = applied(Meta::default(), plan(&Meta::default(), &without));
        assert_eq!(meta.annotation("k8s.ovn.org/gateway-mtu-support"), Some("false"));
        assert_eq!(plan(&meta, &facts()), [("k8s.ovn.org/gateway-mtu-support", None)]);
    }

    #[test]
    fn an_older_topology_version_is_not_altered() {
        let mut meta = applied(Meta::default(), plan(&Meta::default(), &facts()));
        meta.annotations.insert("k8s.ovn.org/layer2-topology-version".into(), "1.0".into());
        assert_eq!(plan(&meta, &facts()), []);
    }

    #[test]
    fn the_refusable_edit_can_be_left_out() {
        let edits = plan(&Meta::default(), &facts());
        let rest = without_chassis_id(&edits).unwrap();
        assert_eq!(rest.len() + 1, edits.len());
        assert_eq!(without_chassis_id(&rest), None);
    }
}
