//! Prints what a large cluster costs the server: `load [NODES] [PODS] [CHANGES]`. Watch it from outside with curl or
//! kubectl while it waits.

use std::{net::TcpListener, time::Instant};

use serde_json::{Value, json};

fn pod(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "registry/image:1",
            "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}]}]}})
}

/// CPU seconds of this process, from the kernel's accounting (100 ticks a second).
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum();
    ticks / 100.0
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let number = |at: usize, default: usize| numbers.get(at).copied().unwrap_or(default);
    let (nodes, pods, changes) = (number(0, 250), number(1, 10_000), number(2, 20_000));
    let mut options = devapi::Options::new(TcpListener::bind("127.0.0.1:0")?);
    options.tokens = None;
    let server = devapi::Server::start(options).await?;
    let store = server.store();
    let began = Instant::now();
    for n in 0..nodes {
        store.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{n}")}}))?;
    }
    for n in 0..pods {
        store.create(pod(&format!("p{n}"), &format!("n{}", n % nodes.max(1))))?;
    }
    println!("{nodes} nodes, {pods} pods seeded in {:?}, {:.2} s CPU", began.elapsed(), cpu());
    println!("serving {}; press Enter to change {changes} pod statuses", server.url());
    let mut line = String::new();
    tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut line)).await??;
    let (began, before) = (Instant::now(), cpu());
    for n in 0..changes {
        let patch = json!({"metadata": {"annotations": {"k8s.ovn.org/pod-networks": n.to_string()}}});
        store.merge("pods", "default", &format!("p{}", n % pods.max(1)), &patch, true)?;
        if n % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    println!("{changes} patches in {:?}, {:.2} s CPU", began.elapsed(), cpu() - before);
    server.stop().await;
    Ok(())
}
