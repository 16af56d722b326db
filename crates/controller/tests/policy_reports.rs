//! Bug reports of users of OVN-Kubernetes and Kube-OVN about network policies, each with its whole kind. What real
//! packets have to show is with the tests of whole clusters.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::objects;
use common::world::{Fate, Zone};
use compile::Db;
use kapi::{AdminNetworkPolicy, ClusterNetworkPolicy, NetworkPolicy, Pod, PodKey};
use ovsdb::{Mutator, Op, Row};
use policy::{Kind, Policy, PolicyId};
use serde_json::{Value, json};

fn zone() -> Zone {
    let mut zone = Zone::new("node1", false);
    for number in [1, 2] {
        let subnet = format!("10.244.{}.0/24", number - 1);
        let node = objects::node(&format!("node{number}"), number, &[&subnet]);
        zone.nodes.insert(node.metadata.name.clone(), node);
    }
    for name in ["shop", "mon", "ovn-host-network"] {
        zone.namespaces.insert(name.into(), objects::namespace(name, &[("name", name)]));
    }
    zone
}

fn started() -> Zone {
    let mut zone = zone();
    zone.start();
    zone.settle();
    zone
}

fn netpol(name: &str, spec: Value) -> Policy {
    let json = json!({"metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": spec});
    Policy::from(&serde_json::from_value::<NetworkPolicy>(json).expect("a policy"))
}

fn pod(name: &str, node: &str, labels: &[(&str, &str)]) -> Pod {
    let mut pod = objects::pod(&PodKey::new("shop", name), &format!("uid-{name}"), node);
    pod.metadata.labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    pod
}

fn remote(mut pod: Pod, ip: &str) -> Pod {
    let network =
        json!({"default": {"ip_addresses": [format!("{ip}/24")], "mac_address": "0a:58:0a:f4:01:09"}});
    pod.metadata.annotations.insert(kapi::annotations::POD_NETWORKS.into(), network.to_string());
    pod
}

fn deny_all() -> Policy {
    netpol("deny-all", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}))
}

/// The rules of NetworkPolicies by their ids, without the common beginning.
fn rules(zone: &Zone) -> BTreeMap<String, Row> {
    let rows = zone.nb.rows("ACL").into_iter();
    rows.filter_map(|row| {
        let id = row.key("external_ids", "k8s.ovn.org/id")?.to_owned();
        Some((id.strip_prefix("default-network-controller:")?.to_owned(), row))
    })
    .collect()
}

fn matching(zone: &Zone, id: &str) -> String {
    let rules = rules(zone);
    let row = rules.get(id).unwrap_or_else(|| panic!("no rule {id} in {:?}", rules.keys()));
    let text = row.str("match").expect("a match").to_owned();
    // The group's name is a hash.
    text.rsplit_once(" && ").map_or(text.clone(), |(rest, _)| rest.to_owned())
}

fn set_of(zone: &Zone, text: &str) -> BTreeSet<String> {
    let rows = zone.nb.rows("Address_Set");
    let row = rows.iter().find(|row| row.key("external_ids", "k8s.ovn.org/name") == Some(text));
    let row = row.unwrap_or_else(|| panic!("no address set {text}"));
    row.get("addresses").into_iter().flat_map(|list| list.strs().map(str::to_owned)).collect()
}

fn group(zone: &Zone, id: &str) -> BTreeSet<String> {
    let id = format!("default-network-controller:{id}");
    let rows = zone.nb.rows("Port_Group");
    let row = rows.iter().find(|row| row.key("external_ids", "k8s.ovn.org/id") == Some(&*id));
    let ports: BTreeSet<_> =
        row.iter().flat_map(|row| row.get("ports")).flat_map(|list| list.uuids()).collect();
    let names = zone.nb.rows("Logical_Switch_Port").into_iter().filter(|port| ports.contains(&port.uuid()));
    names.map(|port| port.str("name").unwrap_or_default().to_owned()).collect()
}

/// Report 26: what is left out of a block is not denied, and belongs to its block alone.
#[test]
fn each_block_has_its_own_exceptions_and_nothing_denies_them() {
    let mut zone = started();
    let block = |cidr: &str, except: &[&str]| json!({"ipBlock": {"cidr": cidr, "except": except}});
    let from = |name: &str, peers: Vec<Value>| {
        netpol(name, json!({"podSelector": {}, "ingress": [{"from": peers}]}))
    };
    zone.put_policy(from("narrow", vec![block("10.0.0.0/8", &["10.0.1.0/24"])]));
    zone.put_policy(from("wide", vec![block("10.0.0.0/8", &[])]));
    zone.put_policy(from(
        "two",
        vec![block("10.0.0.0/8", &["10.0.1.0/24", "10.2.0.0/16"]), block("10.0.1.0/24", &[])],
    ));
    zone.put_policy(from(
        "mixed",
        vec![
            block("10.0.0.0/8", &["10.244.0.0/16"]),
            json!({"podSelector": {"matchLabels": {"app": "web"}}}),
        ],
    ));
    zone.settle();
    let of = |name: &str, suffix: &str| {
        matching(&zone, &format!("NetworkPolicy:shop:{name}:Ingress:0:None:{suffix}"))
    };
    assert_eq!(of("narrow", "-2"), "(ip4.src == 10.0.0.0/8 && ip4.src != {10.0.1.0/24})");
    assert_eq!(of("wide", "-2"), "ip4.src == 10.0.0.0/8");
    assert_eq!(
        of("two", "-2"),
        "((ip4.src == 10.0.0.0/8 && ip4.src != {10.0.1.0/24, 10.2.0.0/16}) || ip4.src == 10.0.1.0/24)"
    );
    assert_eq!(of("mixed", "-2"), "(ip4.src == 10.0.0.0/8 && ip4.src != {10.244.0.0/16})");
    assert!(of("mixed", "-1").starts_with("ip4.src == {$a"));
    for (id, row) in rules(&zone) {
        let denies = row.str("action") == Some("drop");
        assert_eq!(denies, id.ends_with(":defaultDeny"), "{id}");
    }
}

/// Report 28: traffic from pods is judged by its destination after load balancing, whatever kind of policy.
#[test]
fn rules_for_egress_come_after_load_balancing() {
    let mut zone = started();
    zone.put_policy(netpol("out", json!({"podSelector": {}, "egress": [{"to": [{"podSelector": {}}]}, {}]})));
    let admin = json!({"metadata": {"name": "a"}, "spec": {"priority": 3, "subject": {"namespaces": {}},
        "egress": [{"action": "Deny", "to": [{"networks": ["10.0.0.0/8"]}]}]}});
    zone.put_policy(Policy::from(&serde_json::from_value::<AdminNetworkPolicy>(admin).expect("a policy")));
    zone.settle();
    let mut seen = 0;
    for (id, row) in rules(&zone) {
        let egress = row.str("direction") == Some("from-lport");
        assert_eq!(row.key("options", "apply-after-lb") == Some("true"), egress, "{id}");
        seen += usize::from(egress);
    }
    assert!(seen >= 6, "{seen}");
}

/// Report 29: what comes back from a pod's own service is let in by one rule each way, whatever policies there are.
#[test]
fn hairpin_is_allowed_once() {
    let mut zone = started();
    let hairpin =
        |zone: &Zone| rules(zone).into_iter().filter(|(id, _)| id.starts_with("NetpolDefault:")).count();
    assert_eq!(hairpin(&zone), 2);
    zone.put_policy(deny_all());
    zone.put_policy(netpol("more", json!({"podSelector": {}})));
    zone.settle();
    assert_eq!(hairpin(&zone), 2);
    for (id, row) in rules(&zone).into_iter().filter(|(id, _)| id.starts_with("NetpolDefault:")) {
        assert_eq!(row.str("match"), Some("ip4.src == 169.254.169.5"), "{id}");
        let priority = row.get("priority").and_then(|datum| datum.as_int());
        assert!(priority > Some(1000), "{id} must come before what denies");
    }
}

/// Report 31: in whatever order a namespace and what is in it go, nothing is left, and no rule outlives its set.
#[test]
fn nothing_is_left_of_a_namespace_in_any_order() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Gone {
        Namespace,
        Policy,
        Own,
        Peer,
    }
    let orders = {
        let all = [Gone::Namespace, Gone::Policy, Gone::Own, Gone::Peer];
        let mut orders: Vec<Vec<Gone>> = vec![Vec::new()];
        for _ in all {
            let longer = orders.iter().flat_map(|order| {
                all.iter().filter(|one| !order.contains(one)).map(|one| [order.as_slice(), &[*one]].concat())
            });
            orders = longer.collect();
        }
        orders
    };
    assert_eq!(orders.len(), 24);
    for order in orders {
        for (batch, at_once) in [(1, true), (1, false), (500, true)] {
            let mut zone = zone();
            zone.batch = batch;
            zone.start();
            zone.settle();
            let watcher = netpol("watcher", json!({"podSelector": {}}));
            let watcher = Policy { id: PolicyId::new(Kind::NetworkPolicy, "mon", "watcher"), ..watcher };
            zone.put_policy(watcher);
            zone.settle();
            let before = common::world::text(&zone.nb);
            let peers =
                json!([{"namespaceSelector": {"matchLabels": {"name": "shop"}}}, {"podSelector": {}}]);
            let ports = json!([{"port": "web"}]);
            let mut own = pod("own", "node1", &[("app", "web")]);
            own.spec.named_ports =
                vec![kapi::NamedPort { name: "web".into(), protocol: "TCP".into(), port: 80 }];
            zone.put_pod(own);
            zone.put_pod(remote(pod("peer", "node2", &[]), "10.244.1.9"));
            zone.put_policy(netpol(
                "p",
                json!({"podSelector": {}, "ingress": [{"from": peers, "ports": ports}]}),
            ));
            zone.settle();
            assert!(rules(&zone).len() > 4, "the policy is there");
            for gone in &order {
                match gone {
                    Gone::Namespace => zone.remove_namespace("shop"),
                    Gone::Policy => zone.remove_policy(&PolicyId::new(Kind::NetworkPolicy, "shop", "p")),
                    Gone::Own => zone.remove_pod(&PodKey::new("shop", "own")),
                    Gone::Peer => zone.remove_pod(&PodKey::new("shop", "peer")),
                }
                if !at_once {
                    zone.settle();
                }
            }
            zone.settle();
            let group = "Port_Group:default-network-controller:Namespace:shop";
            let mut before = before.clone();
            assert!(before.remove(group).is_some());
            assert_eq!(common::world::text(&zone.nb), before, "{order:?}");
        }
    }
}

/// Leftovers of a time without controller: rules go before the sets they name, in transactions of any size.
#[test]
fn leftovers_of_policies_go_in_the_right_order() {
    for batch in [1, 2, 500] {
        let mut zone = zone();
        zone.batch = batch;
        zone.start();
        zone.settle();
        let before = common::world::text(&zone.nb);
        for index in 0..5 {
            let app = format!("app-{index}");
            zone.put_policy(netpol(
                &format!("p{index}"),
                json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": app}}}]}]}),
            ));
        }
        zone.settle();
        assert!(zone.nb.rows("Address_Set").len() >= 5);
        zone.policies.clear();
        zone.start();
        zone.settle();
        assert_eq!(common::world::text(&zone.nb), before);
    }
}

/// Report 33: pods on the host's network are peers where a podSelector is written, the nodes' own addresses where all
/// pods of the namespace are meant that stands for them; subjects they never are.
#[test]
fn four_spellings_of_a_peer() {
    let mut zone = started();
    zone.put_pod(pod("own", "node1", &[("app", "web")]));
    zone.put_pod(remote(pod("far", "node2", &[("app", "web")]), "10.244.1.9"));
    let mut host = pod("host", "node2", &[("app", "web")]);
    host.spec.host_network = true;
    host.status.pod_ips = vec![kapi::PodIp { ip: "172.18.0.2".parse().expect("an address") }];
    zone.put_pod(host.clone());
    let mut local = host;
    (local.metadata.name, local.metadata.uid) = ("local-host".into(), "uid-local".into());
    local.spec.node_name = "node1".into();
    local.status.pod_ips = vec![kapi::PodIp { ip: "172.18.0.1".parse().expect("an address") }];
    zone.put_pod(local);
    let shop = json!({"matchLabels": {"name": "shop"}});
    let nodes = json!({"matchLabels": {"name": "ovn-host-network"}});
    let peers = json!([
        {"namespaceSelector": shop}, {"namespaceSelector": shop, "podSelector": {}},
        {"podSelector": {"matchLabels": {"app": "web"}}},
        {"namespaceSelector": nodes}, {"namespaceSelector": nodes, "podSelector": {}}]);
    zone.put_policy(netpol("p", json!({"podSelector": {}, "ingress": [{"from": peers}]})));
    zone.settle();
    let own = zone.core.world().pod(&PodKey::new("shop", "own")).expect("a network").network.clone();
    let own = own.addresses().next().expect("an address").to_string();
    let set = |addresses: &[&str]| addresses.iter().map(|one| (*one).to_owned()).collect::<BTreeSet<_>>();
    let hosts = ["172.18.0.1", "172.18.0.2"];
    assert_eq!(set_of(&zone, "LS{ML:{name: shop,},}_LS{}_LNM"), set(&[&own, "10.244.1.9"]));
    assert_eq!(set_of(&zone, "LS{ML:{name: shop,},}_LS{}"), set(&[&own, "10.244.1.9", hosts[0], hosts[1]]));
    assert_eq!(set_of(&zone, "shop_LS{ML:{app: web,},}"), set(&[&own, "10.244.1.9", hosts[0], hosts[1]]));
    let reach = set(&["10.244.0.2", "10.244.1.2", "100.64.0.2", "100.64.0.3"]);
    assert_eq!(set_of(&zone, "LS{ML:{name: ovn-host-network,},}_LS{}_LNM"), reach);
    assert_eq!(set_of(&zone, "LS{ML:{name: ovn-host-network,},}_LS{}"), reach);
    assert_eq!(group(&zone, "NetworkPolicy:shop:p"), set(&["shop_own"]));
    assert_eq!(group(&zone, "NetpolNamespace:shop:Ingress"), set(&["shop_own"]));
}

/// Report 35: a pod's port is in the groups that isolate it whenever it can be seen, in every order of events and with
/// transactions of any size. `OVNKUBE_POLICY_ROUNDS=500` makes the long form.
#[test]
fn a_port_is_never_seen_outside_its_isolation() {
    let rounds = std::env::var("OVNKUBE_POLICY_ROUNDS").ok().and_then(|text| text.parse().ok());
    for round in 0..rounds.unwrap_or(100u64) {
        let mut dice = policy_model::random::Dice::new(round);
        let mut zone = zone();
        zone.batch = [1, 2, 3, 500][dice.below(4)];
        // The policy is older than the pods, but the controller may hear of it last.
        zone.policies.insert(deny_all().id, deny_all());
        let all = netpol("web", json!({"podSelector": {"matchLabels": {"app": "web"}}, "egress": [{}]}));
        zone.policies.insert(all.id.clone(), all);
        if dice.chance(50) {
            zone.put_pod(pod("early", "node1", &[("app", "web")]));
        }
        zone.start();
        for number in 0..3 {
            zone.put_pod(pod(&format!("p{number}"), "node1", &[("app", "web")]));
        }
        let mut seen = 0;
        loop {
            let ports: BTreeSet<String> = zone
                .nb
                .rows("Logical_Switch_Port")
                .iter()
                .filter_map(|row| row.str("name").filter(|name| name.starts_with("shop_")).map(str::to_owned))
                .collect();
            for id in
                ["NetpolNamespace:shop:Ingress", "NetpolNamespace:shop:Egress", "NetworkPolicy:shop:web"]
            {
                assert_eq!(group(&zone, id), ports, "round {round}: {id}");
            }
            seen = seen.max(ports.len());
            let sources: Vec<&'static str> =
                zone.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(name, _)| *name).collect();
            if !sources.is_empty() && dice.chance(70) {
                let source = *dice.pick(&sources);
                zone.deliver(source);
            } else if !zone.transactions.is_empty() {
                let fate = if dice.chance(10) { Fate::LostAfter } else { Fate::Made };
                zone.transact(fate);
            } else if !zone.patches.is_empty() {
                zone.patch(Fate::Made);
            } else if sources.is_empty() {
                break;
            }
        }
        zone.settle();
        assert!(seen > 0 || group(&zone, "NetworkPolicy:shop:web").len() > 2);
    }
}

/// Report 36: protocols without ports, ranges, host bits, names; every match is what the API says.
#[test]
fn ports_and_protocols_are_matched_exactly() {
    let mut zone = started();
    let ports = json!([{"protocol": "SCTP"}, {"protocol": "UDP"}, {"protocol": "UDP", "port": 53},
        {"port": 80}, {"port": 443}, {"port": 80}, {"port": 2000, "endPort": 20000}, {"port": 7, "endPort": 7}]);
    let from = json!([{"ipBlock": {"cidr": "10.244.2.81/24"}}]);
    zone.put_policy(netpol("p", json!({"podSelector": {}, "ingress": [{"ports": ports}, {"from": from}]})));
    zone.settle();
    let of = |rest: &str| matching(&zone, &format!("NetworkPolicy:shop:p:Ingress:{rest}"));
    assert_eq!(of("0:sctp:-1"), "ip4 && sctp");
    assert_eq!(of("0:udp:-1"), "ip4 && udp");
    assert_eq!(of("0:tcp:-1"), "ip4 && tcp && (tcp.dst=={80,443,7} || 2000<=tcp.dst<=20000)");
    assert_eq!(of("1:None:-2"), "ip4.src == 10.244.2.0/24");
    let neighbours = rules(&zone);
    let arp = &neighbours["NetpolNamespace:shop:Ingress:arpAllow"];
    assert!(arp.str("match").is_some_and(|text| text.ends_with(" && (arp || nd)")));
    assert!(arp.get("priority") > neighbours["NetpolNamespace:shop:Ingress:defaultDeny"].get("priority"));
}

/// A port's name is the number it has at each destination, and only with the protocol it has there.
#[test]
fn named_ports_are_resolved_at_the_destination() {
    let mut zone = started();
    let port = |number: u16, protocol: &str| kapi::NamedPort {
        name: "web".into(),
        protocol: protocol.into(),
        port: number,
    };
    for (name, ports) in
        [("a", vec![port(80, "TCP")]), ("b", vec![port(8080, "TCP")]), ("c", vec![port(80, "UDP")])]
    {
        let mut pod = pod(name, "node1", &[]);
        pod.spec.named_ports = ports;
        zone.put_pod(pod);
    }
    zone.put_policy(netpol("p", json!({"podSelector": {}, "ingress": [{"ports": [{"port": "web"}]}]})));
    zone.settle();
    let text = matching(&zone, "NetworkPolicy:shop:p:Ingress:0:tcp:-1");
    assert!(text.starts_with("ip4 && tcp && ((tcp.dst==80 && ip4.dst == {$a"), "{text}");
    assert!(text.contains("(tcp.dst==8080 && ip4.dst == {$a"), "{text}");
    assert_eq!(rules(&zone).keys().filter(|id| id.starts_with("NetworkPolicy:shop:p:")).count(), 1);
    let ip = |name: &str| {
        zone.core.world().pod(&PodKey::new("shop", name)).expect("a network").network.addresses().next()
    };
    assert_eq!(set_of(&zone, "shop_LS{}_NP{tcp,web,80}"), [ip("a").expect("an address").to_string()].into());
    assert_eq!(
        set_of(&zone, "shop_LS{}_NP{tcp,web,8080}"),
        [ip("b").expect("an address").to_string()].into()
    );
}

/// A pod that many policies select, and its change of labels, cost one transaction of set mutations.
#[test]
fn a_pod_of_many_policies_costs_set_mutations_only() {
    let mut zone = started();
    for index in 0..100 {
        let (subject, peer) = (
            json!({"matchLabels": {"app": "web"}}),
            json!({"matchLabels": {format!("k{}", index % 20): "v"}}),
        );
        let spec = json!({"podSelector": subject, "ingress": [{"from": [{"podSelector": peer}]}],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "web"}}}]}]});
        zone.put_policy(netpol(&format!("p{index}"), spec));
    }
    zone.put_pod(pod("first", "node1", &[("app", "web"), ("k0", "v")]));
    zone.settle();
    let transactions = |zone: &mut Zone| {
        let mut seen: Vec<Vec<Op>> = Vec::new();
        while zone.queues.values().any(|queue| !queue.is_empty())
            || !zone.transactions.is_empty()
            || !zone.patches.is_empty()
        {
            seen.extend(
                zone.transactions.iter().filter(|(db, _, _)| *db == Db::Nb).map(|(_, _, ops)| ops.clone()),
            );
            if !zone.transactions.is_empty() {
                zone.transact(Fate::Made);
            } else if let Some(source) =
                zone.queues.iter().find(|(_, queue)| !queue.is_empty()).map(|(name, _)| *name)
            {
                zone.deliver(source);
            } else {
                zone.patch(Fate::Made);
            }
        }
        seen
    };
    let changes_a_set = |op: &Op| match op {
        Op::Mutate { mutations, .. } => {
            mutations.iter().all(|mutation| matches!(mutation.mutator, Mutator::Insert | Mutator::Delete))
        }
        Op::Insert { table, .. } => table.as_ref() == "Logical_Switch_Port",
        _ => false,
    };
    let labels: Vec<(String, String)> = (0..20).map(|index| (format!("k{index}"), "v".to_owned())).collect();
    let mut labels: Vec<(&str, &str)> =
        labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    labels.push(("app", "web"));
    zone.put_pod(pod("second", "node1", &labels));
    let seen = transactions(&mut zone);
    assert_eq!(seen.len(), 1, "transactions for one pod");
    assert!(seen[0].iter().all(changes_a_set), "{:?}", seen[0]);
    assert!(seen[0].len() > 100, "the pod joins a hundred groups");

    let mut relabelled = zone.pods[&PodKey::new("shop", "second")].clone();
    relabelled.metadata.labels = [("app".to_owned(), "db".to_owned())].into();
    zone.put_pod(relabelled);
    let seen = transactions(&mut zone);
    assert_eq!(seen.len(), 1, "transactions for a change of labels");
    assert!(seen[0].iter().all(|op| changes_a_set(op) && matches!(op, Op::Mutate { .. })), "{:?}", seen[0]);
    zone.check_against_fresh();
}

/// All priorities of the admin tier keep their order; the reference stops at 99.
#[test]
fn every_priority_of_the_admin_tier_works() {
    let mut zone = started();
    let admin = |priority: i64, rules: usize| {
        let rule = json!({"action": "Deny", "from": [{"namespaces": {}}]});
        let json = json!({"metadata": {"name": format!("p{priority:04}")}, "spec": {"priority": priority,
            "subject": {"namespaces": {}}, "ingress": vec![rule; rules]}});
        Policy::from(&serde_json::from_value::<AdminNetworkPolicy>(json).expect("a policy"))
    };
    let widths = [
        (0, 2),
        (34, 3),
        (99, 100),
        (100, 30),
        (101, 2),
        (500, 100),
        (501, 100),
        (502, 1),
        (999, 60),
        (1000, 100),
    ];
    for (priority, rules) in widths {
        zone.put_policy(admin(priority, rules));
    }
    zone.settle();
    let mut found: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (id, row) in rules(&zone).into_iter().filter(|(id, _)| id.starts_with("AdminNetworkPolicy:")) {
        let policy = id.split(':').nth(1).unwrap_or_default().to_owned();
        found
            .entry(policy)
            .or_default()
            .push(row.get("priority").and_then(|datum| datum.as_int()).unwrap_or_default());
    }
    assert_eq!(found.len(), widths.len());
    let mut floor = i64::MAX;
    for (policy, priorities) in found {
        let (first, last) = (priorities.iter().max().copied(), priorities.iter().min().copied());
        assert!(first < Some(floor) && last >= Some(0), "{policy}: {first:?} to {last:?}");
        floor = last.unwrap_or_default();
    }
    zone.check_against_fresh();
    assert!(zone.conditions.values().all(|condition| condition.ready), "{:?}", zone.conditions);
}

/// What cannot be used is told and allows nothing; the other policies, and the rest of this one, stay.
#[test]
fn a_bad_policy_is_told_and_opens_and_closes_nothing_else() {
    let mut zone = started();
    zone.put_pod(pod("own", "node1", &[("app", "web")]));
    zone.put_policy(netpol("good", json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]})));
    zone.put_policy(netpol(
        "bad",
        json!({"podSelector": {}, "ingress": [
        {"from": [{"ipBlock": {"cidr": "10.0.0.0/40"}}]}, {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}),
    ));
    let json = json!({"metadata": {"name": "c", "generation": 4}, "spec": {"tier": "Admin", "priority": 1,
        "subject": {"namespaces": {}}, "egress": [{"action": "Deny", "to": [{"networks": ["1.2.3.4/99"]}]}]}});
    let cluster = Policy::from(&serde_json::from_value::<ClusterNetworkPolicy>(json).expect("a policy"));
    zone.put_policy(cluster.clone());
    zone.settle();
    let ids: BTreeSet<String> =
        rules(&zone).into_keys().filter(|id| id.starts_with("NetworkPolicy:")).collect();
    let expected = ["NetworkPolicy:shop:bad:Ingress:1:None:-2", "NetworkPolicy:shop:good:Ingress:0:None:-1"];
    assert_eq!(ids, expected.map(str::to_owned).into());
    let warned: Vec<&str> = zone.policy_warnings.iter().map(|(id, _)| id.name.as_str()).collect();
    assert_eq!(warned, ["bad", "c"]);
    let condition = &zone.conditions[&cluster.id];
    assert!(!condition.ready && condition.message.contains("1.2.3.4/99"), "{condition:?}");
    assert_eq!(condition.generation, Some(4));
    assert!(!zone.conditions.contains_key(&PolicyId::new(Kind::NetworkPolicy, "shop", "good")));
}

/// One address set for one selection, however many rules name it and however it is written.
#[test]
fn equal_selections_share_one_set() {
    let mut zone = started();
    let expression =
        |values: [&str; 2]| json!({"matchExpressions": [{"key": "app", "operator": "In", "values": values}]});
    for (index, values) in [["a", "b"], ["b", "a"], ["a", "b"]].into_iter().enumerate() {
        let spec = json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": expression(values)}]}]});
        zone.put_policy(netpol(&format!("p{index}"), spec));
    }
    zone.settle();
    let count = |zone: &Zone| zone.nb.rows("Address_Set").len();
    for index in 0..3 {
        assert_eq!(count(&zone), 1);
        let app = if index % 2 == 0 { "a" } else { "b" };
        zone.put_pod(pod(&format!("pod{index}"), "node1", &[("app", app)]));
        zone.settle();
        zone.check_against_fresh();
        zone.remove_policy(&PolicyId::new(Kind::NetworkPolicy, "shop", format!("p{index}")));
        zone.settle();
    }
    assert_eq!(count(&zone), 0);
}
