//! `demo`: a cluster on this machine, pods on it, and who reaches whom.

mod matrix;
mod table;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use devcluster::{AgentOptions, ApiChoice, Cluster, Families, Node, PodHandle, Stack, api, binaries};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::{cli, progress, setup, test};
use table::Table;

/// How long pods may take to run before the demo gives up and shows the logs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the demo; returns when everything is gone again.
pub(crate) fn run(demo: &cli::Demo) -> Result<()> {
    setup::run()?;
    let programs = if let Some(dir) = &demo.built {
        dir.clone()
    } else {
        progress::line("building");
        test::build(!demo.debug_build)?
    };
    binaries::use_dir(programs);
    progress::line("everything is built");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stopped = Stopped::new()?;
        let cluster = tokio::select! {
            cluster = start_nodes(demo) => cluster?,
            () = stopped.wait() => bail!("interrupted"),
        };
        let objects = objects(demo)?;
        let mut stack = tokio::select! {
            stack = start_api(demo, cluster) => stack?,
            () = stopped.wait() => bail!("interrupted"),
        };
        let shown = tokio::select! {
            shown = show(demo, &objects, &mut stack) => shown,
            () = stopped.wait() => Err(anyhow::anyhow!("interrupted")),
        };
        if shown.is_ok() && demo.keep {
            how_to_use(&stack);
            stopped.wait().await;
        }
        progress::line("taking everything down");
        let down = stack.stop().await;
        progress::line("done");
        shown.and(down)
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

async fn start_api(demo: &cli::Demo, cluster: Cluster) -> Result<Stack> {
    let choice = demo.kubeconfig.clone().map_or(ApiChoice::Any, ApiChoice::Kubeconfig);
    progress::line("starting the Kubernetes API");
    Stack::without_agents(cluster, choice).await
}

async fn show(demo: &cli::Demo, objects: &[Value], stack: &mut Stack) -> Result<()> {
    progress::line("starting ovnkube: cluster manager on node1, controller and node agent on every node");
    let options = AgentOptions {
        extra: demo.extra.split_whitespace().map(str::to_owned).collect(),
        ..AgentOptions::default()
    };
    stack.start_agents(options).await?;
    for object in objects {
        stack.apply(object).await?;
    }
    progress::line(&format!("applied {}", demo.objects.display()));
    let pods = running(objects, stack).await?;
    progress::line("all pods run");
    print_nodes(stack).await?;
    print_pods(&pods);
    matrix::print(&pods, families(demo.ip)).await
}

/// Waits for the pods among `objects`, in their order.
async fn running(objects: &[Value], stack: &Stack) -> Result<Vec<matrix::Peer>> {
    let mut pods = Vec::new();
    for object in objects.iter().filter(|object| object["kind"] == "Pod") {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let name = text("/metadata/name").context("a pod without a name")?;
        let namespace = text("/metadata/namespace").unwrap_or("default");
        let pod = stack.running(namespace, name, PATIENCE).await?;
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

async fn print_nodes(stack: &Stack) -> Result<()> {
    let mut table = Table::new(&["NODE", "ADDRESSES", "POD SUBNETS", "CHASSIS", "GENEVE PEERS"]);
    for node in stack.cluster().nodes() {
        let addresses: Vec<String> = node.addresses().iter().map(ToString::to_string).collect();
        table.row([
            node.name().to_owned(),
            addresses.join(" "),
            subnets(stack, node).await.unwrap_or_else(|| "?".to_owned()),
            node.chassis(),
            peers(node).await.unwrap_or_else(|| "?".to_owned()),
        ]);
    }
    println!("\n{table}");
    Ok(())
}

/// What the cluster manager gave the node.
async fn subnets(stack: &Stack, node: &Arc<Node>) -> Option<String> {
    let object = stack.api().node(node.name()).await.ok()?;
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

fn how_to_use(stack: &Stack) {
    println!("The cluster stays until Ctrl-C. In another terminal:\n");
    println!("    export KUBECONFIG={}", stack.api().kubeconfig().display());
    println!("    kubectl get nodes,pods -A -o wide\n");
    println!("A shell on a node:\n");
    for node in stack.cluster().nodes() {
        println!(
            "    PATH={}:$PATH nsenter -t $(pgrep -P {}) -a bash    # {}",
            stack.cluster().prefix().bin_dir().display(),
            node.pid(),
            node.name()
        );
    }
    println!();
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
