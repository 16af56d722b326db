//! What the compiler makes of a cluster in one node's zone, and what its rows say about a packet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use compile::{PolicySettings, RowSpec, Settings, Value, compile};
use ipnet::IpNet;
use kapi::{Namespace, Node, Pod};
use net::{ClusterCidr, Dual};
use ovsdb::Datum;
use policy::Policy;
use serde_json::Value as Json;
use world::{PodState, World};

use crate::expression::{Expression, Names, Packet, parse};

/// The rows of a zone that judge packets.
pub(crate) struct Zone {
    names: Names,
    acls: Vec<Acl>,
    /// Ports of the node's switch.
    ports: BTreeSet<String>,
}

struct Acl {
    id: String,
    name: String,
    text: String,
    matching: Expression,
    priority: i64,
    tier: i64,
    is_out: bool,
    after_lb: bool,
    action: String,
}

/// What the rows say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) allowed: bool,
    /// The row that decides, by id and by name; none if none does.
    pub(crate) acl: Option<(String, String)>,
}

fn range(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn settings(node: &str, dual: bool) -> Settings {
    let both = |v4: &str, v6: &str| {
        let mut list = vec![range(v4)];
        list.extend(dual.then(|| range(v6)));
        list
    };
    Settings {
        node: node.into(),
        cluster_cidrs: both("10.244.0.0/16", "fd00:10:244::/48"),
        service_cidrs: both("10.96.0.0/16", "fd00:10:96::/112"),
        join: Dual { v4: Some(range("100.64.0.0/16")), v6: Some(range("fd98::/64")) },
        transit: Dual { v4: Some(range("100.88.0.0/16")), v6: Some(range("fd97::/64")) },
        masquerade: Dual { v4: Some(range("169.254.169.0/29")), v6: Some(range("fd69::/125")) },
        nat_ports: None,
        snat_per_pod: false,
        mtu: 1342,
        encap_port: 6081,
        encap_type: "geneve".into(),
        requested_chassis: true,
        acl_logging_rate: 20,
        multicast: false,
        namespace_groups: true,
        service_templates: false,
        empty_lb_events: false,
        hybrid_overlay: false,
        policies: PolicySettings {
            admin: true,
            stateless: false,
            allow_icmp: false,
            host_namespace: "ovn-host-network".into(),
        },
    }
}

fn world(objects: &[Json], node: &str, dual: bool) -> World {
    let mut cidrs = vec![ClusterCidr { cidr: range("10.244.0.0/16"), host_prefix: 24 }];
    cidrs.extend(dual.then(|| ClusterCidr { cidr: range("fd00:10:244::/48"), host_prefix: 64 }));
    let mut world = World::new(node, cidrs).with_host_namespace("ovn-host-network");
    let of = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind).cloned();
    for object in of("Node") {
        world.apply_node(&serde_json::from_value::<Node>(object).unwrap());
    }
    for mut object in of("Namespace") {
        // As the API server does.
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = object["metadata"]["name"].clone();
        world.apply_namespace(&serde_json::from_value::<Namespace>(object).unwrap());
    }
    for object in of("NetworkPolicy") {
        world.apply_policy(Policy::from(&serde_json::from_value::<kapi::NetworkPolicy>(object).unwrap()));
    }
    for object in of("AdminNetworkPolicy") {
        world
            .apply_policy(Policy::from(&serde_json::from_value::<kapi::AdminNetworkPolicy>(object).unwrap()));
    }
    for object in of("BaselineAdminNetworkPolicy") {
        let object = serde_json::from_value::<kapi::BaselineAdminNetworkPolicy>(object).unwrap();
        world.apply_policy(Policy::from(&object));
    }
    for object in of("ClusterNetworkPolicy") {
        let object = serde_json::from_value::<kapi::ClusterNetworkPolicy>(object).unwrap();
        world.apply_policy(Policy::from(&object));
    }
    for object in of("Pod") {
        let pod: Pod = serde_json::from_value(object).unwrap();
        if pod.is_finished() {
            continue;
        }
        let network = pod.metadata.default_pod_network().unwrap();
        let ips = match &network {
            Some(network) => network.addresses().collect(),
            None => pod.status.pod_ips.iter().map(|one| one.ip).collect(),
        };
        world.apply_peer(&pod, ips);
        if let Some(network) = network.filter(|_| pod.spec.node_name == node) {
            let state = PodState { uid: pod.metadata.uid.clone(), network: network.into() };
            world.set_pod(&pod.pod_key(), Some(state));
        }
    }
    world
}

fn exact<'a>(row: &'a RowSpec, column: &str) -> Option<&'a Datum> {
    row.columns.iter().find_map(|(name, value)| match value {
        Value::Exact(datum) if *name == column => Some(datum),
        _ => None,
    })
}

fn text(row: &RowSpec, column: &str) -> String {
    exact(row, column).and_then(Datum::as_str).unwrap_or_default().to_owned()
}

impl Zone {
    pub(crate) fn new(objects: &[Json], node: &str, dual: bool) -> Zone {
        let (world, settings) = (world(objects, node, dual), settings(node, dual));
        let mut zone = Zone { names: Names::default(), acls: Vec::new(), ports: BTreeSet::new() };
        let mut rows: BTreeMap<(&str, String), RowSpec> = BTreeMap::new();
        let mut members: Vec<(String, String, &'static str, String)> = Vec::new();
        let keys: Vec<_> = world.keys().collect();
        for key in keys {
            let desired = compile(&world, &settings, &key).unwrap_or_default();
            for row in desired.rows {
                rows.insert((row.id.table.name, row.id.name.clone()), row);
            }
            members.extend(desired.members.into_iter().map(|member| {
                (member.parent.table.name.to_owned(), member.parent.name, member.column, member.child.name)
            }));
        }
        // Groups by primary id; expressions call them by their short name.
        let mut group_ports: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (table, parent, column, child) in &members {
            match (table.as_str(), *column) {
                ("Port_Group", "ports") => drop(group_ports.entry(parent).or_default().insert(child.clone())),
                ("Logical_Switch", "ports") if parent == node => drop(zone.ports.insert(child.clone())),
                _ => {}
            }
        }
        for ((table, id), row) in &rows {
            match *table {
                "Port_Group" => {
                    let ports = group_ports.get(id.as_str()).cloned().unwrap_or_default();
                    zone.names.groups.insert(text(row, "name"), ports);
                }
                "Address_Set" => {
                    let addresses = exact(row, "addresses").into_iter().flat_map(Datum::strs);
                    let nets = addresses
                        .map(|one| one.parse::<IpAddr>().map(IpNet::from).or_else(|_| one.parse()).unwrap());
                    zone.names.sets.insert(text(row, "name"), nets.collect());
                }
                _ => {}
            }
        }
        for (table, parent, column, child) in &members {
            let applies = match table.as_str() {
                "Logical_Switch" => parent == node,
                // A group's rules are on every switch that has one of its ports.
                "Port_Group" => group_ports
                    .get(parent.as_str())
                    .is_some_and(|ports| ports.iter().any(|port| zone.ports.contains(port))),
                _ => false,
            };
            if *column != "acls" || !applies {
                continue;
            }
            let row = rows.get(&("ACL", child.clone())).unwrap_or_else(|| panic!("no row {child}"));
            zone.acls.push(Acl::new(child, row));
        }
        zone
    }

    /// What the node's switch does to a packet that comes from one of its ports (`inport`), or goes to one.
    pub(crate) fn judge(&self, packet: &Packet) -> Judgement {
        // Rules of the egress side may stand before or behind the load balancers: two stages, both must agree.
        for after_lb in [false, true] {
            let judgement = self.stage(packet, after_lb);
            if !judgement.allowed || after_lb {
                return judgement;
            }
        }
        unreachable!("the last stage returns");
    }

    fn stage(&self, packet: &Packet, after_lb: bool) -> Judgement {
        for tier in 0..=3 {
            let mut found: Vec<&Acl> = Vec::new();
            for acl in &self.acls {
                if (acl.tier, acl.is_out) != (tier, packet.is_out)
                    || (!packet.is_out && acl.after_lb != after_lb)
                {
                    continue;
                }
                let holds = acl.matching.holds(&self.names, packet);
                if holds.unwrap_or_else(|error| panic!("{}: {}: {error}", acl.id, acl.text)) {
                    found.push(acl);
                }
            }
            let Some(first) = found.iter().map(|acl| acl.priority).max() else { continue };
            found.retain(|acl| acl.priority == first);
            let kind = |acl: &&Acl| match acl.action.as_str() {
                "allow" | "allow-related" | "allow-stateless" => Some(true),
                "drop" | "reject" => Some(false),
                "pass" => None,
                other => panic!("action {other}"),
            };
            let decided = kind(&found[0]);
            // OVN leaves open which of two rules of the same priority wins.
            assert!(
                found.iter().all(|acl| kind(acl) == decided),
                "rules of one priority disagree on {packet:?}: {:?}",
                found.iter().map(|acl| &acl.id).collect::<Vec<_>>()
            );
            if let Some(allowed) = decided {
                let acl = Some((found[0].id.clone(), found[0].name.clone()));
                return Judgement { allowed, acl };
            }
        }
        Judgement { allowed: true, acl: None }
    }

    /// Whether there is a row of this id and name, and it is about this packet.
    pub(crate) fn says(&self, id: &str, name: &str, packet: &Packet) -> bool {
        self.acls.iter().any(|acl| {
            (acl.id.as_str(), acl.name.as_str(), acl.is_out) == (id, name, packet.is_out)
                && acl.matching.holds(&self.names, packet) == Ok(true)
        })
    }
}

impl Acl {
    fn new(id: &str, row: &RowSpec) -> Acl {
        let matching = text(row, "match");
        let number = |column| exact(row, column).and_then(Datum::as_int).unwrap_or_default();
        let options = exact(row, "options");
        Acl {
            id: id.to_owned(),
            name: text(row, "name"),
            matching: parse(&matching).unwrap_or_else(|error| panic!("{id}: {matching}: {error}")),
            text: matching,
            priority: number("priority"),
            tier: number("tier"),
            is_out: text(row, "direction") == "to-lport",
            after_lb: options.is_some_and(|options| options.get("apply-after-lb") == Some("true")),
            action: text(row, "action"),
        }
    }
}
