//! What must hold on every node whenever everything has come to rest, read from the real databases and the API.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use devcluster::{Node, Stack};
use kapi::PodKey;
use ovsdb::Datum;

use crate::lab;

/// Waits until the invariants hold on all nodes that have a Node object.
///
/// 1. Every live pod of the node has one port, on the node's switch, equal to its annotation; no other pod ports.
/// 2. No address or MAC twice on a switch or among router ports.
/// 3. Addresses in annotations of live pods are distinct, from the node's subnet, and none of the reserved ones.
pub(crate) async fn hold(stack: &Stack) -> Result<()> {
    lab::eventually("the invariants", async || {
        let (pods, nodes) = (lab::pods(stack).await?, lab::nodes(stack).await?);
        let mut violations = annotations(&pods, &nodes);
        for node in stack.cluster().nodes() {
            if nodes.iter().any(|object| object.metadata.name == node.name()) {
                violations.extend(ports(node, &pods).await?);
            }
        }
        ensure!(violations.is_empty(), "{}", violations.join("\n"));
        Ok(())
    })
    .await
}

/// 7. A restart of the node's process with nothing changed writes nothing, neither Northbound nor to Open vSwitch.
pub(crate) async fn restart_writes_nothing(stack: &mut Stack, number: u8) -> Result<()> {
    let node = stack.cluster().node(number).clone();
    lab::ready(&node).await?;
    // What OVN still has to say about earlier changes comes first.
    node.ovn(&["ovn-nbctl", "--timeout=20", "--wait=hv", "sync"]).await?;
    let before = [lab::size(&node, lab::NB_FILE)?, lab::size(&node, lab::OVS_FILE)?];
    stack.restart_agent(number).await?;
    lab::ready(&node).await?;
    for (file, size) in [lab::NB_FILE, lab::OVS_FILE].into_iter().zip(before) {
        let mut written = lab::written_since(&node, file, size)?;
        // OVN's own programs sign what they write.
        written.retain(|record| {
            let signed = record["_comment"].as_str().unwrap_or_default();
            !["ovn-controller", "ovn-northd", "ovs-vswitchd"].iter().any(|name| signed.starts_with(name))
        });
        ensure!(written.is_empty(), "{}: a restart wrote to {file}: {written:#?}", node.name());
    }
    Ok(())
}

fn annotations(pods: &[kapi::Pod], nodes: &[kapi::Node]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut users = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.wants_network()) {
        let key = pod.pod_key();
        let network = match pod.metadata.default_pod_network() {
            Ok(Some(network)) => network,
            Ok(None) => {
                wrong.push(format!("{key} has no address"));
                continue;
            }
            Err(error) => {
                wrong.push(format!("{key}: {error}"));
                continue;
            }
        };
        let subnets = nodes
            .iter()
            .find(|node| node.metadata.name == pod.spec.node_name)
            .and_then(|node| node.metadata.default_node_subnets().ok().flatten());
        for address in network.addresses() {
            if let Some(other) = users.insert(address, key.clone()) {
                wrong.push(format!("{address} belongs to {other} and {key}"));
            }
            let Some(subnets) = &subnets else { continue };
            let subnet = if address.is_ipv4() { subnets.v4 } else { subnets.v6 };
            let reserved = subnet.is_some_and(|subnet| {
                let base = subnet.network();
                subnet.hosts().take(2).any(|host| host == address) || base == address
            });
            if reserved || !subnet.is_some_and(|subnet| subnet.contains(&address)) {
                wrong.push(format!("{key} has {address}, which pods of {subnet:?} must not have"));
            }
        }
    }
    wrong
}

async fn ports(node: &Node, pods: &[kapi::Pod]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let rows = lab::northbound(node).await.with_context(|| format!("{}: Northbound", node.name()))?;
    let switch = lab::table(&rows, "Logical_Switch").find(|row| row.str("name") == Some(node.name()));
    let Some(switch) = switch else { return Ok(vec![format!("{} has no switch", node.name())]) };
    let on_switch: BTreeSet<ovsdb::Uuid> = switch.get("ports").into_iter().flat_map(Datum::uuids).collect();
    let mut ports = BTreeMap::new();
    for row in lab::table(&rows, "Logical_Switch_Port") {
        if row.key("external_ids", "pod") == Some("true")
            && let Some(before) = ports.insert(row.str("name").unwrap_or_default().to_owned(), row)
        {
            wrong.push(format!("{}: port {} twice", node.name(), before.str("name").unwrap_or_default()));
        }
    }
    for pod in pods.iter().filter(|pod| pod.wants_network() && pod.spec.node_name == node.name()) {
        let key = pod.pod_key();
        let Ok(Some(network)) = pod.metadata.default_pod_network() else { continue };
        let Some(port) = ports.remove(&ovn::names::pod_port(&key.namespace, &key.name)) else {
            wrong.push(format!("{key} has no port"));
            continue;
        };
        let expected = ovn::names::port_addresses(network.mac, network.addresses());
        for (column, is) in
            [("addresses", port.get("addresses")), ("port_security", port.get("port_security"))]
        {
            if !is.is_some_and(|is| is.strs().eq([expected.as_str()])) {
                wrong.push(format!("{key}: {column} is {is:?} and not {expected}"));
            }
        }
        if port.key("options", "iface-id-ver") != Some(&pod.metadata.uid) {
            wrong.push(format!("{key}: the port is of another pod"));
        }
        if port.key("options", "requested-chassis") != Some(node.chassis().as_str()) {
            wrong.push(format!("{key}: requested-chassis {:?}", port.key("options", "requested-chassis")));
        }
        if !on_switch.contains(&port.uuid()) {
            wrong.push(format!("{key}: the port is not on {}", node.name()));
        }
        if !in_namespace_group(&rows, &key, port.uuid()) {
            wrong.push(format!("{key}: the port is not in its namespace's group"));
        }
    }
    wrong.extend(ports.into_keys().map(|name| format!("{}: port {name} without a pod", node.name())));
    wrong.extend(doubles(node, &rows));
    Ok(wrong)
}

fn in_namespace_group(rows: &[std::sync::Arc<ovsdb::Row>], key: &PodKey, port: ovsdb::Uuid) -> bool {
    let name = ovn::names::ObjectIds::named("Namespace", &key.namespace).hashed_name();
    lab::table(rows, "Port_Group")
        .filter(|row| row.str("name") == Some(&name))
        .flat_map(|row| row.get("ports"))
        .any(|ports| ports.uuids().any(|member| member == port))
}

/// Addresses and MACs used twice: by ports of one switch, or by router ports.
fn doubles(node: &Node, rows: &[std::sync::Arc<ovsdb::Row>]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen = |scope: &str, what: &str, by: &str, users: &mut BTreeMap<(String, String), String>| {
        if let Some(other) = users.insert((scope.to_owned(), what.to_owned()), by.to_owned())
            && other != by
        {
            wrong.push(format!("{}: {what} is used by {other} and {by} of {scope}", node.name()));
        }
    };
    let mut users = BTreeMap::new();
    for switch in lab::table(rows, "Logical_Switch") {
        let members: BTreeSet<_> = switch.get("ports").into_iter().flat_map(Datum::uuids).collect();
        let scope = switch.str("name").unwrap_or_default();
        for port in lab::table(rows, "Logical_Switch_Port").filter(|port| members.contains(&port.uuid())) {
            let name = port.str("name").unwrap_or_default();
            let words =
                port.get("addresses").into_iter().flat_map(Datum::strs).flat_map(str::split_whitespace);
            for word in words.filter(|word| word.contains(['.', ':'])) {
                seen(scope, word, name, &mut users);
            }
        }
    }
    for port in lab::table(rows, "Logical_Router_Port") {
        let name = port.str("name").unwrap_or_default();
        for network in port.get("networks").into_iter().flat_map(Datum::strs) {
            seen("routers", network.split('/').next().unwrap_or_default(), name, &mut users);
        }
    }
    wrong
}
