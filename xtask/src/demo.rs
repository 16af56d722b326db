//! `demo`: a cluster on this machine, pods on it, and who reaches whom.

mod matrix;
mod table;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use devcluster::{
    AgentOptions, Agents, Api, ApiChoice, Cluster, Families, Node, PodHandle, Runner, api, binaries,
};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::{cli, progress, setup, test};
use table::Table;

/// How long pods may take to run before the demo gives up and shows the logs.
const PATIENCE: Duration = Duration::from_secs(60);

/// All that runs; dropped in this order.
struct Up {
    runners: BTreeMap<String, Runner>,
    agents: Option<Agents>,
    api: Option<Api>,
    cluster: Cluster,
}

/// Runs the demo; returns when everything is gone again.
pub(crate) fn run(demo: &cli::Demo) -> Result<()> {
    setup::run()?;
    progress::line("building");
    binaries::use_dir(test::build(true)?);
    progress::line("built");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stopped = Stopped::new()?;
        let cluster = tokio::select! {
            cluster = start_nodes(demo) => cluster?,
            () = stopped.wait() => bail!("interrupted"),
        };
        let mut up = Up { runners: BTreeMap::new(), agents: None, api: None, cluster };
        let objects = objects(demo)?;
        let shown = tokio::select! {
            shown = show(demo, &objects, &mut up) => shown,
            () = stopped.wait() => Err(anyhow::anyhow!("interrupted")),
        };
        if shown.is_ok() && demo.keep {
            how_to_use(&up);
            stopped.wait().await;
        }
        progress::line("taking everything down");
        up.down(&objects).await;
        progress::line("done");
        shown
    })
}

async fn start_nodes(demo: &cli::Demo) -> Result<Cluster> {
    progress::line(&format!("starting {} nodes with OVN and Open vSwitch", demo.nodes));
    let cluster = Cluster::builder().nodes(demo.nodes).families(families(demo.ip)).start().await?;
    progress::line("nodes are up");
    Ok(cluster)
}

fn families(ip: cli::Ip) -> Families {
    match ip {
        cli::Ip::V4 => Families::V4,
        cli::Ip::V6 => Families::V6,
        cli::Ip::Dual => Families::Dual,
    }
}

/// The objects of the file; pods bound to nodes this cluster does not have move to those it has.
fn objects(demo: &cli::Demo) -> Result<Vec<Value>> {
    let file =
        if demo.objects.exists() { demo.objects.clone() } else { crate::check::root()?.join(&demo.objects) };
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let mut objects = api::documents(&text).with_context(|| format!("{} is not YAML", file.display()))?;
    for object in &mut objects {
        let Some(Value::String(node)) = object.pointer_mut("/spec/nodeName") else { continue };
        if let Some(number) = node.strip_prefix("node").and_then(|digits| digits.parse::<usize>().ok()) {
            *node = format!("node{}", (number.max(1) - 1) % usize::from(demo.nodes) + 1);
        }
    }
    // Nodes the file does not know get a pod like its first one.
    let first = objects.iter().find(|object| object["kind"] == "Pod").cloned();
    if let Some(first) = first {
        for number in 1..=demo.nodes {
            let name = format!("node{number}");
            if objects.iter().any(|object| object.pointer("/spec/nodeName").is_some_and(|node| *node == name))
            {
                continue;
            }
            let mut pod = first.clone();
            pod["metadata"]["name"] = format!("on-{name}").into();
            pod["spec"]["nodeName"] = name.into();
            objects.push(pod);
        }
    }
    Ok(objects)
}

async fn show(demo: &cli::Demo, objects: &[Value], up: &mut Up) -> Result<()> {
    let choice = demo.kubeconfig.clone().map_or(ApiChoice::Any, ApiChoice::Kubeconfig);
    progress::line("starting the Kubernetes API");
    let api = up.api.insert(Api::start(&up.cluster, choice).await?);
    progress::line("starting ovnkube: cluster manager on node1, controller and node agent on every node");
    let options = AgentOptions {
        extra: demo.extra.split_whitespace().map(str::to_owned).collect(),
        ..AgentOptions::default()
    };
    up.agents = Some(Agents::start(&up.cluster, api, options).await?);
    for node in up.cluster.nodes() {
        up.runners.insert(node.name().to_owned(), Runner::start(node.clone(), api.client()));
    }
    for object in objects {
        api::apply(&api.client(), object).await?;
    }
    progress::line(&format!("applied {}", demo.objects.display()));
    let pods = running(objects, up).await?;
    progress::line("all pods run");
    print_nodes(up).await?;
    print_pods(&pods);
    matrix::print(&pods, families(demo.ip)).await
}

/// Waits for the pods among `objects`, in their order.
async fn running(objects: &[Value], up: &Up) -> Result<Vec<matrix::Peer>> {
    let mut pods = Vec::new();
    for object in objects.iter().filter(|object| object["kind"] == "Pod") {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let name = text("/metadata/name").context("a pod without a name")?;
        let namespace = text("/metadata/namespace").unwrap_or("default");
        let node = text("/spec/nodeName").with_context(|| format!("pod {name} is bound to no node"))?;
        let runner = up.runners.get(node).with_context(|| format!("pod {name} wants {node}"))?;
        let pod = match runner.running(namespace, name, PATIENCE).await {
            Ok(pod) => pod,
            Err(error) => {
                let node = up.cluster.nodes().iter().find(|one| one.name() == node);
                let log = node.map(|node| Agents::log_tail(node, 30)).unwrap_or_default();
                bail!("{error:#}\nThe end of ovnkube's log there:\n{log}");
            }
        };
        progress::line(&format!("{namespace}/{name} runs"));
        let port = object.pointer("/spec/containers/0/ports/0/containerPort").and_then(Value::as_u64);
        pods.push(matrix::Peer {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            pod,
            port: port.and_then(|port| u16::try_from(port).ok()),
        });
    }
    Ok(pods)
}

async fn print_nodes(up: &Up) -> Result<()> {
    let mut table = Table::new(&["NODE", "ADDRESSES", "POD SUBNETS", "CHASSIS", "GENEVE PEERS"]);
    for node in up.cluster.nodes() {
        let addresses: Vec<String> = node.addresses().iter().map(ToString::to_string).collect();
        table.row([
            node.name().to_owned(),
            addresses.join(" "),
            subnets(up, node).await.unwrap_or_else(|| "?".to_owned()),
            node.chassis(),
            peers(node).await.unwrap_or_else(|| "?".to_owned()),
        ]);
    }
    println!("\n{table}");
    Ok(())
}

/// What the cluster manager gave the node.
async fn subnets(up: &Up, node: &Arc<Node>) -> Option<String> {
    let object = up.api.as_ref()?.node(node.name()).await.ok()?;
    let annotation = object.metadata.annotations?.remove("k8s.ovn.org/node-subnets")?;
    let value: Value = serde_json::from_str(&annotation).ok()?;
    let list = value.get("default")?;
    let subnets: Vec<&str> = match list {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    Some(subnets.join(" "))
}

/// Tunnels to other nodes that Open vSwitch has.
async fn peers(node: &Arc<Node>) -> Option<String> {
    let argv = ["ovs-vsctl", "--bare", "--columns=name", "find", "Interface", "type=geneve"];
    let names = node.ovn(&argv).await.ok()?;
    Some(names.split_whitespace().count().to_string())
}

fn print_pods(pods: &[matrix::Peer]) {
    let mut table = Table::new(&["POD", "IP", "MAC", "NODE", "CNI ADD"]);
    for peer in pods {
        let record = &peer.pod.record;
        table.row([
            format!("{}/{}", peer.namespace, peer.name),
            record.addresses.join(" "),
            record.mac.clone().unwrap_or_else(|| "host network".to_owned()),
            peer.pod.node().name().to_owned(),
            record
                .add_took
                .map_or_else(|| "-".to_owned(), |took| format!("{:.1} ms", took.as_secs_f64() * 1e3)),
        ]);
    }
    println!("{table}");
}

fn how_to_use(up: &Up) {
    if let Some(api) = &up.api {
        println!("The cluster stays until Ctrl-C. In another terminal:\n");
        println!("    export KUBECONFIG={}", api.kubeconfig().display());
        println!("    kubectl get nodes,pods -A -o wide\n");
    }
    println!("A shell on a node:\n");
    for node in up.cluster.nodes() {
        println!(
            "    PATH={}:$PATH nsenter -t $(pgrep -P {}) -a bash    # {}",
            up.cluster.prefix().bin_dir().display(),
            node.pid(),
            node.name()
        );
    }
    println!();
}

// === impl Up ===

impl Up {
    async fn down(mut self, objects: &[Value]) {
        if let Some(api) = self.api.take_if(|api| api.is_elsewhere()) {
            // A server that lives on shall not keep our nodes and pods.
            let nodes = self.cluster.nodes().iter().map(|node| api::mk_node(node.name(), &[]));
            for object in objects.iter().rev().cloned().chain(nodes) {
                if let Err(error) = api::delete(&api.client(), &object).await {
                    progress::line(&format!("{error:#}"));
                }
            }
        }
        self.runners.clear();
        self.cluster.stop().await;
    }
}

/// Ctrl-C, SIGTERM or a closed terminal.
struct Stopped {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

// === impl Stopped ===

impl Stopped {
    fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
