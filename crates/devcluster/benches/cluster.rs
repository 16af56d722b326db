//! `cargo xtask bench cluster`: a node's process where the API holds 250 nodes and 10 000 pods: start until the CNI
//! configuration is written, memory and CPU time; and a process on a small idle cluster.

mod lab;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use devcluster::{api, mk_pod, sandbox};
use lab::Lab;
use serde_json::json;

const NODES: u32 = 250;
const PODS: u32 = 10_000;
const RUNS: usize = 3;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let mut lab = Lab::start(2).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (memory, cpu) = lab.usage("node1")?;
    println!(
        "{:<38} {:.1} MB resident, {cpu:?} CPU since start",
        "idle, 2 nodes, no pods",
        memory as f64 / 1e6
    );

    fill(&lab)?;
    let node = lab.cluster.node(1).clone();
    for run in 1..=RUNS {
        let process = lab.agents.nodes.get("node1").context("no process")?.clone();
        process.kill9().await?;
        let conf = node.outside(sandbox::CONF_DIR).join("10-ovn-kubernetes.conf");
        std::fs::remove_file(&conf).with_context(|| format!("removing {}", conf.display()))?;
        let start = Instant::now();
        lab.agents.start_node(&node).await?;
        sandbox::network_ready(&node).await?;
        let took = start.elapsed();
        let (_, cpu) = lab.usage("node1")?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (memory, settled) = lab.usage("node1")?;
        println!(
            "{:<38} {:.0} ms, {cpu:?} CPU until then, {settled:?} CPU 3 s later, {:.1} MB resident",
            format!("{NODES} nodes, {PODS} pods: start → CNI, run {run}"),
            took.as_secs_f64() * 1000.0,
            memory as f64 / 1e6
        );
    }
    lab.stop().await;
    Ok(())
}

/// Nodes announced in full, as their own processes would, and pods with addresses on all of them.
fn fill(lab: &Lab) -> Result<()> {
    let server = lab.api.embedded().context("this bench needs the embedded API server")?;
    let failed = |error| anyhow::anyhow!("{error:?}");
    for number in 3..=NODES {
        let mut node = api::mk_node(&format!("node{number}"), &[]);
        node["metadata"]["annotations"] = json!({
            "k8s.ovn.org/node-subnets": format!("{{\"default\":[\"10.244.{}.0/24\"]}}", number - 1),
            "k8s.ovn.org/node-id": (number + 1).to_string(),
            "k8s.ovn.org/node-transit-switch-port-ifaddr": format!("{{\"ipv4\":\"100.88.0.{}/16\"}}", number + 1),
            "k8s.ovn.org/node-chassis-id": format!("00000000-0000-4000-8000-{number:012}"),
            "k8s.ovn.org/node-encap-ips": format!("[\"172.19.0.{number}\"]"),
            "k8s.ovn.org/host-cidrs": format!("[\"172.19.0.{number}/16\"]"),
        });
        server.store().create(node).map_err(failed)?;
    }
    for number in 0..PODS {
        let on = number % NODES + 1;
        let mut pod = mk_pod("bench", &format!("p{number}"), &format!("node{on}"), &["sleep"]);
        if on > 2 {
            let ip = format!("10.244.{}.{}", on - 1, number / NODES + 3);
            let value = format!(
                "{{\"default\":{{\"ip_addresses\":[\"{ip}/24\"],\"mac_address\":\"0a:58:0a:f4:00:01\",\"role\":\"primary\"}}}}"
            );
            pod["metadata"]["annotations"] = json!({ "k8s.ovn.org/pod-networks": value });
        }
        server.store().create(pod).map_err(failed)?;
    }
    Ok(())
}
