//! What the benches share: figures, pods, and OVN's own share of attaching a port.

#![allow(dead_code)] // each bench uses its own part

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use devcluster::{
    AgentOptions, Agents, Api, ApiChoice, Cluster, Node, PodArgs, api, mk_namespace, mk_pod, sandbox,
};
use ovsdb::{Datum, IndexSpec, MonitorSpec, Mutation, Mutator, Op, Options, Replica, Uuid};

/// A cluster with our programs but without a pod runner: the bench is the runtime.
pub(crate) struct Lab {
    pub(crate) agents: Agents,
    pub(crate) api: Api,
    pub(crate) cluster: Cluster,
}

impl Lab {
    pub(crate) async fn start(nodes: u8) -> Result<Lab> {
        let cluster = Cluster::builder().nodes(nodes).start().await?;
        let api = Api::start(&cluster, ApiChoice::Any).await?;
        let agents = Agents::start(&cluster, &api, AgentOptions::default()).await?;
        for node in cluster.nodes() {
            sandbox::network_ready(node).await?;
        }
        api::apply(&api.client(), &mk_namespace("bench")).await?;
        Ok(Lab { agents, api, cluster })
    }

    /// Creates a pod object bound to a node; it never runs.
    pub(crate) async fn pod(&self, name: &str, node: &str) -> Result<PodArgs> {
        let pod = api::apply(&self.api.client(), &mk_pod("bench", name, node, &["sleep"])).await?;
        let uid = pod.pointer("/metadata/uid").and_then(|uid| uid.as_str()).context("a pod without UID")?;
        Ok(PodArgs { namespace: "bench".into(), name: name.into(), uid: Some(uid.into()) })
    }

    /// Resident memory in bytes and CPU time of a node's process so far.
    pub(crate) fn usage(&self, node: &str) -> Result<(u64, Duration)> {
        let process = self.agents.nodes.get(node).context("no process on that node")?;
        let pid = process.outside_pid().context("the process is gone")?;
        usage_of(pid)
    }

    pub(crate) async fn stop(self) {
        drop(self.agents);
        self.cluster.stop().await;
    }
}

/// Resident memory in bytes and CPU time of a process.
pub(crate) fn usage_of(pid: u32) -> Result<(u64, Duration)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.split_whitespace().next().context("no figure")?.parse()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().context("no fields")?.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok((kib * 1024, Duration::from_millis(ticks * 10)))
}

/// A row of figures.
#[derive(Default)]
pub(crate) struct Figures(Vec<Duration>);

impl Figures {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(at).copied().unwrap_or_default()
    }

    pub(crate) fn print(&self, what: &str) {
        let ms = |percent| self.percentile(percent).as_secs_f64() * 1000.0;
        println!(
            "{what:<38} n={:<4} p50 {:>7.1} ms   p90 {:>7.1} ms   p99 {:>7.1} ms   max {:>7.1} ms",
            self.0.len(),
            ms(50),
            ms(90),
            ms(99),
            ms(100)
        );
    }
}

/// OVN's own share: a logical port and its interface inserted over open connections, until `ovn-installed`.
pub(crate) struct Floor {
    nb: Replica,
    ovs: Replica,
    node: Arc<Node>,
}

impl Floor {
    pub(crate) async fn connect(node: &Arc<Node>) -> Floor {
        let nb = Options::unix(node.nb_socket(), "OVN_Northbound")
            .monitor(MonitorSpec::none().table("Logical_Switch", &["name"]));
        let ovs = Options::unix(node.ovs_socket(), "Open_vSwitch")
            .monitor(
                MonitorSpec::none().table("Bridge", &["name"]).table("Interface", &["name", "external_ids"]),
            )
            .index(IndexSpec::map_key("Interface", "external_ids", "iface-id"));
        let floor = Floor { nb: Replica::connect(nb), ovs: Replica::connect(ovs), node: node.clone() };
        floor.nb.ready().await;
        floor.ovs.ready().await;
        floor
    }

    pub(crate) async fn measure(&self, number: u32) -> Result<Duration> {
        let (link, port) = (format!("fl{number}"), format!("bench_floor-{number}"));
        self.node
            .exec(&["ip", "link", "add", &link, "type", "veth", "peer", "name", &format!("{link}p")])
            .await?;
        self.node.exec(&["ip", "link", "set", &link, "up"]).await?;
        let row = |replica: &Replica, table: &'static str, name: &str| {
            replica.read(|cache| {
                cache.rows(table).find(|row| row.str("name") == Some(name)).map(|row| row.uuid())
            })
        };
        let switch = row(&self.nb, "Logical_Switch", self.node.name()).context("no switch")?;
        let bridge = row(&self.ovs, "Bridge", "br-int").context("no br-int")?;
        let id = |what: &str| Uuid::v5(&Uuid::NIL, format!("{what} {port}").as_bytes());
        let add = |column: &'static str, uuid: Uuid| {
            vec![Mutation { column: column.into(), mutator: Mutator::Insert, value: Datum::from(uuid) }]
        };
        let last = 200 + number % 50;
        let logical = vec![
            Op::insert(
                "Logical_Switch_Port",
                id("lsp"),
                vec![
                    ("name".into(), Datum::from(port.as_str())),
                    ("addresses".into(), Datum::from(format!("0a:58:0a:f4:00:{last:02x} 10.244.0.{last}"))),
                ],
            ),
            Op::mutate("Logical_Switch", switch, add("ports", id("lsp"))),
        ];
        let plugged = vec![
            Op::insert(
                "Interface",
                id("interface"),
                vec![
                    ("name".into(), Datum::from(link.as_str())),
                    ("external_ids".into(), Datum::map([("iface-id", port.as_str())])),
                ],
            ),
            Op::insert(
                "Port",
                id("port"),
                vec![
                    ("name".into(), Datum::from(link.as_str())),
                    ("interfaces".into(), Datum::from(id("interface"))),
                ],
            ),
            Op::mutate("Bridge", bridge, add("ports", id("port"))),
        ];
        let start = Instant::now();
        let (nb, ovs) = (self.nb.transact(logical), self.ovs.transact(plugged));
        let (nb, ovs) = tokio::join!(nb, ovs);
        nb?;
        ovs?;
        self.ovs
            .wait_for(|cache| {
                let row = cache.rows("Interface").find(|row| row.uuid() == id("interface"))?;
                row.key("external_ids", "ovn-installed").filter(|value| *value == "true").map(drop)
            })
            .await;
        let took = start.elapsed();
        let remove = |column: &'static str, uuid: Uuid| {
            vec![Mutation { column: column.into(), mutator: Mutator::Delete, value: Datum::from(uuid) }]
        };
        self.ovs.transact(vec![Op::mutate("Bridge", bridge, remove("ports", id("port")))]).await?;
        self.nb.transact(vec![Op::mutate("Logical_Switch", switch, remove("ports", id("lsp")))]).await?;
        self.node.exec(&["ip", "link", "delete", &link]).await?;
        Ok(took)
    }
}

/// Waits until every pod of the namespace `bench` has its annotation.
pub(crate) async fn all_annotated(lab: &Lab, count: usize) -> Result<()> {
    let server = lab.api.embedded().context("this bench needs the embedded API server")?;
    for _ in 0..20_000 {
        let pods = server.store().list("pods", "bench");
        let done = pods.iter().filter(|pod| is_annotated(pod)).count();
        if done >= count {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    anyhow::bail!("not all pods were annotated")
}

pub(crate) fn is_annotated(pod: &serde_json::Value) -> bool {
    pod.pointer("/metadata/annotations/k8s.ovn.org~1pod-networks").is_some()
}

/// What the node's process serves under `/metrics`.
pub(crate) fn metrics(node: &Node) -> Result<String> {
    use std::io::{Read, Write};
    node.in_network(|| {
        let mut stream = std::net::TcpStream::connect("127.0.0.1:9410")?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    })
}

/// Mean of each stage of a pod's way, from the metrics of the node's process.
pub(crate) fn print_stages(node: &Node) -> Result<()> {
    let text = metrics(node)?;
    let value = |what: &str, stage: &str| -> f64 {
        let name = format!("ovnkube_pod_stage_duration_seconds_{what}{{stage=\"{stage}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or_default()
    };
    for stage in ["event_seen", "allocated", "committed", "annotated", "cni_wait", "plumbed", "installed"] {
        let (sum, count) = (value("sum", stage), value("count", stage));
        if count > 0.0 {
            println!("  stage {stage:<30} n={count:<4} mean {:>6.2} ms", sum / count * 1000.0);
        }
    }
    Ok(())
}
