//! One test a rule.

use std::collections::BTreeSet;

use kapi::annotations::{LEGACY_ROUTER_LRP_ADDRESSES, NODE_ID, NODE_SUBNETS, TRANSIT_ADDRESSES};
use kapi::{NodeAddress, NodeCondition};

use super::super::fixtures::{annotated, dual_plan, node, small_plan, v4_plan};
use super::super::*;

const NOW: Duration = Duration::ZERO;

/// A core that has seen these nodes, and what it wanted.
fn listed(plan: NetworkPlan, nodes: &[Node]) -> (Core, Vec<Output>) {
    let mut core = Core::new(plan);
    let out = core.step(Input::Nodes { nodes: nodes.to_vec(), unreadable: Vec::new() }, NOW);
    (core, out)
}

fn patches(out: &[Output]) -> Vec<&NodePatch> {
    out.iter()
        .filter_map(|output| if let Output::Patch(patch) = output { Some(patch) } else { None })
        .collect()
}

fn warnings(out: &[Output]) -> Vec<(&str, &str)> {
    out.iter()
        .filter_map(|output| match output {
            Output::Warn { key, message, reason: REASON } => Some((key.name.as_str(), message.as_str())),
            _ => None,
        })
        .collect()
}

/// The value a patch sets for one key.
fn value<'a>(patch: &'a NodePatch, key: &str) -> Option<&'a str> {
    patch.annotations.iter().find(|(name, _)| *name == key).and_then(|(_, value)| value.as_deref())
}

fn key(node: &Node) -> ObjectKey {
    node.key()
}

#[test]
fn the_reference_scenarios_are_reproduced() {
    let nodes = [node("node1", 1, 1), node("node2", 2, 2)];
    let expect = |plan: NetworkPlan, expected: [[&str; 3]; 2]| {
        let (_, out) = listed(plan, &nodes);
        let patches = patches(&out);
        assert_eq!(patches.len(), 2);
        for (patch, expected) in patches.iter().zip(expected) {
            let got =
                [NODE_SUBNETS, NODE_ID, TRANSIT_ADDRESSES].map(|key| value(patch, key).unwrap_or("unset"));
            assert_eq!(got, expected);
            assert!(!patch.clear_network_unavailable);
        }
    };
    expect(
        v4_plan(),
        [
            [r#"{"default":["10.244.0.0/24"]}"#, "2", r#"{"ipv4":"100.88.0.2/16"}"#],
            [r#"{"default":["10.244.1.0/24"]}"#, "3", r#"{"ipv4":"100.88.0.3/16"}"#],
        ],
    );
    expect(
        dual_plan(),
        [
            [
                r#"{"default":["10.244.0.0/24","fd00:10:244:1::/64"]}"#,
                "2",
                r#"{"ipv4":"100.88.0.2/16","ipv6":"fd97::2/64"}"#,
            ],
            [
                r#"{"default":["10.244.1.0/24","fd00:10:244:2::/64"]}"#,
                "3",
                r#"{"ipv4":"100.88.0.3/16","ipv6":"fd97::3/64"}"#,
            ],
        ],
    );
}

#[test]
fn nothing_is_handed_out_before_all_nodes_are_known() {
    let mut core = Core::new(v4_plan());
    assert!(core.step(Input::Applied(node("new", 2, 2)), NOW).is_empty());
    let old = annotated(node("old", 1, 1), r#"{"default":["10.244.0.0/24"]}"#, "2");
    let out = core.step(Input::Nodes { nodes: vec![node("new", 2, 2), old], unreadable: vec![] }, NOW);
    let new = patches(&out).into_iter().find(|patch| patch.key.name == "new").unwrap();
    assert_eq!(value(new, NODE_SUBNETS), Some(r#"{"default":["10.244.1.0/24"]}"#));
    assert_eq!(value(new, NODE_ID), Some("3"));
}

#[test]
fn a_complete_node_is_not_written() {
    let mut old = annotated(node("a", 1, 1), r#"{"default":"10.244.9.0/24"}"#, "77");
    old.metadata.annotations.insert(TRANSIT_ADDRESSES.into(), r#"{"ipv4":"100.88.0.77/16"}"#.into());
    let (mut core, out) = listed(v4_plan(), std::slice::from_ref(&old));
    assert!(patches(&out).is_empty() && warnings(&out).is_empty(), "{out:?}");
    // nor for changes that mean nothing here
    old.metadata.resource_version = "9".into();
    old.metadata.labels.insert("zone".into(), "x".into());
    assert!(core.step(Input::Applied(old), NOW).is_empty());
}

#[test]
fn bad_annotations_are_refused_with_cause_and_cure_and_the_others_served() {
    let other = || annotated(node("other", 1, 1), r#"{"default":["10.244.5.0/24"]}"#, "2");
    let cases = [
        (r#"{"default":["10.99.0.0/24"]}"#, "", "not inside the cluster CIDRs (10.244.0.0/16"),
        (r#"{"default":["10.244.5.0/24"]}"#, "", "belongs to node other"),
        (r#"{"default":["10.244.4.0/23"]}"#, "", "belongs to node other"),
        (r#"{"default":["#, "", "not a JSON object"),
        (r#"{"default":["10.244.7.0/24","10.244.8.0/24"]}"#, "", "second subnet of its family"),
        (r#"{"default":["10.244.7.0/31"]}"#, "", "too small for a node"),
        (r#"{"default":["fd00:10:244:7::/64"]}"#, "", "is IPv6 but the cluster has no IPv6 subnets"),
        ("", "2", "node id 2 belongs to node other"),
        ("", "1", "outside 2…5000"),
        ("", "5001", "outside 2…5000"),
        ("", "two", "not a decimal number"),
    ];
    for (subnets, id, words) in cases {
        let bad = annotated(node("bad", 2, 2), subnets, id);
        let (mut core, out) = listed(v4_plan(), &[bad, other(), node("third", 3, 3)]);
        let warned = warnings(&out);
        assert_eq!(warned.len(), 1, "{subnets} {id}: {out:?}");
        assert!(warned[0].0 == "bad" && warned[0].1.contains(words), "{}", warned[0].1);
        assert!(
            warned[0].1.contains("remove") || warned[0].1.contains("use /"),
            "no cure in: {}",
            warned[0].1
        );
        let written: Vec<&str> = patches(&out).iter().map(|patch| patch.key.name.as_str()).collect();
        assert_eq!(written, ["other", "third"], "the bad node is left alone, the others are served");
        // the same state again is no news
        assert!(core.step(Input::Applied(annotated(node("bad", 2, 3), subnets, id)), NOW).is_empty());
        // fixed by removing the annotation
        let out = core.step(Input::Applied(node("bad", 2, 4)), NOW);
        assert_eq!(patches(&out).len(), 1, "{subnets} {id}");
        assert_eq!(core.problem("bad"), None);
    }
}

#[test]
fn the_older_node_keeps_a_disputed_value_and_the_younger_gets_it_when_the_older_goes() {
    let subnets = r#"{"default":["10.244.5.0/24"]}"#;
    let (young, old) = (annotated(node("a", 9, 1), subnets, "8"), annotated(node("b", 1, 2), subnets, "8"));
    let (mut core, out) = listed(v4_plan(), &[young, old.clone()]);
    let warned = warnings(&out);
    assert_eq!(warned.len(), 1);
    assert!(warned[0].0 == "a" && warned[0].1.contains("node b"), "{warned:?}");
    assert!(warned[0].1.contains("10.244.5.0/24") && warned[0].1.contains("node id 8"), "{warned:?}");
    let out = core.step(Input::Deleted(key(&old)), NOW);
    assert_eq!(core.problem("a"), None);
    assert_eq!(
        patches(&out)[0].annotations,
        [(TRANSIT_ADDRESSES, Some(r#"{"ipv4":"100.88.0.8/16"}"#.into()))]
    );
}

#[test]
fn an_edit_cannot_take_what_another_node_holds() {
    let a = annotated(node("a", 5, 1), r#"{"default":["10.244.5.0/24"]}"#, "2");
    let b = annotated(node("b", 1, 2), r#"{"default":["10.244.6.0/24"]}"#, "3");
    let (mut core, _) = listed(v4_plan(), &[a, b]);
    let edited = annotated(node("b", 1, 3), r#"{"default":["10.244.5.0/24"]}"#, "3");
    let out = core.step(Input::Applied(edited), NOW);
    assert_eq!(warnings(&out)[0].0, "b");
    assert_eq!(core.problem("a"), None);
    // its former subnet stays reserved: pods may still use it
    let out =
        core.step(Input::Applied(annotated(node("c", 9, 4), r#"{"default":["10.244.6.0/24"]}"#, "")), NOW);
    assert!(warnings(&out)[0].1.contains("belongs to node b"), "{out:?}");
    // and a good edit frees it
    let out =
        core.step(Input::Applied(annotated(node("b", 1, 5), r#"{"default":["10.244.7.0/24"]}"#, "3")), NOW);
    assert!(core.problem("b").is_none() && core.problem("c").is_none(), "{out:?}");
}

#[test]
fn a_single_stack_node_gets_the_missing_family_and_keeps_the_old_one() {
    for (old, expected) in [
        (r#"{"default":["10.244.9.0/24"]}"#, r#"{"default":["10.244.9.0/24","fd00:10:244:1::/64"]}"#),
        (r#"{"default":"fd00:10:244:9::/64"}"#, r#"{"default":["10.244.0.0/24","fd00:10:244:9::/64"]}"#),
    ] {
        let (_, out) = listed(dual_plan(), &[annotated(node("a", 1, 1), old, "2")]);
        assert_eq!(value(patches(&out)[0], NODE_SUBNETS), Some(expected));
        assert_eq!(value(patches(&out)[0], NODE_ID), None, "the id is there already");
    }
    // back to one family: the other one goes
    let both = r#"{"blue":["10.60.0.0/24"],"default":["10.244.9.0/24","fd00:10:244:9::/64"]}"#;
    let (_, out) = listed(v4_plan(), &[annotated(node("a", 1, 1), both, "2")]);
    let expected = r#"{"blue":["10.60.0.0/24"],"default":["10.244.9.0/24"]}"#;
    assert_eq!(value(patches(&out)[0], NODE_SUBNETS), Some(expected));
}

#[test]
fn exhaustion_is_told_to_the_waiting_node_and_ends_when_something_is_freed() {
    let nodes: Vec<Node> = (0..3).map(|i| node(&format!("n{i}"), i, u64::from(i))).collect();
    let (mut core, out) = listed(small_plan(23), &nodes);
    assert_eq!(patches(&out).len(), 2);
    let warned = warnings(&out);
    assert!(
        warned[0].0 == "n2"
            && warned[0].1.contains("no free IPv4 node subnet left in cluster CIDR 10.0.0.0/23")
    );
    let out = core.step(Input::Deleted(key(&nodes[0])), NOW);
    let patch = patches(&out)[0];
    assert_eq!(
        (patch.key.name.as_str(), value(patch, NODE_SUBNETS)),
        ("n2", Some(r#"{"default":["10.0.0.0/24"]}"#))
    );
    assert_eq!(value(patch, NODE_ID), Some("2"));
    // a restart with larger CIDRs serves everybody
    let (_, out) = listed(small_plan(22), &nodes);
    assert!(patches(&out).len() == 3 && warnings(&out).is_empty());
}

#[test]
fn dual_stack_is_all_or_nothing_for_a_new_node() {
    let mut plan = dual_plan();
    plan.cluster[1] = net::ClusterCidr { cidr: "fd00:10:244::/64".parse().unwrap(), host_prefix: 64 };
    let (core, out) = listed(plan, &[node("a", 1, 1), node("b", 2, 2)]);
    assert_eq!(patches(&out).len(), 1);
    assert!(warnings(&out)[0].1.contains("no free IPv6 node subnet"));
    assert_eq!((core.pools.used(Family::V4), core.pools.used(Family::V6)), (1, 1));
}

#[test]
fn a_freed_subnet_is_not_the_next_to_be_handed_out() {
    let nodes = [node("a", 1, 1), node("b", 2, 2)];
    let (mut core, _) = listed(v4_plan(), &nodes);
    core.step(Input::Deleted(key(&nodes[0])), NOW);
    let out = core.step(Input::Applied(node("c", 3, 3)), NOW);
    assert_eq!(value(patches(&out)[0], NODE_SUBNETS), Some(r#"{"default":["10.244.2.0/24"]}"#));
    assert_eq!(value(patches(&out)[0], NODE_ID), Some("2"), "the lowest free id");
}

/// A Node object may be deleted and registered anew under a machine whose pods go on running.
#[test]
fn a_node_that_returns_gets_what_it_had_unless_somebody_else_has_it() {
    let nodes = [node("a", 1, 1), node("b", 2, 2)];
    let (mut core, _) = listed(v4_plan(), &nodes);
    for uid in ["second", "third"] {
        core.step(Input::Deleted(key(&core_node(&core, "a", &nodes[0]))), NOW);
        let mut again = node("a", 3, 3);
        again.metadata.uid = uid.into();
        let out = core.step(Input::Applied(again), NOW);
        assert_eq!(value(patches(&out)[0], NODE_SUBNETS), Some(r#"{"default":["10.244.0.0/24"]}"#));
        assert_eq!(value(patches(&out)[0], NODE_ID), Some("2"));
    }
    // The subnet was given to another meanwhile, by annotation; the id is the lowest free one.
    core.step(Input::Deleted(key(&core_node(&core, "a", &nodes[0]))), NOW);
    let taken = annotated(node("c", 4, 4), r#"{"default":["10.244.0.0/24"]}"#, "2");
    core.step(Input::Applied(taken), NOW);
    let out = core.step(Input::Applied(node("a", 5, 5)), NOW);
    assert_eq!(value(patches(&out)[0], NODE_SUBNETS), Some(r#"{"default":["10.244.2.0/24"]}"#));
    assert_eq!(value(patches(&out)[0], NODE_ID), Some("4"));
}

/// The node as the core knows it now.
fn core_node(core: &Core, name: &str, like: &Node) -> Node {
    let mut node = like.clone();
    node.metadata.uid = core.nodes[name].facts.uid.clone();
    node
}

#[test]
fn several_cidrs_are_used_in_their_order() {
    let mut plan = small_plan(24);
    plan.cluster.push(net::ClusterCidr { cidr: "10.9.0.0/16".parse().unwrap(), host_prefix: 26 });
    let (_, out) = listed(plan, &[node("a", 1, 1), node("b", 2, 2), node("c", 3, 3)]);
    let got: Vec<_> =
        patches(&out).iter().map(|patch| value(patch, NODE_SUBNETS).unwrap().to_owned()).collect();
    assert_eq!(
        got,
        ["10.0.0.0/24", "10.9.0.0/26", "10.9.0.64/26"].map(|net| format!(r#"{{"default":["{net}"]}}"#))
    );
}

#[test]
fn nodes_inside_a_cluster_range_are_refused_until_moved() {
    let mut bad = node("bad", 1, 1);
    bad.status.addresses.push(NodeAddress { kind: "InternalIP".into(), address: "10.96.4.4".into() });
    let (mut core, out) = listed(v4_plan(), &[bad, node("good", 2, 2)]);
    assert_eq!(patches(&out).len(), 1);
    let (name, message) = warnings(&out)[0];
    assert!(
        name == "bad" && message.contains("10.96.4.4") && message.contains("service subnet 10.96.0.0/16")
    );
    assert_eq!(patches(&core.step(Input::Applied(node("bad", 1, 3)), NOW)).len(), 1);
}

#[test]
fn selected_nodes_get_nothing() {
    let mut plan = v4_plan();
    plan.no_subnet_nodes = "os=windows".parse().ok();
    let mut windows = node("w", 1, 1);
    windows.metadata.labels.insert("os".into(), "windows".into());
    let (mut core, out) = listed(plan, &[windows.clone(), node("l", 2, 2)]);
    assert_eq!(patches(&out).iter().map(|patch| patch.key.name.as_str()).collect::<Vec<_>>(), ["l"]);
    windows.metadata.labels.clear();
    windows.metadata.resource_version = "3".into();
    assert_eq!(patches(&core.step(Input::Applied(windows), NOW)).len(), 1);
}

#[test]
fn leftovers_are_cleaned_in_the_same_patch() {
    let mut old = annotated(node("a", 1, 1), r#"{"default":["10.244.9.0/24"]}"#, "7");
    old.metadata.annotations.insert(TRANSIT_ADDRESSES.into(), r#"{"ipv4":"100.88.0.3/16"}"#.into());
    old.metadata.annotations.insert(LEGACY_ROUTER_LRP_ADDRESSES.into(), "{}".into());
    let condition = |status: &str, reason: &str| NodeCondition {
        kind: "NetworkUnavailable".into(),
        status: status.into(),
        reason: reason.into(),
    };
    old.status.conditions = vec![condition("True", "NoRouteCreated")];
    let (_, out) = listed(v4_plan(), std::slice::from_ref(&old));
    let expected = NodePatch {
        key: key(&old),
        annotations: vec![
            (TRANSIT_ADDRESSES, Some(r#"{"ipv4":"100.88.0.7/16"}"#.into())),
            (LEGACY_ROUTER_LRP_ADDRESSES, None),
        ],
        clear_network_unavailable: true,
    };
    assert_eq!(patches(&out), [&expected]);
    // somebody else's reason is not ours to clear
    old.status.conditions = vec![condition("True", "CableCut")];
    let (_, out) = listed(v4_plan(), &[old]);
    assert!(!patches(&out)[0].clear_network_unavailable);
}

#[test]
fn an_id_without_an_address_is_a_problem_of_that_node() {
    let mut plan = v4_plan();
    plan.transit.v4 = "100.88.0.0/29".parse().ok();
    let (_, out) = listed(plan, &[annotated(node("a", 1, 1), "", "9"), node("b", 2, 2)]);
    assert_eq!(patches(&out).len(), 1);
    assert!(warnings(&out)[0].1.contains("transit subnet 100.88.0.0/29 has no address for node id 9"));
}

#[test]
fn failed_patches_are_tried_again_with_growing_delays() {
    let a = node("a", 1, 1);
    let (mut core, out) = listed(v4_plan(), std::slice::from_ref(&a));
    let patch = patches(&out)[0].clone();
    let mut now = NOW;
    let mut delays = Vec::new();
    for _ in 0..9 {
        let failed = Input::PatchFailed { key: key(&a), error: "busy".into(), rejected: false };
        assert!(core.step(failed, now).is_empty());
        let at = core.wake_at().unwrap();
        assert!(core.step(Input::Tick, at - Duration::from_millis(1)).is_empty());
        assert_eq!(core.step(Input::Tick, at), [Output::Patch(patch.clone())], "the same allocation again");
        delays.push((at - now).as_millis());
        now = at;
    }
    assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
    let out =
        core.step(Input::PatchFailed { key: key(&a), error: "denied by x".into(), rejected: true }, now);
    assert!(warnings(&out)[0].1.contains("denied by x"));
    let at = core.wake_at().unwrap();
    core.step(Input::Tick, at);
    assert!(core.step(Input::Patched { key: key(&a), version: "5".into() }, at).is_empty());
    assert!(core.is_settled());
}

#[test]
fn late_events_from_before_our_patch_change_nothing() {
    let a = node("a", 1, 5);
    let (mut core, _) = listed(v4_plan(), std::slice::from_ref(&a));
    assert!(core.step(Input::Patched { key: key(&a), version: "9".into() }, NOW).is_empty());
    assert!(core.step(Input::Applied(node("a", 1, 7)), NOW).is_empty());
    // but an annotation removed later is written again, with the same values
    let out = core.step(Input::Applied(node("a", 1, 12)), NOW);
    assert_eq!(value(patches(&out)[0], NODE_SUBNETS), Some(r#"{"default":["10.244.0.0/24"]}"#));
}

#[test]
fn a_recreated_node_is_another_node() {
    let a = node("a", 1, 1);
    let (mut core, _) = listed(v4_plan(), std::slice::from_ref(&a));
    let mut again = node("a", 7, 3);
    again.metadata.uid = "other".into();
    let out = core.step(Input::Applied(again), NOW);
    assert_eq!(value(patches(&out)[0], NODE_SUBNETS), Some(r#"{"default":["10.244.0.0/24"]}"#));
    // late word of the first one
    assert!(core.step(Input::Patched { key: key(&a), version: "2".into() }, NOW).is_empty());
    assert!(core.step(Input::Deleted(key(&a)), NOW).is_empty());
    assert_eq!(core.pools.used(Family::V4), 1);
}

#[test]
fn a_snapshot_without_a_node_frees_it_unless_the_node_was_unreadable() {
    let nodes = [node("a", 1, 1), node("b", 2, 2), node("c", 3, 3)];
    let (mut core, _) = listed(v4_plan(), &nodes);
    let out = core.step(Input::Nodes { nodes: vec![nodes[0].clone()], unreadable: vec!["b".into()] }, NOW);
    assert_eq!(out, [Output::Usage { family: Family::V4, allocated: 2, capacity: 256 }]);
}

#[test]
fn fifty_nodes_with_a_restart_half_way_have_unique_and_stable_ids() {
    let (mut core, out) = listed(v4_plan(), &[]);
    assert!(patches(&out).is_empty());
    // all at once; the first 25 patches land before the restart, of the rest nobody knows
    let mut nodes: Vec<Node> = (0..50).map(|i| node(&format!("n{i:02}"), i, u64::from(i))).collect();
    let mut wanted = Vec::new();
    for node in &nodes {
        wanted.extend(core.step(Input::Applied(node.clone()), NOW));
    }
    for (i, patch) in patches(&wanted).into_iter().enumerate().filter(|(i, _)| i % 2 == 0) {
        for (key, value) in &patch.annotations {
            nodes[i].metadata.annotations.insert((*key).to_string(), value.clone().unwrap());
        }
    }
    let before = nodes.clone();
    let (_, out) = listed(v4_plan(), &nodes);
    assert_eq!(patches(&out).len(), 25, "those that landed are not written again");
    for patch in patches(&out) {
        let node = nodes.iter_mut().find(|node| node.metadata.name == patch.key.name).unwrap();
        for (key, value) in &patch.annotations {
            node.metadata.annotations.insert((*key).to_string(), value.clone().unwrap());
        }
    }
    for key in [NODE_ID, NODE_SUBNETS, TRANSIT_ADDRESSES] {
        let values: BTreeSet<&str> =
            nodes.iter().map(|node| node.metadata.annotation(key).unwrap()).collect();
        assert_eq!(values.len(), 50, "{key}");
    }
    for (before, after) in before.iter().zip(&nodes).step_by(2) {
        assert_eq!(before, after);
    }
    let (_, out) = listed(v4_plan(), &nodes);
    assert!(patches(&out).is_empty(), "a second start writes nothing");
}

#[test]
fn ids_run_out_after_five_thousand_nodes() {
    let mut plan = v4_plan();
    plan.cluster = vec![net::ClusterCidr { cidr: "10.0.0.0/8".parse().unwrap(), host_prefix: 24 }];
    plan.services.clear();
    let nodes: Vec<Node> = (0..5000).map(|i| node(&format!("n{i:04}"), i % 3600, u64::from(i))).collect();
    let (mut core, out) = listed(plan, &nodes);
    assert_eq!(patches(&out).len(), 4999);
    let warned = warnings(&out);
    assert!(warned.len() == 1 && warned[0].1.contains("no free node id left (2…5000)"), "{warned:?}");
    let waiting = warned[0].0.to_owned();
    let out = core.step(Input::Deleted(key(&nodes[77])), NOW);
    assert_eq!((patches(&out)[0].key.name.as_str(), patches(&out).len()), (waiting.as_str(), 1));
}
