//! The recorded scenarios once more, with everything real: objects through the API, our programs on two nodes, OVN's
//! databases. Rows and annotations equal the reference's.

#[path = "common/invariants.rs"]
mod invariants;
#[path = "common/lab.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lab;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use devcluster::{AgentOptions, ApiChoice, Cluster, Families, Node, Stack, api};
use http::Request;
use lab::{eventually, run};
use scenario::{Scenario, canonical, compare};
use serde_json::{Value, json};

/// The kinds of administrators' policies, as they are installed in a cluster.
const POLICY_KINDS: [&str; 2] = [
    include_str!("../../scenario/data/crds/adminnetworkpolicies.yaml"),
    include_str!("../../scenario/data/crds/baselineadminnetworkpolicies.yaml"),
];

/// Applies a scenario's documents, each settled before the next, and compares what resulted.
async fn play(scenario: &Scenario, families: Families, gateway_mode: &str) -> Result<()> {
    let cluster = Cluster::builder().nodes(2).families(families).start().await?;
    let mut stack = Stack::without_runners(cluster, ApiChoice::Any).await?;
    let mut options = AgentOptions { gateway_mode: gateway_mode.to_owned(), ..AgentOptions::default() };
    if scenario.name == Scenario::ADMIN_POLICIES.name {
        for definition in POLICY_KINDS {
            for document in api::documents(definition)? {
                api::apply(&stack.api().client(), &document).await?;
            }
        }
        options.extra.push("--enable-admin-network-policy".to_owned());
    }
    stack.start_agents(options).await?;
    for node in stack.cluster().nodes() {
        lab::ready(node).await?;
    }
    for document in api::documents(scenario.manifest)? {
        step(&stack, document).await?;
        invariants::hold(&stack).await?;
    }
    same_annotations(&stack, scenario).await?;
    for node in stack.cluster().nodes().to_vec() {
        same_rows(&node, scenario).await?;
        chassis(&stack, &node).await?;
        if scenario.name == Scenario::SERVICES.name {
            same_host(&node).await?;
        }
        no_errors(&node)?;
    }
    invariants::restart_writes_nothing(&mut stack, 1).await?;
    stack.stop().await
}

/// One document: an object, or what happens to one.
async fn step(stack: &Stack, mut document: Value) -> Result<()> {
    let Some(action) = document.as_object_mut().and_then(|document| document.remove("lab")) else {
        api::apply(&stack.api().client(), &document).await?;
        if document["kind"] == "Pod" {
            started(stack, &document).await?;
        }
        return Ok(());
    };
    if document.get("apiVersion").is_none() {
        document["apiVersion"] = "v1".into();
    }
    let client = stack.api().client();
    match action.as_str() {
        Some("status") => api::apply_status(&client, &document).await,
        Some("delete") => api::delete(&client, &document).await,
        Some("annotate") if document["kind"] == "Namespace" => {
            let name = document.pointer("/metadata/name").and_then(Value::as_str).context("no name")?;
            let patch = json!({ "metadata": { "annotations": document["metadata"]["annotations"] } });
            merge(stack, &format!("/api/v1/namespaces/{name}"), &patch).await
        }
        _ => bail!("{action} is not known here"),
    }
}

/// What kubelet writes once a pod has its network.
async fn started(stack: &Stack, pod: &Value) -> Result<()> {
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or("default");
    let path = format!("/api/v1/namespaces/{}/pods/{}", text("/metadata/namespace"), text("/metadata/name"));
    let node = stack.cluster().nodes().iter().find(|node| node.name() == text("/spec/nodeName"));
    let host: Vec<String> =
        node.context("a pod without a node")?.addresses().iter().map(ToString::to_string).collect();
    let addresses = if pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true)) {
        host.clone()
    } else {
        eventually("annotation", async || {
            let object = lab::get(stack, &path).await?;
            let annotation = object.pointer("/metadata/annotations/k8s.ovn.org~1pod-networks");
            let networks: Value =
                serde_json::from_str(annotation.and_then(Value::as_str).context("no annotation")?)?;
            let list = networks["default"]["ip_addresses"].as_array().context("no addresses")?;
            let plain = list.iter().filter_map(|address| address.as_str()?.split('/').next());
            Ok(plain.map(str::to_owned).collect())
        })
        .await?
    };
    let ips: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
    let status = json!({ "status": {
        "phase": "Running", "hostIP": host.first(), "podIP": addresses.first(), "podIPs": ips,
        "conditions": [{ "type": "Ready", "status": "True" }],
    } });
    merge(stack, &format!("{path}/status"), &status).await
}

async fn merge(stack: &Stack, path: &str, patch: &Value) -> Result<()> {
    let request = Request::patch(path)
        .header("content-type", "application/merge-patch+json")
        .body(serde_json::to_vec(patch)?)?;
    stack.api().client().request::<Value>(request).await?;
    Ok(())
}

/// Annotations and finalizers of every recorded object, to the letter.
async fn same_annotations(stack: &Stack, scenario: &Scenario) -> Result<()> {
    let recorded = scenario.objects();
    eventually("annotations", async || {
        let mut compared = 0;
        for object in &recorded {
            let kind = object["kind"].as_str().context("no kind")?;
            let name = object["name"].as_str().context("no name")?;
            let path = match (kind, object["namespace"].as_str()) {
                ("Node", _) => format!("/api/v1/nodes/{name}"),
                ("Namespace", _) => format!("/api/v1/namespaces/{name}"),
                ("Pod", Some(namespace)) => format!("/api/v1/namespaces/{namespace}/pods/{name}"),
                ("AdminNetworkPolicy" | "BaselineAdminNetworkPolicy", _) => {
                    let plural = kind.to_lowercase().replace("policy", "policies");
                    format!("/apis/policy.networking.k8s.io/v1alpha1/{plural}/{name}")
                }
                _ => bail!("{kind} {name} is not compared"),
            };
            let ours = lab::get(stack, &path).await?;
            let empty = json!({});
            let annotations: BTreeMap<String, Value> =
                serde_json::from_value(ours.pointer("/metadata/annotations").unwrap_or(&empty).clone())?;
            let expected: BTreeMap<String, Value> = serde_json::from_value(object["annotations"].clone())?;
            ensure!(annotations == expected, "{kind} {name}:\n{annotations:#?}\nrecorded\n{expected:#?}");
            ensure!(ours.pointer("/metadata/finalizers").unwrap_or(&Value::Null) == &object["finalizers"]);
            if kind.ends_with("AdminNetworkPolicy") {
                same_conditions(object, &ours).with_context(|| format!("{kind} {name}"))?;
            }
            compared += usize::from(!expected.is_empty());
        }
        ensure!(compared >= 2, "only {compared} objects with annotations");
        Ok(())
    })
    .await
}

/// The conditions of a policy say what they did, but for the time.
fn same_conditions(recorded: &Value, ours: &Value) -> Result<()> {
    let list = |object: &Value| -> BTreeSet<Vec<String>> {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        let fields = ["type", "status", "reason", "message"];
        conditions
            .into_iter()
            .flatten()
            .map(|condition| fields.iter().map(|field| text(condition, field)).collect())
            .collect()
    };
    let (expected, shown) = (list(recorded), list(ours));
    ensure!(!expected.is_empty(), "no condition was recorded");
    // The recording was taken before the second node had spoken.
    ensure!(expected.is_subset(&shown), "{shown:#?}\nrecorded\n{expected:#?}");
    Ok(())
}

async fn same_rows(node: &Node, scenario: &Scenario) -> Result<()> {
    let recorded = scenario.northbound(usize::from(node.number()));
    eventually(&format!("{}: rows", node.name()), async || {
        let rows = lab::northbound(node).await?;
        let report = compare(&recorded, &canonical(rows.iter().map(AsRef::as_ref)));
        ensure!(report.different.is_empty(), "{report}");
        ensure!(report.equal > 40, "only {} rows were compared", report.equal);
        println!("{} {}: {report}", scenario.name, node.name());
        Ok(())
    })
    .await
}

/// What the reference wrote on the hosts for services of every kind: the bridge's flows and the firewall.
const HOSTS: [(&str, &str); 2] = [
    (
        include_str!("../../node/tests/data/services1.flows.txt"),
        include_str!("../../node/tests/data/services1.nft.txt"),
    ),
    (
        include_str!("../../node/tests/data/services2.flows.txt"),
        include_str!("../../node/tests/data/services2.nft.txt"),
    ),
];

/// Flows of the bridge and elements of the firewall, but for the differences that the architecture names.
async fn same_host(node: &Node) -> Result<()> {
    let (flows, firewall) = HOSTS[usize::from(node.number()) - 1];
    // In userspace pieces of packets pass the reassembly once.
    let expected = flow_set(
        &flows
            .replace("priority=110,ip,in_port=1,nw_frag", "priority=110,ct_state=-trk,ip,in_port=1,nw_frag"),
    );
    eventually(&format!("{}: flows", node.name()), async || {
        let shown = node
            .ovn(&["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "--no-names", "dump-flows", "breth0"])
            .await?;
        let shown = flow_set(&shown.replace("in_port=65534", "in_port=LOCAL"));
        let (missing, more): (Vec<_>, Vec<_>) =
            (expected.difference(&shown).collect(), shown.difference(&expected).collect());
        ensure!(missing.is_empty() && more.is_empty(), "missing {missing:#?}\ntoo much {more:#?}");
        Ok(())
    })
    .await?;
    let expected = element_sets(firewall);
    eventually(&format!("{}: firewall", node.name()), async || {
        let shown = element_sets(&node.exec(&["nft", "list", "table", "inet", "ovn-kubernetes"]).await?);
        ensure!(shown == expected, "{shown:#?}\nrecorded\n{expected:#?}");
        Ok(())
    })
    .await
}

/// Flows without the cookies of those that several ports of a service share: any of theirs will do.
fn flow_set(text: &str) -> BTreeSet<String> {
    let lines = text.lines().map(str::trim).filter(|line| line.contains("actions="));
    let shared = |line: &str| line.contains(",arp,") || line.contains("priority=110,icmp,");
    let plain = |line: &str| match line.split_once(", ") {
        Some((_, rest)) if shared(line) => rest.to_owned(),
        _ => line.to_owned(),
    };
    lines.map(plain).collect()
}

/// Sets and maps of a firewall table that hold something.
fn element_sets(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for block in text.split("\n\t}") {
        let Some((head, elements)) = block.split_once("elements = {") else { continue };
        let words: Vec<&str> = head.split_whitespace().collect();
        let Some(name) =
            words.iter().position(|word| ["set", "map"].contains(word)).and_then(|at| words.get(at + 1))
        else {
            continue;
        };
        // Ours alone: services without endpoints are refused by the host.
        if name.starts_with("refused-") {
            continue;
        }
        let elements = elements.split('}').next().unwrap_or_default().split(',');
        let list = elements.map(|one| one.split_whitespace().collect::<Vec<_>>().join(" "));
        found.insert((*name).to_owned(), list.collect());
    }
    found
}

/// The Southbound database knows this node's chassis and each other's as a remote one, with its tunnel's end.
async fn chassis(stack: &Stack, node: &Node) -> Result<()> {
    eventually(&format!("{}: chassis", node.name()), async || {
        let rows = lab::southbound(node).await?;
        let found: BTreeMap<&str, _> =
            lab::table(&rows, "Chassis").filter_map(|row| Some((row.str("name")?, row))).collect();
        ensure!(found.len() == stack.cluster().nodes().len(), "chassis {:?}", found.keys());
        for other in stack.cluster().nodes() {
            let row =
                found.get(&*other.chassis()).with_context(|| format!("no chassis of {}", other.name()))?;
            let is_remote = row.key("other_config", "is-remote") == Some("true");
            ensure!(
                is_remote == (other.number() != node.number()),
                "{}: is-remote {is_remote}",
                other.name()
            );
            ensure!(row.str("hostname") == Some(other.name()), "{:?}", row.str("hostname"));
            let encap =
                lab::table(&rows, "Encap").find(|row| row.str("chassis_name") == Some(&other.chassis()));
            let encap = encap.with_context(|| format!("no encapsulation of {}", other.name()))?;
            ensure!(encap.str("type") == Some("geneve"));
            ensure!(encap.str("ip") == Some(&other.address().to_string()), "{:?}", encap.str("ip"));
        }
        Ok(())
    })
    .await
}

/// Neither OVN nor our program has logged an error.
fn no_errors(node: &Node) -> Result<()> {
    for (file, marks) in [
        ("/var/log/ovn/ovn-northd.log", ["|ERR|", "|EMER|"]),
        ("/var/log/ovn/ovn-controller.log", ["|ERR|", "|EMER|"]),
        ("/var/log/ovn/ovsdb-server-nb.log", ["|ERR|", "|EMER|"]),
        ("/var/log/ovn/ovsdb-server-sb.log", ["|ERR|", "|EMER|"]),
        ("/var/log/ovn-kubernetes/ovnkube.log", ["ERROR", "panicked"]),
    ] {
        let text = std::fs::read_to_string(node.outside(file)).with_context(|| file.to_owned())?;
        let errors: Vec<&str> =
            text.lines().filter(|line| marks.iter().any(|mark| line.contains(mark))).collect();
        ensure!(errors.is_empty(), "{} {file}:\n{}", node.name(), errors.join("\n"));
    }
    Ok(())
}

#[test]
fn base_with_a_shared_gateway() -> Result<()> {
    run(play(&Scenario::BASE, Families::V4, "shared"))
}

#[test]
fn base_with_a_local_gateway() -> Result<()> {
    run(play(&Scenario::LOCAL, Families::V4, "local"))
}

#[test]
fn both_families() -> Result<()> {
    run(play(&Scenario::DUAL_STACK, Families::Dual, "shared"))
}

#[test]
fn pods_of_every_kind() -> Result<()> {
    run(play(&Scenario::PODS, Families::V4, "shared"))
}

#[test]
fn services_of_every_kind() -> Result<()> {
    run(play(&Scenario::SERVICES, Families::V4, "shared"))
}

#[test]
fn network_policies() -> Result<()> {
    run(play(&Scenario::POLICIES, Families::V4, "shared"))
}

#[test]
fn policies_of_administrators() -> Result<()> {
    run(play(&Scenario::ADMIN_POLICIES, Families::V4, "shared"))
}
