//! Bug reports of users of OVN-Kubernetes and Kube-OVN about pods and their addresses, each with its whole kind.

mod common;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use common::objects;
use common::world::{Fate, Zone, text};
use compile::Db;
use controller::{Change, Input};
use kapi::annotations::POD_NETWORKS;
use kapi::{PodKey, PodPhase};
use ovsdb::{Datum, Op, Uuid};

fn zone_with(subnets: &[&str], dual: bool) -> Zone {
    let mut zone = Zone::new("node1", dual);
    zone.nodes.insert("node1".into(), objects::node("node1", 1, subnets));
    zone.namespaces.insert("default".into(), objects::namespace("default", &[]));
    zone
}

fn started(subnets: &[&str], dual: bool) -> Zone {
    let mut zone = zone_with(subnets, dual);
    zone.start();
    zone.settle();
    zone
}

fn key(name: &str) -> PodKey {
    PodKey::new("default", name)
}

fn annotation(zone: &Zone, name: &str) -> Option<String> {
    zone.pods.get(&key(name)).and_then(|pod| pod.metadata.annotation(POD_NETWORKS)).map(str::to_owned)
}

fn ips(zone: &Zone, name: &str) -> Vec<IpAddr> {
    let network = zone.pods[&key(name)].metadata.default_pod_network().expect("a readable annotation");
    network.iter().flat_map(|network| network.addresses()).collect()
}

/// An address was given to the next pod while the port of the last one still had it.
#[test]
fn an_address_is_not_given_away_before_its_port_is_gone() {
    let mut zone = started(&["10.244.0.0/29"], false);
    zone.batch = 1;
    for round in 0..200u32 {
        let name = format!("p{round}");
        zone.put_pod(objects::pod(&key(&name), &format!("uid-{round}"), "node1"));
        if round >= 3 {
            zone.remove_pod(&key(&format!("p{}", round - 3)));
        }
        // Replies to the deletions stay out for a while: every source but the database is heard.
        for source in ["pods", "patches", "pods"] {
            zone.deliver(source);
        }
        if round % 3 == 0 {
            zone.transact(Fate::Made);
        }
        if round % 5 == 0 {
            zone.deliver("nb");
        }
        zone.check_snapshot();
    }
    zone.settle();
    zone.check_rest();
    let live: Vec<&PodKey> = zone.pods.keys().collect();
    assert!(live.iter().all(|pod| annotation(&zone, &pod.name).is_some()), "{live:?}");
}

/// The first transaction failed after the annotation was written, and an older state of the pod arrived late: the
/// annotation and the port ended up with different addresses and one leaked.
#[test]
fn annotation_and_port_agree_after_a_failed_transaction_and_a_stale_event() {
    for fate in [Fate::Refused, Fate::LostBefore, Fate::LostAfter] {
        let mut zone = started(&["10.244.0.0/24"], false);
        let pod = objects::pod(&key("a"), "uid-a", "node1");
        zone.put_pod(pod.clone());
        zone.deliver("pods");
        zone.patch(Fate::Made);
        zone.transact(fate);
        zone.send("pods", Input::Pods(Change::Applied(pod)));
        zone.settle();
        // The stale state is followed by the current one, as a watch always does in the end.
        let current = zone.pods[&key("a")].clone();
        zone.send("pods", Input::Pods(Change::Applied(current)));
        zone.settle();
        zone.check_rest();
        assert_eq!(zone.core.ledger().held().count(), 1, "{fate:?}");
    }
}

fn seed_port(zone: &mut Zone, switch: &str, name: &str, namespace: &str, address: &str, uid: &str) {
    let switch_row = zone.nb.rows("Logical_Switch").into_iter().find(|row| row.str("name") == Some(switch));
    let switch_uuid = switch_row.map(|row| row.uuid()).unwrap_or_else(|| {
        let uuid = Uuid::v5(&Uuid::NIL, switch.as_bytes());
        let insert = Op::insert("Logical_Switch", uuid, vec![("name".into(), Datum::from(switch))]);
        zone.nb.transact(&[insert]).expect("a switch");
        uuid
    });
    let uuid = Uuid::v5(&Uuid::NIL, name.as_bytes());
    let row = vec![
        ("name".into(), Datum::from(name)),
        ("addresses".into(), Datum::from(address)),
        ("port_security".into(), Datum::from(address)),
        ("options".into(), Datum::map([("iface-id-ver", uid)])),
        ("external_ids".into(), Datum::map([("pod", "true"), ("namespace", namespace)])),
    ];
    let list = vec![ovsdb::Mutation {
        column: "ports".into(),
        mutator: ovsdb::Mutator::Insert,
        value: Datum::from(uuid),
    }];
    zone.nb
        .transact(&[
            Op::insert("Logical_Switch_Port", uuid, row),
            Op::mutate("Logical_Switch", switch_uuid, list),
        ])
        .expect("a port");
}

/// Pods deleted, or moved, while the controller was down left ports on old switches and shared addresses.
#[test]
fn leftovers_of_a_time_without_controller_are_gone_before_addresses_are_given_out() {
    let mut zone = zone_with(&["10.244.0.0/29"], false);
    seed_port(&mut zone, "node1", "default_orphan", "default", "0a:58:0a:f4:00:03 10.244.0.3", "uid-orphan");
    seed_port(&mut zone, "old-node", "default_moved", "default", "0a:58:0a:f4:00:04 10.244.0.4", "uid-old");
    let moved = objects::annotated(
        objects::pod(&key("moved"), "uid-moved", "node1"),
        r#"{"default":{"ip_addresses":["10.244.0.4/29"],"mac_address":"0a:58:0a:f4:00:04","gateway_ips":["10.244.0.1"]}}"#,
    );
    zone.pods.insert(key("moved"), moved);
    for name in ["x", "y", "z"] {
        zone.pods.insert(key(name), objects::pod(&key(name), &format!("uid-{name}"), "node1"));
    }
    zone.batch = 1;
    zone.start();
    zone.settle();
    zone.check_rest();
    assert_eq!(ips(&zone, "moved"), ["10.244.0.4".parse::<IpAddr>().expect("an address")]);
    let all: BTreeSet<IpAddr> = ["moved", "x", "y", "z"].iter().flat_map(|name| ips(&zone, name)).collect();
    assert_eq!(all.len(), 4, "an address was given out twice");
}

/// The same where the node's annotations, its subnet among them, arrive only after everything else: a node that was
/// registered anew.
#[test]
fn leftovers_are_gone_too_when_the_node_gets_its_subnet_late() {
    let mut zone = zone_with(&["10.244.2.0/24"], false);
    seed_port(&mut zone, "node1", "default_orphan", "default", "0a:58:0a:f4:01:03 10.244.1.3", "uid-orphan");
    let complete = zone.nodes["node1"].clone();
    let mut bare = complete.clone();
    bare.metadata.annotations.clear();
    zone.nodes.insert("node1".into(), bare);
    zone.start();
    zone.settle();
    zone.put_node(complete);
    zone.settle();
    zone.check_rest();
    assert!(zone.nb.rows("Logical_Switch_Port").iter().all(|row| row.str("name") != Some("default_orphan")));
}

/// A finished pod of a node that is gone kept the controller from starting.
#[test]
fn one_bad_object_does_not_keep_others_from_being_served_at_start() {
    let mut zone = zone_with(&["10.244.0.0/24"], false);
    let mut done = objects::pod(&key("done"), "uid-done", "node9");
    done.status.phase = PodPhase::Succeeded;
    let broken = objects::annotated(objects::pod(&key("broken"), "uid-broken", "node1"), "not json");
    let reserved = objects::annotated(
        objects::pod(&key("reserved"), "uid-reserved", "node1"),
        r#"{"default":{"ip_addresses":["10.244.0.1/24"],"mac_address":"0a:58:0a:f4:00:01"}}"#,
    );
    for pod in [done.clone(), broken, reserved, objects::pod(&key("good"), "uid-good", "node1")] {
        zone.pods.insert(pod.pod_key(), pod);
    }
    zone.nodes.insert("odd".into(), objects::node("odd", 7, &["10.99.0.0/24"]));
    zone.start();
    // Even if the watch hands out pods of other nodes.
    zone.send("pods", Input::Pods(Change::Applied(done)));
    zone.settle();
    assert!(annotation(&zone, "good").is_some());
    let warned: Vec<&str> = zone.warnings.iter().map(|(_, message)| message.as_str()).collect();
    assert!(
        warned.iter().any(|text| text.contains("default/broken") && text.contains("not a JSON object")),
        "{warned:?}"
    );
    assert!(warned.iter().any(|text| text.contains("10.244.0.1") && text.contains("reserved")), "{warned:?}");
}

/// A pod that found no address was forgotten after some retries.
#[test]
fn a_pod_without_address_waits_as_long_as_it_takes_and_costs_nothing() {
    let mut zone = started(&["10.244.0.0/29"], false);
    for name in ["a", "b", "c", "d", "late"] {
        zone.put_pod(objects::pod(&key(name), &format!("uid-{name}"), "node1"));
        zone.settle();
    }
    assert!(annotation(&zone, "late").is_none());
    let (_, message) =
        zone.warnings.iter().find(|(pod, _)| *pod == key("late")).expect("a warning for the pod");
    assert!(message.contains("no free IPv4 address in node subnet 10.244.0.0/29"), "{message}");
    let (ops, warnings) = (zone.nb.ops, zone.warnings.len());
    for _ in 0..120 {
        zone.now += Duration::from_secs(30);
        zone.step(Input::Tick);
        zone.put_node(objects::node("node2", 2, &["10.244.2.0/24"]));
        zone.settle();
    }
    zone.remove_node("node2");
    zone.settle();
    assert_eq!(zone.warnings.len(), warnings, "the same cause was told again");
    assert!(zone.nb.ops - ops < 20, "{} operations while nothing could be done", zone.nb.ops - ops);
    zone.remove_pod(&key("b"));
    zone.settle();
    assert!(
        annotation(&zone, "late").is_some(),
        "the address that became free was not given to the pod that waited"
    );
    zone.check_rest();
}

/// Pods that came before their node had a subnet were never looked at again.
#[test]
fn pods_that_came_before_the_node_was_ready_are_served_when_it_is() {
    let mut zone = Zone::new("node1", false);
    zone.namespaces.insert("default".into(), objects::namespace("default", &[]));
    zone.pods.insert(key("early"), objects::pod(&key("early"), "uid-early", "node1"));
    zone.start();
    zone.settle();
    assert!(annotation(&zone, "early").is_none());
    assert_eq!(
        zone.nb
            .rows("Logical_Switch_Port")
            .iter()
            .filter(|row| row.key("external_ids", "pod").is_some())
            .count(),
        0
    );
    let mut bare = objects::node("node1", 1, &["10.244.0.0/24"]);
    bare.metadata.annotations.remove("k8s.ovn.org/node-subnets");
    for _ in 0..50 {
        zone.put_node(bare.clone());
    }
    zone.settle();
    assert!(annotation(&zone, "early").is_none());
    zone.put_node(objects::node("node1", 1, &["10.244.0.0/24"]));
    zone.settle();
    assert!(annotation(&zone, "early").is_some());
    zone.check_rest();
}

/// Each failed attempt to give a dual-stack pod its second address cost one of the first family.
#[test]
fn half_an_allocation_is_none() {
    // Four IPv6 addresses besides router and management port.
    let mut zone = started(&["10.244.0.0/24", "fd00:10:244:1::/125"], true);
    for number in 0..6 {
        let name = format!("p{number}");
        zone.put_pod(objects::pod(&key(&name), &format!("uid-{number}"), "node1"));
    }
    zone.settle();
    let served = zone.pods.values().filter(|pod| pod.metadata.annotation(POD_NETWORKS).is_some()).count();
    assert_eq!(served, 5);
    let used = zone.core.ledger().used(net::Family::V4);
    let waiting = zone
        .pods
        .values()
        .find(|pod| pod.metadata.annotation(POD_NETWORKS).is_none())
        .cloned()
        .expect("one waits");
    for _ in 0..500 {
        zone.send("pods", Input::Pods(Change::Applied(waiting.clone())));
        zone.settle();
    }
    assert_eq!(zone.core.ledger().used(net::Family::V4), used);
    let all: Vec<PodKey> = zone.pods.keys().cloned().collect();
    for pod in all {
        zone.remove_pod(&pod);
    }
    zone.settle();
    assert_eq!(zone.core.ledger().held().count(), 0);
    zone.check_rest();
}

/// Bad or conflicting subnets were accepted: two nodes shared one.
#[test]
fn a_node_with_a_bad_subnet_gets_nothing_and_the_others_keep_theirs() {
    let mut zone = started(&["10.244.0.0/24"], false);
    zone.put_node(objects::node("node2", 2, &["10.244.2.0/24"]));
    zone.settle();
    let before = text(&zone.nb);
    let bad = [
        r#"{"default":["10.99.0.0/24"]}"#,
        r#"{"default":["10.244.2.0/24"]}"#,
        r#"{"default":["10.244.0.128/25"]}"#,
        r#"{"default":"#,
        r#"{"default":["fd00:1::/64"]}"#,
        r#"{"default":[]}"#,
    ];
    for value in bad {
        let mut node = objects::node("node3", 3, &["10.244.3.0/24"]);
        node.metadata.creation_timestamp = Some("2026-02-01T00:00:00Z".into());
        node.metadata.annotations.insert("k8s.ovn.org/node-subnets".into(), value.into());
        zone.put_node(node);
        zone.settle();
        assert_eq!(text(&zone.nb), before, "{value}");
    }
    zone.put_node(objects::node("node3", 3, &["10.244.3.0/24"]));
    zone.settle();
    assert!(
        text(&zone.nb).keys().any(|name| name.contains("10.244.3.0/24")),
        "it does not recover when the value is right"
    );
}

/// The first pod of a node got the management port's address.
#[test]
fn reserved_addresses_are_never_handed_out() {
    let mut zone = started(&["10.244.0.0/28"], false);
    for number in 0..20 {
        zone.put_pod(objects::pod(&key(&format!("p{number}")), &format!("uid-{number}"), "node1"));
    }
    zone.settle();
    let given: BTreeSet<IpAddr> = zone.pods.keys().flat_map(|pod| ips(&zone, &pod.name)).collect();
    let expected: BTreeSet<IpAddr> = (3..15).map(|last| IpAddr::from([10, 244, 0, last])).collect();
    assert_eq!(given, expected);
}

/// Readers broke on one or the other form of the annotation.
#[test]
fn annotations_of_every_age_give_the_same_port() {
    let forms = [
        r#"{"default":{"ip_address":"10.244.0.9/24","mac_address":"0a:58:0a:f4:00:09","gateway_ip":"10.244.0.1"}}"#,
        r#"{"default":{"ip_addresses":["10.244.0.9/24"],"mac_address":"0a:58:0a:f4:00:09","gateway_ips":["10.244.0.1"],"new":1}}"#,
        r#"{"default":{"ip_addresses":["10.244.0.9/24"],"mac_address":"0a:58:0a:f4:00:09","ip_address":"10.244.0.9/24"},"x/y":{}}"#,
    ];
    for form in forms {
        let mut zone = zone_with(&["10.244.0.0/24"], false);
        zone.pods.insert(key("a"), objects::annotated(objects::pod(&key("a"), "uid-a", "node1"), form));
        zone.start();
        zone.settle();
        zone.check_rest();
        assert_eq!(annotation(&zone, "a").as_deref(), Some(form), "the annotation was rewritten");
    }
}

/// A cluster that became dual stack: old pods keep their one address, new ones get two.
#[test]
fn a_cluster_that_becomes_dual_stack_keeps_old_pods_as_they_are() {
    let mut zone = zone_with(&["10.244.0.0/24", "fd00:10:244:1::/64"], true);
    let old = r#"{"default":{"ip_addresses":["10.244.0.3/24"],"mac_address":"0a:58:0a:f4:00:03","gateway_ips":["10.244.0.1"],"ip_address":"10.244.0.3/24","gateway_ip":"10.244.0.1","role":"primary"}}"#;
    zone.pods.insert(key("old"), objects::annotated(objects::pod(&key("old"), "uid-old", "node1"), old));
    zone.pods.insert(key("new"), objects::pod(&key("new"), "uid-new", "node1"));
    zone.start();
    zone.settle();
    assert_eq!(annotation(&zone, "old").as_deref(), Some(old));
    assert_eq!(ips(&zone, "new").len(), 2);
    zone.check_rest();
}

/// Unscheduled pods made noise.
#[test]
fn unscheduled_and_foreign_pods_are_no_matter() {
    let mut zone = started(&["10.244.0.0/24"], false);
    let ops = zone.nb.ops;
    for node in ["", "node2"] {
        let pod = objects::pod(&key("elsewhere"), "uid-e", node);
        zone.send("pods", Input::Pods(Change::Applied(pod)));
        zone.send("pods", Input::Pods(Change::Deleted(key("elsewhere"))));
        zone.settle();
    }
    assert_eq!(zone.nb.ops, ops);
    assert!(zone.warnings.is_empty() && zone.refusals.is_empty() && zone.patches.is_empty());
}

/// The watch on the database was lost, or the database started over: the controller stayed blind.
#[test]
fn an_emptied_database_is_filled_again_from_annotations() {
    let mut zone = started(&["10.244.0.0/24"], false);
    zone.put_node(objects::node("node2", 2, &["10.244.2.0/24"]));
    for name in ["a", "b"] {
        zone.put_pod(objects::pod(&key(name), &format!("uid-{name}"), "node1"));
    }
    zone.settle();
    let (nb, sb) = (text(&zone.nb), text(&zone.sb));
    let annotations = (annotation(&zone, "a"), annotation(&zone, "b"));
    zone.nb.clear();
    zone.sb.clear();
    let (nb_dump, sb_dump) = (zone.nb.dump(), zone.sb.dump());
    for (source, db, dump) in [("nb", Db::Nb, nb_dump), ("sb", Db::Sb, sb_dump)] {
        zone.send(source, Input::Lost(db));
        zone.send(source, Input::Loaded(db, dump));
    }
    zone.settle();
    assert_eq!((text(&zone.nb), text(&zone.sb)), (nb, sb));
    assert_eq!((annotation(&zone, "a"), annotation(&zone, "b")), annotations);
}

/// Rows of a node that is gone caught the traffic of a new one with its addresses.
#[test]
fn rows_of_nodes_deleted_while_the_controller_was_down_are_removed() {
    let mut zone = started(&["10.244.0.0/24"], false);
    zone.put_node(objects::node("node2", 2, &["10.244.2.0/24"]));
    zone.settle();
    zone.nodes.remove("node2");
    let heir = objects::node("heir", 2, &["10.244.2.0/24"]);
    zone.nodes.insert("heir".into(), heir);
    zone.start();
    zone.settle();
    let rows = text(&zone.nb);
    assert!(
        !rows.iter().any(|(name, columns)| name.contains("node2") || columns.contains("node2")),
        "{rows:#?}"
    );
    assert!(rows.keys().any(|name| name.ends_with("tstor-heir")));
    let hosts: Vec<String> =
        zone.sb.rows("Chassis").iter().filter_map(|row| row.str("hostname").map(str::to_owned)).collect();
    assert_eq!(hosts, ["heir"]);
}

/// Rows, ports and groups that are not ours survive everything.
#[test]
fn foreign_rows_are_never_touched() {
    let mut zone = zone_with(&["10.244.0.0/24"], false);
    let switch = Uuid::v5(&Uuid::NIL, b"s");
    let (port, group, router) =
        (Uuid::v5(&Uuid::NIL, b"p"), Uuid::v5(&Uuid::NIL, b"g"), Uuid::v5(&Uuid::NIL, b"r"));
    zone.nb
        .transact(&[
            Op::insert("Logical_Switch_Port", port, vec![("name".into(), Datum::from("foreign-port"))]),
            Op::insert(
                "Logical_Switch",
                switch,
                vec![
                    ("name".into(), Datum::from("foreign-switch")),
                    ("other_config".into(), Datum::map([("subnet", "192.168.0.0/24")])),
                    ("ports".into(), Datum::from(port)),
                ],
            ),
            Op::insert("Logical_Router", router, vec![("name".into(), Datum::from("foreign-router"))]),
            Op::insert(
                "Port_Group",
                group,
                vec![("name".into(), Datum::from("foreign_group")), ("ports".into(), Datum::from(port))],
            ),
        ])
        .expect("foreign rows");
    let foreign = |zone: &Zone| -> Vec<ovsdb::Row> {
        ["Logical_Switch", "Logical_Switch_Port", "Logical_Router", "Port_Group"]
            .iter()
            .flat_map(|table| zone.nb.rows(table))
            .filter(|row| row.str("name").is_some_and(|name| name.starts_with("foreign")))
            .collect()
    };
    let before = format!("{:?}", foreign(&zone));
    zone.start();
    zone.put_pod(objects::pod(&key("a"), "uid-a", "node1"));
    zone.settle();
    // A pod's port may be in somebody else's group as well.
    let own = zone
        .nb
        .rows("Logical_Switch_Port")
        .into_iter()
        .find(|row| row.str("name") == Some("default_a"))
        .expect("a port");
    let list = ovsdb::Mutation {
        column: "ports".into(),
        mutator: ovsdb::Mutator::Insert,
        value: Datum::from(own.uuid()),
    };
    let update = zone.nb.transact(&[Op::mutate("Port_Group", group, vec![list])]).expect("membership");
    zone.send("nb", Input::Updated(Db::Nb, update));
    zone.start();
    zone.settle();
    let members = zone.nb.rows("Port_Group").into_iter().find(|row| row.uuid() == group).expect("the group");
    assert_eq!(members.get("ports").map_or(0, Datum::len), 2);
    zone.remove_pod(&key("a"));
    zone.settle();
    assert_eq!(format!("{:?}", foreign(&zone)), before);
}
