//! Which endpoints count.

use serde_json::{Value, json};
use service::{Place, Services};

use crate::{HERE, plain, seen, service, slice};

/// Every combination of three endpoints' conditions and places, against the rule of KEP-1669 written down once more:
/// choose the set by policy, then the ready ones of it, else those that serve while they go away.
#[test]
fn readiness_is_decided_after_the_policy() {
    let conditions: Vec<(Value, bool, bool)> = [None, Some(false), Some(true)]
        .into_iter()
        .flat_map(|ready| [None, Some(false), Some(true)].map(|serving| (ready, serving)))
        .flat_map(|(ready, serving)| [None, Some(false), Some(true)].map(|ending| (ready, serving, ending)))
        .map(|(ready, serving, terminating)| {
            let is_ready = ready != Some(false);
            let is_draining = !is_ready && serving == Some(true) && terminating == Some(true);
            (json!({"ready": ready, "serving": serving, "terminating": terminating}), is_ready, is_draining)
        })
        .collect();
    let mut cases = 0;
    for publish in [false, true] {
        let mut object = plain();
        object.spec.publish_not_ready_addresses = publish;
        for first in &conditions {
            for second in &conditions {
                for nodes in [["node1", "node1"], ["node1", "node2"], ["node2", "node2"]] {
                    let all = [(first, nodes[0], "10.244.0.3:8080"), (second, nodes[1], "10.244.0.4:8080")];
                    let expect = |set: &[&(&(Value, bool, bool), &str, &str)]| -> Vec<String> {
                        let ready: Vec<String> =
                            set.iter().filter(|one| one.0.1 || publish).map(|one| one.2.to_owned()).collect();
                        if !ready.is_empty() {
                            return ready;
                        }
                        set.iter().filter(|one| one.0.2).map(|one| one.2.to_owned()).collect()
                    };
                    let everything: Vec<_> = all.iter().collect();
                    let local: Vec<_> = all.iter().filter(|one| one.1 == "node1").collect();
                    let mut table = Services::new();
                    table.apply_service(&object);
                    table.apply_slice(&slice(
                        "a",
                        8080,
                        json!([
                        {"addresses": ["10.244.0.3"], "nodeName": nodes[0], "conditions": first.0},
                        {"addresses": ["10.244.0.4"], "nodeName": nodes[1], "conditions": second.0}]),
                    ));
                    let case = format!("{} {} {nodes:?} publish={publish}", first.0, second.0);
                    assert_eq!(seen(&table, HERE), (expect(&everything), expect(&local)), "{case}");
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 2 * 27 * 27 * 3);
}

/// A draining endpoint on this node serves policy `Local` although others are ready elsewhere.
#[test]
fn a_node_whose_endpoints_all_go_away_keeps_serving() {
    let mut table = Services::new();
    table.apply_service(&plain());
    let draining = json!({"ready": false, "serving": true, "terminating": true});
    table.apply_slice(&slice(
        "a",
        8080,
        json!([
        {"addresses": ["10.244.0.3"], "nodeName": "node1", "conditions": draining},
        {"addresses": ["10.244.1.3"], "nodeName": "node2", "conditions": {"ready": true}}]),
    ));
    assert_eq!(seen(&table, HERE), (vec!["10.244.1.3:8080".into()], vec!["10.244.0.3:8080".into()]));
}

fn hinted(hints: [Value; 3]) -> Services {
    let mut table = Services::new();
    table.apply_service(&service(json!({"clusterIP": "10.96.0.9", "trafficDistribution": "PreferSameZone",
        "ports": [{"name": "http", "port": 80}]})));
    let [one, two, three] = hints;
    table.apply_slice(&slice(
        "a",
        8080,
        json!([
        {"addresses": ["10.244.0.3"], "nodeName": "node1", "hints": one},
        {"addresses": ["10.244.1.3"], "nodeName": "node2", "hints": two},
        {"addresses": ["10.244.2.3"], "nodeName": "node3", "hints": three}]),
    ));
    table
}

#[test]
fn hints_narrow_only_when_complete_and_never_to_nothing() {
    let zone = |name: &str| json!({"forZones": [{"name": name}]});
    let node = |name: &str| json!({"forNodes": [{"name": name}], "forZones": [{"name": "east"}]});
    let all = ["10.244.0.3:8080", "10.244.1.3:8080", "10.244.2.3:8080"];
    let east = Place { node: "node1", zone: Some("east") };
    let cases: [(&str, [Value; 3], Place<'_>, &[&str]); 7] = [
        ("same zone", [zone("east"), zone("east"), zone("west")], east, &all[..2]),
        ("a hint is missing", [zone("east"), json!(null), zone("west")], east, &all),
        ("no hint for this zone", [zone("west"), zone("west"), zone("west")], east, &all),
        ("zone unknown", [zone("east"), zone("east"), zone("west")], Place { zone: None, ..east }, &all),
        ("same node", [node("node1"), node("node2"), node("node3")], east, &all[..1]),
        (
            "no endpoint for this node, then the zone",
            [node("node2"), node("node2"), zone("west")],
            east,
            &all[..2],
        ),
        (
            "two zones",
            [json!({"forZones": [{"name": "west"}, {"name": "east"}]}), zone("west"), zone("west")],
            east,
            &all[..1],
        ),
    ];
    for (case, hints, place, expected) in cases {
        let (cluster, local) = seen(&hinted(hints), place);
        assert_eq!(cluster, expected, "{case}");
        assert_eq!(local, [all[0]], "{case}: policy Local knows no hints");
    }
}

/// Endpoints that are not ready neither need hints nor count as the ones for this zone.
#[test]
fn hints_of_endpoints_that_are_not_ready_do_not_count() {
    let mut table = Services::new();
    table.apply_service(&plain());
    let hint = json!({"forZones": [{"name": "east"}]});
    let other = json!({"forZones": [{"name": "west"}]});
    table.apply_slice(&slice(
        "a",
        8080,
        json!([
        {"addresses": ["10.244.0.3"], "conditions": {"ready": false}, "hints": hint},
        {"addresses": ["10.244.0.4"], "hints": other},
        {"addresses": ["10.244.0.5"], "hints": other}]),
    ));
    assert_eq!(seen(&table, HERE).0, ["10.244.0.4:8080", "10.244.0.5:8080"]);
}
