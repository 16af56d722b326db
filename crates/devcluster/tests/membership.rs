//! Nodes come, go and return; what a node may do before it is ready; how an operator sees it all.

#[path = "common/invariants.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod invariants;
#[path = "common/lab.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lab;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use devcluster::{AgentOptions, ApiChoice, Cluster, Daemon, Node, Stack, api, sandbox};
use lab::{NAMESPACE, PATIENCE, apply_server, eventually, run, servers};
use serde_json::{Value, json};

/// Chassis names of a node's Southbound database.
async fn chassis(node: &Node) -> Result<BTreeSet<String>> {
    let rows = lab::southbound(node).await?;
    Ok(lab::table(&rows, "Chassis").filter_map(|row| Some(row.str("name")?.to_owned())).collect())
}

async fn see_chassis(node: &Node, expected: &[String]) -> Result<()> {
    let expected: BTreeSet<String> = expected.iter().cloned().collect();
    eventually(&format!("chassis that {} knows", node.name()), async || {
        let found = chassis(node).await?;
        ensure!(found == expected, "{found:?} and not {expected:?}");
        Ok(())
    })
    .await
}

/// Names of Northbound rows that mention a node.
async fn rows_about(node: &Node, name: &str) -> Result<Vec<String>> {
    let rows = lab::northbound(node).await?;
    let about = rows.iter().filter(|row| row.columns().any(|(_, datum)| format!("{datum:?}").contains(name)));
    Ok(about.map(|row| format!("{} {:?}", row.table(), row.str("name").or(row.str("ip_prefix")))).collect())
}

async fn subnet(stack: &Stack, name: &str) -> Result<String> {
    eventually("a subnet", async || {
        let node = lab::get(stack, &format!("/api/v1/nodes/{name}")).await?;
        let subnets =
            node.pointer("/metadata/annotations/k8s.ovn.org~1node-subnets").context("no subnets")?;
        Ok(subnets.as_str().context("no text")?.to_owned())
    })
    .await
}

#[test]
fn a_node_joins_late_goes_and_returns() -> Result<()> {
    run(async {
        let cluster = Cluster::builder().nodes(2).start().await?;
        let mut stack = Stack::without_agents(cluster, ApiChoice::Any).await?;
        let (node1, node2) = (stack.cluster().node(1).clone(), stack.cluster().node(2).clone());
        // kubelet of node2 has not registered it yet, but our program runs there already.
        lab::unregister(&stack, "node2").await?;
        stack.start_agents(AgentOptions::default()).await?;
        lab::ready(&node1).await?;
        see_chassis(&node1, &[node1.chassis()]).await?;
        ensure!(sandbox::conf(&node2).is_err(), "node2 promises a network without a Node object");
        ensure!(sandbox::conf(&node1).is_ok());

        lab::register(&stack, 2).await?;
        sandbox::network_ready(&node2).await?;
        lab::ready(&node2).await?;
        let pods = servers(&mut stack, 1).await?;
        lab::all_talk(&pods).await.context("after node2 joined")?;
        let both = [node1.chassis(), node2.chassis()];
        see_chassis(&node1, &both).await?;
        see_chassis(&node2, &both).await?;
        invariants::hold(&stack).await?;

        // The machine of node2 dies for good: its pods and its object are deleted.
        stack.agents()?.nodes["node2"].kill9().await?;
        lab::forget_pod(&stack, "node2-0").await?;
        lab::unregister(&stack, "node2").await?;
        see_chassis(&node1, &[node1.chassis()]).await?;
        eventually("no trace of node2", async || {
            let about = rows_about(&node1, "node2").await?;
            ensure!(about.is_empty(), "{about:#?}");
            Ok(())
        })
        .await?;
        invariants::hold(&stack).await?;

        // It returns under its name, on databases full of what was.
        lab::register(&stack, 2).await?;
        stack.agents()?.start_node(&node2).await?;
        let second = subnet(&stack, "node2").await?;
        ensure!(second.contains("10.244."), "{second}");
        lab::ready(&node2).await?;
        apply_server(&mut stack, "node2-again", "node2").await?;
        let again = stack.running(NAMESPACE, "node2-again", PATIENCE).await?;
        lab::talk(&pods[0], &again).await.context("after node2 returned")?;
        lab::talk(&again, &pods[0]).await?;
        see_chassis(&node1, &both).await?;
        invariants::hold(&stack).await?;

        // Now only the object is re-created, under a running program and running pods.
        lab::unregister(&stack, "node2").await?;
        see_chassis(&node1, &[node1.chassis()]).await?;
        lab::register(&stack, 2).await?;
        see_chassis(&node1, &both).await?;
        lab::talk(&pods[0], &again).await.context("after the object of node2 was re-created")?;
        invariants::hold(&stack).await?;
        invariants::restart_writes_nothing(&mut stack, 1).await?;
        invariants::restart_writes_nothing(&mut stack, 2).await?;
        stack.stop().await
    })
}

/// The Node's name and the machine's host name differ: chassis are told apart by their ids, and stay.
#[test]
fn host_names_are_not_node_names() -> Result<()> {
    run(async {
        let cluster = Cluster::builder().nodes(2).start().await?;
        let mut stack = Stack::without_agents(cluster, ApiChoice::Any).await?;
        let nodes = stack.cluster().nodes().to_vec();
        for node in &nodes {
            let full = format!("{}.c.project.internal", node.name());
            node.exec(&["hostname", &full]).await?;
            let entry = format!("external_ids:hostname={full}");
            node.ovn(&["ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", &entry]).await?;
        }
        stack.start_agents(AgentOptions::default()).await?;
        let pods = servers(&mut stack, 1).await?;
        lab::all_talk(&pods).await?;
        let both = [nodes[0].chassis(), nodes[1].chassis()];
        for node in &nodes {
            see_chassis(node, &both).await?;
        }
        // Every reason to look again: a restart, a Node that changes, a re-created Southbound connection.
        invariants::restart_writes_nothing(&mut stack, 1).await?;
        let label = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node2", "labels": { "a": "b" } } });
        api::apply(&stack.api().client(), &label).await?;
        for node in &nodes {
            node.daemon(Daemon::Sb).context("no Southbound server")?.kill9().await?;
            node.start_daemon(Daemon::Sb).await?;
        }
        apply_server(&mut stack, "later", "node2").await?;
        let later = stack.running(NAMESPACE, "later", PATIENCE).await?;
        lab::talk(&pods[0], &later).await?;
        for node in &nodes {
            let found = chassis(node).await?;
            ensure!(found == both.iter().cloned().collect(), "{}: {found:?}", node.name());
            let rows = lab::southbound(node).await?;
            let names: BTreeSet<&str> =
                lab::table(&rows, "Chassis").filter_map(|row| row.str("hostname")).collect();
            ensure!(names == BTreeSet::from(["node1", "node2"]), "{names:?}");
        }
        invariants::hold(&stack).await?;
        stack.stop().await
    })
}

/// A runtime is told of the network when it works, not before; and asked later, the plugin says what is missing.
#[test]
fn the_configuration_appears_when_the_network_works() -> Result<()> {
    run(async {
        let cluster = Cluster::builder().nodes(1).start().await?;
        let mut stack = Stack::without_agents(cluster, ApiChoice::Any).await?;
        let node = stack.cluster().node(1).clone();
        node.daemon(Daemon::Controller).context("no ovn-controller")?.kill9().await?;
        stack.start_agents(AgentOptions::default()).await?;
        eventually("the missing step", async || {
            let answer = lab::http(&node, "/readyz")?;
            ensure!(answer.starts_with("HTTP/1.1 5"), "{answer}");
            ensure!(answer.contains("ovn-controller"), "{answer}");
            Ok(())
        })
        .await?;
        ensure!(sandbox::conf(&node).is_err(), "a configuration without a network");
        node.start_daemon(Daemon::Controller).await?;
        sandbox::network_ready(&node).await?;
        lab::ready(&node).await?;
        let status = sandbox::call_on_node(&node, "STATUS", json!({})).await?;
        status.success()?;

        node.daemon(Daemon::OvsDb).context("no ovsdb-server")?.kill9().await?;
        eventually("STATUS tells", async || {
            let status = sandbox::call_on_node(&node, "STATUS", json!({})).await?;
            ensure!(status.code() == Some(50), "{status:?}");
            ensure!(status.output.to_string().contains("Open vSwitch"), "{}", status.output);
            Ok(())
        })
        .await?;
        node.start_daemon(Daemon::OvsDb).await?;
        eventually("STATUS is well again", async || {
            sandbox::call_on_node(&node, "STATUS", json!({})).await?.success().map(drop)
        })
        .await?;
        servers(&mut stack, 1).await?;
        invariants::hold(&stack).await?;
        stack.stop().await
    })
}

#[test]
fn kubectl_shows_nodes_pods_and_events() -> Result<()> {
    run(async {
        let mut stack = Stack::start(Cluster::builder(), ApiChoice::Any, AgentOptions::default()).await?;
        let pods = servers(&mut stack, 1).await?;
        let nodes = lab::kubectl(&stack, &["get", "nodes", "-o", "wide"]).await?;
        let rows: Vec<&str> = nodes.lines().collect();
        ensure!(rows.len() == 3 && rows[1].contains("Ready") && rows[2].contains("172.18.0.2"), "{nodes}");
        let listed = lab::kubectl(&stack, &["get", "pods", "-A", "-o", "wide"]).await?;
        for pod in &pods {
            let row = listed.lines().find(|line| line.contains(&format!(" {} ", pod.record.addresses[0])));
            let row = row.with_context(|| listed.clone())?;
            ensure!(
                row.contains("1/1") && row.contains("Running") && row.contains(pod.node().name()),
                "{row}"
            );
        }
        let said = lab::kubectl(&stack, &["describe", "pod", "-n", NAMESPACE, "node1-0"]).await?;
        ensure!(said.contains("k8s.ovn.org/pod-networks") && said.contains("10.244.0.3"), "{said}");
        ensure!(said.contains("Status:") && said.contains("Running"), "{said}");

        // A node whose subnet is not ours: an Event on it, and the others go on.
        let bad = json!({ "apiVersion": "v1", "kind": "Node", "metadata": {
            "name": "stranger", "annotations": { "k8s.ovn.org/node-subnets": "{\"default\":[\"10.99.0.0/24\"]}" },
        } });
        stack.apply(&bad).await?;
        eventually("an Event about the stranger", async || {
            let events = lab::kubectl(&stack, &["get", "events", "-A"]).await?;
            let about =
                events.lines().find(|line| line.contains("node/stranger")).with_context(|| events.clone())?;
            ensure!(about.contains("Warning") && about.contains("10.99.0.0/24"), "{about}");
            Ok(())
        })
        .await?;
        let before: Vec<Value> = lab::list(&stack, "/api/v1/nodes").await?;
        ensure!(before.len() == 3);
        lab::all_talk(&pods).await?;
        let about = rows_about(stack.cluster().node(1), "stranger").await?;
        ensure!(about.is_empty(), "{about:?}");
        lab::unregister(&stack, "stranger").await?;
        invariants::hold(&stack).await?;
        stack.stop().await
    })
}
