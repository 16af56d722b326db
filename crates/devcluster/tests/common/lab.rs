//! What tests on whole clusters share: a runtime, bounded waits, contents of databases, pods that answer and questions to
//! them.

#[path = "pings.rs"]
pub(crate) mod pings;

use std::{future::Future, net::IpAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use devcluster::{Daemon, Families, GATEWAY, Node, PodHandle, Stack, api, binaries, mk_namespace, mk_pod};
use http::Request;
use kube::api::DeleteParams;
use ovsdb::Row;
use serde_json::{Value, json};

/// How long anything may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Namespace of the pods that the tests make.
pub(crate) const NAMESPACE: &str = "lab";
/// MTU of a pod's interface, as the agents' command line says.
pub(crate) const MTU: usize = 1342;

/// Runs a test on one thread.
pub(crate) fn run<T>(test: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test)
}

/// Tries until it succeeds, with growing pauses: for states that several programs reach in their own time.
pub(crate) async fn eventually<T>(what: &str, attempt: impl AsyncFn() -> Result<T>) -> Result<T> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(20);
    loop {
        match attempt().await {
            Ok(found) => return Ok(found),
            Err(error) if tokio::time::Instant::now() > deadline => {
                return Err(error).with_context(|| format!("{what}: not within {PATIENCE:?}"));
            }
            Err(_) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

// --- databases ---

/// All rows of a database.
pub(crate) async fn rows(socket: &Path, database: &str) -> Result<Vec<Arc<Row>>> {
    let options = ovsdb::Options::unix(socket, database).monitor(ovsdb::MonitorSpec::all());
    let replica = ovsdb::Replica::connect(options);
    tokio::time::timeout(Duration::from_secs(5), replica.ready())
        .await
        .with_context(|| format!("{database}: no contents"))?;
    Ok(replica
        .read(|cache| cache.tables().flat_map(|table| table.iter().cloned().collect::<Vec<_>>()).collect()))
}

/// A node's Northbound rows.
pub(crate) async fn northbound(node: &Node) -> Result<Vec<Arc<Row>>> {
    rows(&node.nb_socket(), "OVN_Northbound").await
}

/// A node's Southbound rows.
pub(crate) async fn southbound(node: &Node) -> Result<Vec<Arc<Row>>> {
    rows(&node.sb_socket(), "OVN_Southbound").await
}

/// Rows of one table.
pub(crate) fn table<'a>(rows: &'a [Arc<Row>], name: &'a str) -> impl Iterator<Item = &'a Arc<Row>> {
    rows.iter().filter(move |row| row.table() == name)
}

/// The node's Northbound database file.
pub(crate) const NB_FILE: &str = "/etc/ovn/ovnnb_db.db";
/// The node's Open vSwitch database file.
pub(crate) const OVS_FILE: &str = "/etc/openvswitch/conf.db";

/// Bytes of a database file: it grows with every transaction that changes a row.
pub(crate) fn size(node: &Node, file: &str) -> Result<u64> {
    let file = node.outside(file);
    Ok(std::fs::metadata(&file).with_context(|| file.display().to_string())?.len())
}

/// What transactions wrote to a database file behind `offset`: by table and row, the columns.
pub(crate) fn written_since(node: &Node, file: &str, offset: u64) -> Result<Vec<Value>> {
    let text = std::fs::read(node.outside(file))?;
    let tail = usize::try_from(offset).ok().and_then(|offset| text.get(offset..));
    let tail = String::from_utf8_lossy(tail.context("the database file shrank")?);
    // A record is a line with length and hash, and a line of JSON.
    let records = tail.lines().filter(|line| line.starts_with('{'));
    records.map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Empties a node's Northbound or Southbound database, whose server must be dead: it starts again with nothing.
pub(crate) async fn empty(stack: &Stack, node: &Node, daemon: Daemon) -> Result<()> {
    let (file, schema) = match daemon {
        Daemon::Nb => (NB_FILE, "ovn-nb.ovsschema"),
        Daemon::Sb => ("/etc/ovn/ovnsb_db.db", "ovn-sb.ovsschema"),
        _ => bail!("{daemon:?} has no database to empty"),
    };
    let file = node.outside(file);
    std::fs::remove_file(&file)?;
    let prefix = stack.cluster().prefix();
    let made = tokio::process::Command::new(prefix.program("ovsdb-tool"))
        .args(["create".as_ref(), file.as_os_str(), prefix.schema(schema)?.as_os_str()])
        .output()
        .await?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}

// --- objects ---

/// Registers a node as kubelet does.
pub(crate) async fn register(stack: &Stack, number: u8) -> Result<()> {
    let node = stack.cluster().node(number);
    let object = api::mk_node(node.name(), &node.addresses());
    api::apply(&stack.api().client(), &object).await?;
    api::apply_status(&stack.api().client(), &object).await
}

/// Deletes a Node object.
pub(crate) async fn unregister(stack: &Stack, name: &str) -> Result<()> {
    let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
    api::delete(&stack.api().client(), &object).await
}

/// All pods, as the controller reads them.
pub(crate) async fn pods(stack: &Stack) -> Result<Vec<kapi::Pod>> {
    list(stack, "/api/v1/pods").await
}

/// All nodes, as the controller reads them.
pub(crate) async fn nodes(stack: &Stack) -> Result<Vec<kapi::Node>> {
    list(stack, "/api/v1/nodes").await
}

/// Objects of a list.
pub(crate) async fn list<T: serde::de::DeserializeOwned>(stack: &Stack, path: &str) -> Result<Vec<T>> {
    let mut list: Value = stack.api().client().request(Request::get(path).body(Vec::new())?).await?;
    Ok(serde_json::from_value(list["items"].take())?)
}

/// One object.
pub(crate) async fn get(stack: &Stack, path: &str) -> Result<Value> {
    Ok(stack.api().client().request(Request::get(path).body(Vec::new())?).await?)
}

/// Asks for a pod's deletion, as kubectl does.
pub(crate) async fn delete_pod(stack: &Stack, name: &str) -> Result<()> {
    let api: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::namespaced(stack.api().client(), NAMESPACE);
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Deletes a pod's object at once, as the garbage collector does for a node that is gone.
pub(crate) async fn forget_pod(stack: &Stack, name: &str) -> Result<()> {
    let api: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::namespaced(stack.api().client(), NAMESPACE);
    api.delete(name, &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

/// Waits until the API has no pod of this name, or another one.
pub(crate) async fn pod_gone(stack: &Stack, name: &str, uid: &str) -> Result<()> {
    eventually(&format!("pod {name} goes"), async || {
        let left = pods(stack).await?;
        let left = left.iter().find(|pod| pod.metadata.name == name && pod.metadata.uid == uid);
        ensure!(left.is_none(), "it is there");
        Ok(())
    })
    .await
}

/// Runs kubectl against the cluster's API.
pub(crate) async fn kubectl(stack: &Stack, args: &[&str]) -> Result<String> {
    let output = tokio::process::Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(stack.api().kubeconfig())
        .args(args)
        .output()
        .await
        .context("starting kubectl")?;
    ensure!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

// --- pods that answer ---

/// The program that asks and answers.
pub(crate) fn probe() -> Result<String> {
    Ok(binaries::find("devcluster-probe")?.display().to_string())
}

/// A pod with a server.
pub(crate) async fn apply_server(stack: &mut Stack, name: &str, node: &str) -> Result<()> {
    let probe = probe()?;
    let pod = mk_pod(NAMESPACE, name, node, &[&probe, "serve"]);
    api::apply(&stack.api().client(), &pod).await.map(drop)
}

/// The namespace and `count` pods with a server on every node, all running: `node1-0`, …
pub(crate) async fn servers(stack: &mut Stack, count: usize) -> Result<Vec<PodHandle>> {
    stack.apply(&mk_namespace(NAMESPACE)).await?;
    let mut names = Vec::new();
    for node in stack.cluster().nodes().to_vec() {
        for at in 0..count {
            let name = format!("{}-{at}", node.name());
            apply_server(stack, &name, node.name()).await?;
            names.push(name);
        }
    }
    running(stack, &names).await
}

/// Waits until pods run.
pub(crate) async fn running(stack: &Stack, names: &[String]) -> Result<Vec<PodHandle>> {
    let waits = names.iter().map(|name| stack.running(NAMESPACE, name, PATIENCE));
    futures::future::try_join_all(waits).await
}

/// A pod's addresses.
pub(crate) fn addresses(pod: &PodHandle) -> Vec<IpAddr> {
    pod.record.addresses.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Where a pod's server listens.
pub(crate) fn at(address: IpAddr) -> String {
    std::net::SocketAddr::new(address, 8080).to_string()
}

/// Fails unless `from` gets an answer of `to` over TCP on each of its addresses. Patient: a server that was just started
/// may not listen yet, and connections may come back slowly after a fault.
pub(crate) async fn talk(from: &PodHandle, to: &PodHandle) -> Result<()> {
    let probe = probe()?;
    ensure!(!addresses(to).is_empty(), "a pod without an address");
    for address in addresses(to) {
        let target = at(address);
        let argv = [&probe, "tcp", &target, "--timeout-ms", "1000"];
        eventually("an answer", async || from.exec(&argv).await).await?;
    }
    Ok(())
}

/// All of them talk to all others.
pub(crate) async fn all_talk(pods: &[PodHandle]) -> Result<()> {
    for from in pods {
        for to in pods.iter().filter(|to| to.record.uid != from.record.uid) {
            talk(from, to).await.with_context(|| {
                format!("{} → {}", from.record.addresses.join(" "), to.record.addresses.join(" "))
            })?;
        }
    }
    Ok(())
}

// --- nodes ---

/// The node as it was before anybody made a bridge: its addresses and routes are on its network card.
pub(crate) async fn without_bridge(node: &Node, families: Families) -> Result<()> {
    node.ovn(&["ovs-vsctl", "--timeout=20", "del-br", "breth0"]).await?;
    let mut lines = String::new();
    for (address, length) in families.on_underlay(node.number()) {
        let nodad = if address.is_ipv6() { " nodad" } else { "" };
        lines += &format!("address add {address}/{length} dev eth0{nodad}\n");
    }
    for (gateway, _) in families.on_underlay(GATEWAY) {
        lines += &format!("route add default via {gateway} dev eth0\n");
    }
    node.ip_batch(&lines).await
}

// --- the agent from outside ---

/// Waits until a node's process says it is ready.
pub(crate) async fn ready(node: &Node) -> Result<()> {
    eventually(&format!("{} ready", node.name()), async || {
        let answer = http(node, "/readyz")?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Ok(())
    })
    .await
}

/// Asks the node's process over HTTP, in its network namespace.
pub(crate) fn http(node: &Node, path: &str) -> Result<String> {
    node.in_network(|| http_get("127.0.0.1:9410", path))
}

/// Asks over HTTP.
pub(crate) fn http_get(address: &str, path: &str) -> Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Address families of a cluster as a number of addresses.
pub(crate) fn count(families: Families) -> usize {
    usize::from(families.v4()) + usize::from(families.v6())
}
