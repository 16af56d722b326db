//! `cargo xtask bench policy`: 200 and 5000 NetworkPolicies over 10 000 pods on 250 nodes. From the start of a node's
//! process until all is programmed, into a database without and with the rows: time, CPU time, memory, rows. Then 50
//! new pods a second on other nodes: rows and transactions written for each, and the time from the API server's store
//! to the database's own notice of the address sets.
//!
//! OVN's own daemons but the databases are stopped: what northd makes of the rules is not ours to measure.

mod lab;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use devcluster::{Daemon, api, mk_pod};
use lab::{Figures, Lab};
use ovsdb::client::Notices;
use ovsdb::{Cache, MonitorSpec, Notice, Op, Options, Replica};
use serde_json::{Value, json};

const NODES: u32 = 250;
const PODS: u32 = 10_000;
const NAMESPACES: u32 = 50;
const APPS: u32 = 20;
const SIZES: [u32; 2] = [200, 5000];
const NEW_PODS: u32 = 500;
const PACE: Duration = Duration::from_millis(20);
/// Tables of policies.
const TABLES: [&str; 3] = ["ACL", "Address_Set", "Port_Group"];

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let mut lab = Lab::start(1).await?;
    for daemon in [Daemon::Northd, Daemon::Controller] {
        lab.cluster.node(1).daemon(daemon).context("no such daemon")?.kill9().await?;
    }
    fill(&lab)?;
    let mut made = 0;
    for size in SIZES {
        for number in made..size {
            create(&lab, policy(number))?;
        }
        made = size;
        start(&mut lab, size, true).await?;
        start(&mut lab, size, false).await?;
        new_pods(&lab, size).await?;
    }
    lab.stop().await;
    Ok(())
}

fn create(lab: &Lab, object: Value) -> Result<()> {
    let server = lab.api.embedded().context("this bench needs the embedded API server")?;
    server.store().create(object).map(drop).map_err(|error| anyhow::anyhow!("{error:?}"))
}

fn fill(lab: &Lab) -> Result<()> {
    for number in 0..NAMESPACES {
        let labels = json!({ "team": format!("t{}", number % 10) });
        let metadata = json!({ "name": format!("ns{number}"), "labels": labels });
        create(lab, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }))?;
    }
    for number in 2..=NODES {
        let mut node = api::mk_node(&format!("node{number}"), &[]);
        node["metadata"]["annotations"] = json!({
            "k8s.ovn.org/node-subnets": format!("{{\"default\":[\"10.244.{}.0/24\"]}}", number - 1),
            "k8s.ovn.org/node-id": (number + 1).to_string(),
            "k8s.ovn.org/node-transit-switch-port-ifaddr": format!("{{\"ipv4\":\"100.88.0.{}/16\"}}", number + 1),
            "k8s.ovn.org/node-chassis-id": format!("00000000-0000-4000-8000-{number:012}"),
            "k8s.ovn.org/node-encap-ips": format!("[\"172.19.0.{number}\"]"),
            "k8s.ovn.org/host-cidrs": format!("[\"172.19.0.{number}/16\"]"),
        });
        create(lab, node)?;
    }
    for number in 0..PODS {
        create(lab, pod(number))?;
    }
    Ok(())
}

/// Pods of all nodes in turn; those of other nodes have addresses.
fn pod(number: u32) -> Value {
    let on = number % NODES + 1;
    let namespace = format!("ns{}", number / APPS % NAMESPACES);
    let mut pod = mk_pod(&namespace, &format!("p{number}"), &format!("node{on}"), &["sleep"]);
    pod["metadata"]["labels"] =
        json!({ "app": format!("a{}", number % APPS), "pod-template-hash": "5d4f8c7b9" });
    if on > 1 {
        pod["metadata"]["annotations"] = json!({ "k8s.ovn.org/pod-networks": network(&ip(number)) });
    }
    pod
}

fn ip(number: u32) -> String {
    format!("10.244.{}.{}", number % NODES, number / NODES + 3)
}

fn network(ip: &str) -> String {
    format!(
        "{{\"default\":{{\"ip_addresses\":[\"{ip}/24\"],\"mac_address\":\"0a:58:0a:f4:00:01\",\"role\":\"primary\"}}}}"
    )
}

/// A policy for the pods of one application of a namespace: in from a team's pods of another application, out to the
/// namespace's own and to a range outside.
fn policy(number: u32) -> Value {
    let (namespace, app) = (number % NAMESPACES, number / NAMESPACES % APPS);
    let labels = |key: &str, value: String| json!({ "matchLabels": { key: value } });
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "name": format!("np{number}"), "namespace": format!("ns{namespace}") },
        "spec": { "podSelector": labels("app", format!("a{app}")), "policyTypes": ["Ingress", "Egress"],
            "ingress": [{ "from": [{ "namespaceSelector": labels("team", format!("t{}", number % 10)),
                "podSelector": labels("app", format!("a{}", (app + 1) % APPS)) }],
                "ports": [{ "port": 8080 }] }],
            "egress": [{ "to": [{ "podSelector": labels("app", format!("a{}", (app + 2) % APPS)) }] },
                { "to": [{ "ipBlock": { "cidr": "198.51.100.0/24", "except": [format!("198.51.100.{}/32", number % 250)] } }] }] } })
}

/// Starts the node's process anew, where the database lacks all rows of policies or has them already.
async fn start(lab: &mut Lab, size: u32, empty: bool) -> Result<()> {
    let node = lab.cluster.node(1).clone();
    lab.agents.nodes.get("node1").context("no process")?.clone().kill9().await?;
    let options = || {
        let spec = TABLES
            .iter()
            .fold(MonitorSpec::none(), |spec, table| spec.table(table, &["name", "external_ids"]));
        Options::unix(node.nb_socket(), "OVN_Northbound").monitor(spec)
    };
    let nb = Replica::connect(options());
    nb.ready().await;
    if empty {
        let deletes = nb.read(|cache| {
            let owned = |table: &'static str| {
                let rows = cache.rows(table).filter(|row| {
                    let owner = row.key("external_ids", "k8s.ovn.org/owner-type");
                    owner.is_some_and(|owner| owner.starts_with("Net") || owner == "PodSelector")
                });
                rows.map(|row| Op::delete(table, row.uuid())).collect::<Vec<_>>()
            };
            [owned("Port_Group"), owned("Address_Set")].concat()
        });
        nb.transact(deletes).await?;
    }
    drop(nb);
    let begun = Instant::now();
    lab.agents.start_node(&node).await?;
    ready(&node).await?;
    let took = begun.elapsed();
    let (memory, cpu) = lab.usage("node1")?;
    let nb = Replica::connect(options());
    nb.ready().await;
    let rows = nb.read(|cache| TABLES.map(|table| format!("{} {table}", cache.rows(table).count())));
    println!(
        "{:<50} {:.0} ms, {cpu:?} CPU, {:.1} MB resident; {}",
        format!("{size} policies: start → programmed, {}", if empty { "no rows" } else { "rows there" }),
        took.as_secs_f64() * 1000.0,
        memory as f64 / 1e6,
        rows.join(", ")
    );
    Ok(())
}

/// Waits until the process says that all is programmed: its metric of the time until ready is not zero any more.
async fn ready(node: &devcluster::Node) -> Result<()> {
    for _ in 0..60_000 {
        let text = lab::metrics(node).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("ovnkube_controller_ready_duration_seconds "));
        if line.is_some_and(|line| !line.ends_with(" 0")) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("the controller does not get ready")
}

/// A new pod on another node every 20 ms.
async fn new_pods(lab: &Lab, size: u32) -> Result<()> {
    let node = lab.cluster.node(1);
    let options = Options::unix(node.nb_socket(), "OVN_Northbound").monitor(MonitorSpec::all());
    let (_client, notices) = ovsdb::connect(options);
    let mut watch =
        Watch { notices, cache: None, sent: HashMap::new(), figures: Figures::default(), rows: 0, notes: 0 };
    while watch.cache.is_none() {
        watch.next().await?;
    }
    let mut pace = tokio::time::interval(PACE);
    let mut number = 0;
    while number < NEW_PODS || !watch.sent.is_empty() {
        tokio::select! {
            biased;
            result = watch.next() => result?,
            _ = pace.tick(), if number < NEW_PODS => {
                // Applications and namespaces that policies of both sizes name, in turn.
                let like = number % 4 * APPS + 1 + number % 3;
                let name = format!("new-{size}-{number}");
                let namespace = format!("ns{}", like / APPS % NAMESPACES);
                let mut object = mk_pod(&namespace, &name, "node2", &["sleep"]);
                object["metadata"]["labels"] = json!({ "app": format!("a{}", like % APPS) });
                let ip = format!("10.{}.{}.{}", if size == SIZES[0] { 245 } else { 246 }, number / 250, number % 250 + 1);
                object["metadata"]["annotations"] = json!({ "k8s.ovn.org/pod-networks": network(&ip) });
                watch.sent.insert(ip, Instant::now());
                create(lab, object)?;
                number += 1;
            }
        }
    }
    watch.figures.print(&format!("{size} policies: new pod → in its sets"));
    let each = |count: u32| f64::from(count) / f64::from(NEW_PODS);
    println!(
        "{:<50} {:.2} rows, {:.2} transactions",
        "  written for each",
        each(watch.rows),
        each(watch.notes)
    );
    Ok(())
}

struct Watch {
    notices: Notices,
    cache: Option<Cache>,
    /// Addresses on their way, and since when.
    sent: HashMap<String, Instant>,
    figures: Figures,
    rows: u32,
    notes: u32,
}

impl Watch {
    async fn next(&mut self) -> Result<()> {
        match self.notices.recv().await.context("the database is gone")? {
            Notice::Reset(update) => {
                let mut cache = Cache::new(update.schema().clone());
                cache.reset(&update);
                self.cache = Some(cache);
            }
            Notice::Update(update) => {
                let now = Instant::now();
                let changes = self.cache.as_mut().context("no contents")?.apply(&update);
                self.rows += u32::try_from(changes.len())?;
                self.notes += 1;
                for row in changes.iter().filter_map(|change| change.new.as_ref()) {
                    for address in row.get("addresses").into_iter().flat_map(|list| list.strs()) {
                        if let Some(since) = self.sent.remove(address) {
                            self.figures.add(now.duration_since(since));
                        }
                    }
                }
            }
            Notice::Up { .. } | Notice::Down { .. } => {}
        }
        Ok(())
    }
}
