//! `cargo xtask bench services`: 1000 and 10 000 Services of 4 endpoints each. From the start of a node's process until
//! all are programmed, into a database without and with their rows: time, CPU time, memory. Then 50 endpoint changes a
//! second: rows written for each, and the time from the API server's store to the database's own notice of the
//! transaction.
//!
//! OVN's own daemons but the databases are stopped: what northd makes of 10 000 load balancers is not ours to measure.

mod lab;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use devcluster::Daemon;
use lab::{Figures, Lab};
use ovsdb::client::Notices;
use ovsdb::{Cache, MonitorSpec, Notice, Op, Options, Replica};
use serde_json::{Value, json};

const SIZES: [u32; 2] = [1000, 10_000];
const CHANGES: u32 = 500;
const PACE: Duration = Duration::from_millis(20);

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let mut lab = Lab::start(1).await?;
    for daemon in [Daemon::Northd, Daemon::Controller] {
        lab.cluster.node(1).daemon(daemon).context("no such daemon")?.kill9().await?;
    }
    let mut made = 0;
    for size in SIZES {
        fill(&lab, made..size)?;
        made = size;
        start(&mut lab, size, true).await?;
        start(&mut lab, size, false).await?;
        changes(&lab, size).await?;
    }
    lab.stop().await;
    Ok(())
}

/// Starts the node's process anew, where the database lacks all load balancers or has them already.
async fn start(lab: &mut Lab, size: u32, empty: bool) -> Result<()> {
    let node = lab.cluster.node(1).clone();
    lab.agents.nodes.get("node1").context("no process")?.clone().kill9().await?;
    let options = || {
        Options::unix(node.nb_socket(), "OVN_Northbound")
            .monitor(MonitorSpec::none().table("Load_Balancer", &["name"]))
    };
    let nb = Replica::connect(options());
    nb.ready().await;
    if empty {
        let deletes = nb.read(|cache| {
            cache.rows("Load_Balancer").map(|row| Op::delete("Load_Balancer", row.uuid())).collect::<Vec<_>>()
        });
        nb.transact(deletes).await?;
    }
    drop(nb);
    let begun = Instant::now();
    lab.agents.start_node(&node).await?;
    ready(&node).await?;
    let took = begun.elapsed();
    let nb = Replica::connect(options());
    nb.ready().await;
    let rows = nb.read(|cache| cache.rows("Load_Balancer").count());
    // The API server's own Service is one more.
    ensure!(rows == size as usize + 1, "{rows} load balancers for {size} services");
    // What is left once the lists' last pieces are gone.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (memory, cpu) = lab.usage("node1")?;
    println!(
        "{:<50} {:.0} ms, {cpu:?} CPU, {:.1} MB resident",
        format!("{size} services: start → programmed, {}", if empty { "no rows" } else { "rows there" }),
        took.as_secs_f64() * 1000.0,
        memory as f64 / 1e6
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

/// One endpoint of another service changes every 20 ms.
async fn changes(lab: &Lab, size: u32) -> Result<()> {
    let node = lab.cluster.node(1);
    let options = Options::unix(node.nb_socket(), "OVN_Northbound").monitor(MonitorSpec::all());
    let (_client, notices) = ovsdb::connect(options);
    let mut watch =
        Watch { notices, cache: None, sent: HashMap::new(), figures: Figures::default(), rows: 0 };
    while watch.cache.is_none() {
        watch.next().await?;
    }
    let server = lab.api.embedded().context("this bench needs the embedded API server")?;
    let mut pace = tokio::time::interval(PACE);
    let mut number = 0;
    while number < CHANGES || !watch.sent.is_empty() {
        tokio::select! {
            biased;
            result = watch.next() => result?,
            _ = pace.tick(), if number < CHANGES => {
                let service = number * 7919 % size;
                let (_, mut slice) = objects(service);
                let ip = format!("10.244.{}.{}", 200 + number / 250, number % 250 + 1);
                slice["endpoints"][0]["addresses"] = json!([ip]);
                watch.sent.insert(ip, Instant::now());
                server.store().update(slice).map_err(|error| anyhow::anyhow!("{error:?}"))?;
                number += 1;
            }
        }
    }
    watch.figures.print(&format!("{size} services: endpoint change"));
    println!("{:<50} {:.2}", "  rows written for each", f64::from(watch.rows) / f64::from(CHANGES));
    Ok(())
}

struct Watch {
    notices: Notices,
    cache: Option<Cache>,
    /// Addresses on their way, and since when.
    sent: HashMap<String, Instant>,
    figures: Figures,
    rows: u32,
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
                for row in changes.iter().filter_map(|change| change.new.as_ref()) {
                    let vips = row.get("vips").into_iter().flat_map(|vips| vips.str_pairs());
                    for backend in vips.flat_map(|(_, backends)| backends.split(',')) {
                        let ip = backend.rsplit_once(':').map_or("", |(ip, _)| ip);
                        if let Some(since) = self.sent.remove(ip) {
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

fn fill(lab: &Lab, numbers: std::ops::Range<u32>) -> Result<()> {
    let server = lab.api.embedded().context("this bench needs the embedded API server")?;
    for number in numbers {
        let (service, slice) = objects(number);
        for object in [service, slice] {
            server.store().create(object).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        }
    }
    Ok(())
}

/// A Service without selector and its slice.
fn objects(number: u32) -> (Value, Value) {
    let (high, low) = (number / 250, number % 250 + 1);
    let name = format!("s{number}");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "bench"},
        "spec": {"clusterIP": format!("10.96.{}.{low}", high + 1),
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}});
    let endpoints: Vec<Value> = (0..4u32)
        .map(|at| {
            let pod = number * 4 + at;
            let ip = format!("10.244.{}.{}", pod / 250, pod % 250 + 1);
            json!({"addresses": [ip], "nodeName": format!("node{}", at + 1),
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "targetRef": {"kind": "Pod", "name": format!("{name}-{at}"), "namespace": "bench"}})
        })
        .collect();
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{name}-a"), "namespace": "bench", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints});
    (service, slice)
}
