//! Services through the controller: any order of events, one row for one change, nothing half known.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::balance;
use common::clients::{cluster_ip, key, on_switch, service, slice, zone};
use common::dice::Dice;
use common::objects;
use common::world::{Fate, Zone, text};
use compile::Db;
use controller::{Change, Input};
use kapi::PodKey;
use ovsdb::Op;
use scenario::Scenario;
use serde_json::json;

/// The recorded objects in twenty random orders, on both nodes, some deleted and created anew on the way, some seen
/// twice: always the same rows.
#[test]
fn any_order_of_events_gives_the_same_rows() {
    let (services, slices) = objects::services(&Scenario::SERVICES);
    let expected: BTreeMap<u32, BTreeMap<String, String>> = [1, 2]
        .into_iter()
        .map(|number| {
            let mut zone = with_nodes(number);
            zone.services = services.iter().map(|service| (key(service), service.clone())).collect();
            zone.slices = slices.iter().map(|slice| (key(slice), slice.clone())).collect();
            zone.start();
            zone.settle();
            assert!(zone.nb.rows("Load_Balancer").len() >= 18, "{}", zone.nb.rows("Load_Balancer").len());
            (number, text(&zone.nb))
        })
        .collect();
    for seed in 0..20 {
        for number in [1, 2] {
            let mut dice = Dice(seed);
            let mut zone = with_nodes(number);
            zone.batch = [1, 3, 500][seed as usize % 3];
            zone.start();
            zone.settle();
            let mut events: Vec<(bool, usize)> = (0..services.len()).map(|at| (true, at)).collect();
            events.extend((0..slices.len()).map(|at| (false, at)));
            for at in (1..events.len()).rev() {
                events.swap(at, dice.roll(at + 1));
            }
            for (is_service, at) in events {
                let rounds = 1 + dice.roll(2);
                for round in 0..rounds {
                    if is_service {
                        zone.put_service(services[at].clone());
                    } else {
                        zone.put_slice(slices[at].clone());
                    }
                    if dice.roll(2) == 0 {
                        zone.settle();
                    }
                    if round + 1 < rounds {
                        if is_service {
                            zone.remove_service(&key(&services[at]));
                        } else {
                            zone.remove_slice(&key(&slices[at]));
                        }
                    }
                }
            }
            zone.settle();
            assert_eq!(text(&zone.nb), expected[&number], "seed {seed} node{number}");
        }
    }
}

fn with_nodes(number: u32) -> Zone {
    let mut zone = Zone::new(&format!("node{number}"), false);
    for number in [1, 2] {
        let (name, subnet) = (format!("node{number}"), format!("10.244.{}.0/24", number - 1));
        let node = objects::with_gateway(objects::node(&name, number, &[&subnet]), number, true, &[]);
        zone.nodes.insert(name, node);
    }
    zone
}

/// One endpoint more is one row written, whatever else there is.
#[test]
fn an_endpoint_change_writes_one_row() {
    let mut zone = zone();
    for number in 0..50 {
        let name = format!("s{number}");
        let spec = json!({"clusterIP": format!("10.96.2.{number}"), "ports": [{"name": "http", "port": 80}]});
        zone.services.insert(PodKey::new("shop", &*name), service(&name, spec));
        let slice = slice(&name, &name, 8080, &[("10.244.0.3", "node1"), ("10.244.1.3", "node2")]);
        zone.slices.insert(key(&slice), slice);
    }
    zone.start();
    zone.settle();
    let before = zone.nb.ops;
    zone.put_slice(slice("s7", "s7", 8080, &[("10.244.0.3", "node1"), ("10.244.1.4", "node2")]));
    zone.deliver("slices");
    let [(Db::Nb, _, ops)] = zone.transactions.make_contiguous() else { panic!("one transaction") };
    let [Op::Mutate { table, .. } | Op::Update { table, .. }] = ops.as_slice() else { panic!("{ops:?}") };
    assert_eq!(&**table, "Load_Balancer");
    zone.settle();
    assert_eq!(zone.nb.ops, before + 1);
    assert_eq!(zone.programmed.last(), Some(&kapi::ServiceKey::new("shop", "s7")));
    // The same once more, and what changes no backend, write nothing.
    let mut same = slice("s7", "s7", 8080, &[("10.244.1.4", "node2"), ("10.244.0.3", "node1")]);
    zone.put_slice(same.clone());
    same.metadata.annotations.insert("a".into(), "b".into());
    zone.put_slice(same);
    zone.settle();
    assert_eq!(zone.nb.ops, before + 1);
}

/// After a restart the lists come one after the other: a service whose slices are not known yet must not lose its
/// endpoints meanwhile, nor its load balancer before it is known itself.
#[test]
fn half_known_services_are_left_as_they_are() {
    for first in ["services", "slices"] {
        let mut zone = zone();
        zone.services.insert(PodKey::new("shop", "web"), service("web", cluster_ip()));
        let slice = slice("a", "web", 8080, &[("10.244.0.3", "node1")]);
        zone.slices.insert(key(&slice), slice);
        zone.start();
        zone.settle();
        let ops = zone.nb.ops;
        assert_eq!(on_switch(&zone), Some(vec!["10.244.0.3:8080".into()]));
        zone.start();
        let second = if first == "services" { "slices" } else { "services" };
        let held = zone.queues.remove(second).expect("the list");
        zone.settle();
        assert!(!zone.core.progress().lists, "a list is missing");
        assert_eq!(zone.nb.ops, ops, "{first} alone");
        zone.queues.insert(second, held);
        zone.settle();
        assert!(zone.core.progress().lists);
        assert_eq!(zone.nb.ops, ops);
    }
}

/// Pods do not wait for services.
#[test]
fn pods_get_their_ports_before_services_are_known() {
    let mut zone = zone();
    let pod = PodKey::new("shop", "web-1");
    zone.pods.insert(pod.clone(), objects::pod(&pod, "u1", "node1"));
    zone.start();
    zone.queues.remove("slices");
    zone.settle();
    assert!(zone.nb.rows("Logical_Switch_Port").iter().any(|row| row.str("name") == Some("shop_web-1")));
}

/// What is not readable any more keeps what it had; what is gone from the list is gone.
#[test]
fn an_unreadable_slice_keeps_its_endpoints() {
    let mut zone = zone();
    zone.services.insert(PodKey::new("shop", "web"), service("web", cluster_ip()));
    let slice = slice("a", "web", 8080, &[("10.244.0.3", "node1")]);
    zone.slices.insert(key(&slice), slice);
    zone.start();
    zone.settle();
    zone.send("slices", Input::Unreadable(controller::Unreadable::Slice("shop/a".into())));
    zone.send("slices", Input::Slices(Change::Snapshot(Vec::new())));
    zone.settle();
    assert_eq!(on_switch(&zone), Some(vec!["10.244.0.3:8080".into()]));
    zone.send("slices", Input::Slices(Change::Snapshot(Vec::new())));
    zone.settle();
    assert_eq!(on_switch(&zone), Some(vec![]), "rejected, not forgotten");
}

/// A change that arrives while an older one is on its way is not told to be programmed with it.
#[test]
fn only_what_is_written_is_told_to_be_programmed() {
    let mut zone = zone();
    zone.services.insert(PodKey::new("shop", "web"), service("web", cluster_ip()));
    let first = slice("a", "web", 8080, &[("10.244.0.9", "node1")]);
    zone.slices.insert(key(&first), first);
    zone.start();
    zone.settle();
    assert!(zone.programmed.is_empty(), "what was there at the start is no change");
    zone.put_slice(slice("a", "web", 8080, &[("10.244.0.3", "node1")]));
    zone.deliver("slices");
    zone.put_slice(slice("a", "web", 8080, &[("10.244.0.4", "node1")]));
    zone.deliver("slices");
    zone.transact(Fate::Made);
    while zone.queues.values().any(|queue| !queue.is_empty()) {
        zone.deliver("nb");
    }
    assert_eq!(zone.programmed.len(), 1);
    zone.transact(Fate::LostAfter);
    while zone.queues.values().any(|queue| !queue.is_empty()) {
        zone.deliver("nb");
    }
    zone.settle();
    assert_eq!(zone.programmed.len(), 2, "told once it is known to be there");
}

/// Rows of services deleted while the controller was down go; those of others and of other networks stay.
#[test]
fn leftovers_go_and_foreign_rows_stay() {
    let mut zone = zone();
    let owned = |name: &str, ids: &[(&str, &str)]| {
        let ids = ids.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let columns = [
            ("name", ovsdb::Datum::scalar(name)),
            ("external_ids", ovsdb::Datum::map::<String, String>(ids)),
        ];
        let columns = columns.map(|(name, datum)| (std::borrow::Cow::Borrowed(name), datum)).to_vec();
        Op::insert(
            "Load_Balancer",
            ovsdb::Uuid::v5(&ovsdb::Uuid::from_bytes([7; 16]), name.as_bytes()),
            columns,
        )
    };
    let service = ("k8s.ovn.org/kind", "Service");
    let rows = [
        owned("Service_shop/gone_TCP_cluster", &[service, ("k8s.ovn.org/owner", "shop/gone")]),
        owned(
            "Service_shop/gone_TCP_node_router_node1_merged",
            &[service, ("k8s.ovn.org/owner", "shop/gone")],
        ),
        owned(
            "tenant_Service_shop/web",
            &[service, ("k8s.ovn.org/owner", "shop/web"), ("k8s.ovn.org/network", "tenant")],
        ),
        owned("foreign", &[("made-by", "somebody")]),
    ];
    zone.nb.transact(&rows).expect("rows");
    zone.start();
    zone.settle();
    let names: BTreeSet<String> =
        zone.nb.rows("Load_Balancer").iter().filter_map(|row| Some(row.str("name")?.to_owned())).collect();
    assert_eq!(names, ["foreign".to_owned(), "tenant_Service_shop/web".to_owned()].into());
}

/// Things users get wrong are said on their Service, once, and again when something else is wrong.
#[test]
fn what_cannot_be_used_is_told_once() {
    let mut zone = zone();
    zone.start();
    zone.settle();
    let mut object = service("web", cluster_ip());
    object.spec.external_ips = vec!["gateway".into()];
    zone.put_service(object.clone());
    zone.put_slice(slice("a", "web", 8080, &[("10.244.0.999", "node1"), ("10.244.0.3", "node1")]));
    zone.settle();
    zone.put_service(object.clone());
    zone.settle();
    let told: Vec<&str> = zone.service_warnings.iter().map(|(_, message)| message.as_str()).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("gateway") && told[1].contains("10.244.0.999"), "{told:?}");
    assert_eq!(on_switch(&zone), Some(vec!["10.244.0.3:8080".into()]), "the rest works");
    let mut slice = slice("b", "web", 8080, &[]);
    slice.address_type = "IPv6".into();
    slice.endpoints = serde_json::from_value(json!([{"addresses": ["fd00::1"]}])).unwrap();
    zone.put_slice(slice);
    zone.settle();
    assert!(
        zone.service_warnings.last().unwrap().1.contains("no IPv6 address"),
        "{:?}",
        zone.service_warnings
    );
}

/// With the flag for templates node ports are served at variables, once for all nodes, except where the policy or
/// affinity makes nodes differ; without it the variables go again.
#[test]
fn node_ports_at_template_variables() {
    let mut zone = zone();
    let node = objects::node("node1", 1, &["10.244.0.0/24"]);
    zone.nodes.insert("node1".into(), objects::with_gateway(node, 1, true, &["192.0.2.1/24"]));
    let port = json!([{"name": "http", "port": 80, "nodePort": 30080}]);
    let mut plain = json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": port});
    zone.services.insert(PodKey::new("shop", "web"), service("web", plain.clone()));
    plain["externalTrafficPolicy"] = json!("Local");
    plain["ports"][0]["nodePort"] = json!(30081);
    plain["clusterIP"] = json!("10.96.0.10");
    zone.services.insert(PodKey::new("shop", "kept"), service("kept", plain));
    for name in ["web", "kept"] {
        let slice = slice(name, name, 8080, &[("10.244.0.3", "node1"), ("172.18.0.1", "node1")]);
        zone.slices.insert(key(&slice), slice);
    }
    zone.templates = true;
    zone.start();
    zone.settle();
    let balancer = |zone: &Zone, name: &str| {
        zone.nb
            .rows("Load_Balancer")
            .into_iter()
            .find(|row| row.str("name") == Some(name))
            .expect("a load balancer")
    };
    let switch = balancer(&zone, "Service_shop/web_TCP_node_switch_template_IPv4");
    let router = balancer(&zone, "Service_shop/web_TCP_node_router_template_IPv4");
    assert_eq!(
        (switch.key("options", "template"), switch.key("options", "address-family")),
        (Some("true"), Some("ipv4"))
    );
    for variable in ["^NODEIP_IPv4_0:30080", "^NODEIP_IPv4_1:30080"] {
        assert_eq!(switch.key("vips", variable), Some("10.244.0.3:8080,172.18.0.1:8080"));
        assert_eq!(router.key("vips", variable), Some("10.244.0.3:8080,169.254.169.2:8080"));
    }
    let variables = &zone.nb.rows("Chassis_Template_Var")[0];
    assert_eq!(variables.key("variables", "NODEIP_IPv4_0"), Some("172.18.0.1"));
    assert_eq!(variables.key("variables", "NODEIP_IPv4_1"), Some("192.0.2.1"));
    let local = balancer(&zone, "Service_shop/kept_TCP_node_local_router_node1");
    assert_eq!(local.key("vips", "192.0.2.1:30081"), Some("10.244.0.3:8080,169.254.169.2:8080"));
    // The same controller once more writes nothing; without the flag all of it goes.
    let ops = zone.nb.ops;
    zone.start();
    zone.settle();
    assert_eq!(zone.nb.ops, ops);
    zone.templates = false;
    zone.start();
    zone.settle();
    assert!(zone.nb.rows("Chassis_Template_Var").is_empty());
    balance::check(&zone);
}

/// Only listed clients may use a load balancer's addresses: a rule on the node's switch says so for its pods, and goes
/// with the list.
#[test]
fn source_ranges_of_load_balancers() {
    let mut zone = zone();
    zone.start();
    let spec = json!({"type": "LoadBalancer", "clusterIP": "10.96.0.9", "loadBalancerSourceRanges": ["192.0.2.0/24"],
        "ports": [{"name": "http", "port": 80}, {"name": "alt", "port": 81}, {"name": "dns", "port": 53, "protocol": "UDP"}]});
    let mut object = service("web", spec);
    object.status = serde_json::from_value(json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}))
        .expect("a status");
    zone.put_service(object.clone());
    zone.settle();
    let rules = |zone: &Zone| -> Vec<(String, bool)> {
        let switch = zone
            .nb
            .rows("Logical_Switch")
            .into_iter()
            .find(|row| row.str("name") == Some("node1"))
            .expect("a switch");
        let listed: Vec<_> = switch.get("acls").expect("a column").uuids().collect();
        let rules = zone.nb.rows("ACL");
        let ours = rules
            .iter()
            .filter(|row| row.key("external_ids", ovn::names::OWNER_TYPE) == Some("ServiceSourceRanges"));
        ours.map(|row| (row.str("match").unwrap_or_default().to_owned(), listed.contains(&row.uuid())))
            .collect()
    };
    let expected = "ip4.dst == {203.0.113.1} && (tcp.dst == {80, 81} || udp.dst == {53}) \
        && ip4.src != {192.0.2.0/24, 10.244.0.2}";
    assert_eq!(rules(&zone), [(expected.to_owned(), true)]);
    zone.check_against_fresh();
    object.spec.load_balancer_source_ranges.clear();
    zone.put_service(object);
    zone.settle();
    assert!(rules(&zone).is_empty());
}
