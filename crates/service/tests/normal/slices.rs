//! Several slices of one service.

use serde_json::json;
use service::Services;

use crate::{HERE, plain, seen, slice};

fn ready(ips: &[&str]) -> serde_json::Value {
    ips.iter().map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}})).collect()
}

/// Sets of slices and what they come to: union, each address and port once, each with its own port, sorted.
#[test]
fn slices_are_united() {
    type Case =
        (&'static str, &'static [(&'static str, u16, &'static [&'static str])], &'static [&'static str]);
    let cases: [Case; 5] = [
        ("none", &[], &[]),
        (
            "one shared, one different",
            &[("a", 80, &["10.0.0.1", "10.0.0.2"]), ("b", 80, &["10.0.0.2", "10.0.0.3"])],
            &["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"],
        ),
        (
            "two numbers of one port",
            &[("a", 8083, &["10.0.0.1"]), ("b", 8087, &["10.0.0.2"])],
            &["10.0.0.1:8083", "10.0.0.2:8087"],
        ),
        (
            "one address with two numbers",
            &[("a", 8087, &["10.0.0.1"]), ("b", 8083, &["10.0.0.1"])],
            &["10.0.0.1:8083", "10.0.0.1:8087"],
        ),
        ("sorted as text", &[("a", 80, &["10.0.0.9", "10.0.0.10"])], &["10.0.0.10:80", "10.0.0.9:80"]),
    ];
    for (case, slices, expected) in cases {
        for reversed in [false, true] {
            let mut table = Services::new();
            let mut objects: Vec<_> =
                slices.iter().map(|(name, port, ips)| slice(name, *port, ready(ips))).collect();
            if reversed {
                objects.reverse();
            }
            for object in &objects {
                assert_eq!(table.apply_slice(object).len(), 1);
            }
            table.apply_service(&plain());
            assert_eq!(seen(&table, HERE).0, expected, "{case}");
        }
    }
}

#[test]
fn an_endpoint_that_moves_between_slices_stays() {
    let mut table = Services::new();
    table.apply_service(&plain());
    table.apply_slice(&slice("a", 80, ready(&["10.0.0.1"])));
    table.apply_slice(&slice("b", 80, ready(&["10.0.0.1"])));
    assert_eq!(seen(&table, HERE).0, ["10.0.0.1:80"]);
    assert_eq!(table.remove_slice("shop", "a"), [kapi::ServiceKey::new("shop", "web")]);
    assert_eq!(seen(&table, HERE).0, ["10.0.0.1:80"]);
    table.remove_slice("shop", "b");
    assert!(seen(&table, HERE).0.is_empty(), "the service stays, without endpoints");
}

/// Of a doubled endpoint the better word counts.
#[test]
fn ready_in_one_slice_is_enough() {
    let mut table = Services::new();
    table.apply_service(&plain());
    table.apply_slice(&slice("a", 80, json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": false}}])));
    table.apply_slice(&slice("b", 80, json!([{"addresses": ["10.0.0.1"], "nodeName": "node1"}])));
    assert_eq!(seen(&table, HERE), (vec!["10.0.0.1:80".to_owned()], vec!["10.0.0.1:80".to_owned()]));
}

#[test]
fn a_slice_that_changes_its_service_concerns_both() {
    let mut table = Services::new();
    table.apply_service(&plain());
    let mut object = slice("a", 80, ready(&["10.0.0.1"]));
    assert_eq!(table.apply_slice(&object).len(), 1);
    assert!(table.apply_slice(&object).is_empty(), "an unchanged slice concerns nobody");
    object.metadata.labels.insert("kubernetes.io/service-name".into(), "other".into());
    let names: Vec<String> = table.apply_slice(&object).iter().map(ToString::to_string).collect();
    assert_eq!(names, ["shop/web", "shop/other"]);
    assert!(seen(&table, HERE).0.is_empty());
}

#[test]
fn what_a_list_does_not_hold_is_gone_but_for_what_cannot_be_read() {
    let mut table = Services::new();
    table.apply_service(&plain());
    table.apply_slice(&slice("a", 80, ready(&["10.0.0.1"])));
    table.apply_slice(&slice("b", 80, ready(&["10.0.0.2"])));
    let unread = ["shop/a".to_owned()].into();
    table.replace_slices(&[], &unread);
    assert_eq!(seen(&table, HERE).0, ["10.0.0.1:80"]);
    table.replace_slices(&[], &Default::default());
    assert!(seen(&table, HERE).0.is_empty());
    table.replace_services(&[], &[kapi::ServiceKey::new("shop", "web")].into());
    assert_eq!(table.services().count(), 1);
    table.replace_services(&[], &Default::default());
    assert_eq!(table.services().count(), 0);
}

#[test]
fn what_cannot_be_used_is_named_and_the_rest_is_used() {
    let mut table = Services::new();
    table.apply_service(&plain());
    let mut object = slice("a", 80, ready(&["10.0.0.1", "fd00::1", "10.0.0.300"]));
    object.ports.push(kapi::EndpointPort { name: "http".into(), port: Some(99_999), ..Default::default() });
    table.apply_slice(&object);
    let mut other = slice("b", 80, ready(&["fd00::2"]));
    other.address_type = "IPv6".into();
    table.apply_slice(&other);
    let mut names = slice("c", 80, ready(&["example.com"]));
    names.address_type = "FQDN".into();
    assert!(table.apply_slice(&names).is_empty(), "names are for nobody");
    let view = table.view(&kapi::ServiceKey::new("shop", "web"), HERE).expect("the service");
    let problems = view.problems.join("\n");
    for part in ["fd00::1", "10.0.0.300", "99999", "IPv6 endpoints"] {
        assert!(problems.contains(part), "{part} is missing: {problems}");
    }
    assert_eq!(view.ports[0].cluster.iter().filter(|backend| backend.ip.is_ipv4()).count(), 1);
}
