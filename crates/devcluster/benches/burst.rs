//! `cargo xtask bench burst`: 200 pods at once on one node, from the pod's creation until its annotation is in the API.

mod lab;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use devcluster::mk_pod;
use lab::{Figures, Lab, is_annotated};

const PODS: usize = 200;
const ROUNDS: usize = 3;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let lab = Lab::start(1).await?;
    let server = lab.api.embedded().context("this bench needs the embedded API server")?;
    for round in 0..ROUNDS {
        let name = |number: usize| format!("burst{round}-{number}");
        let mut created = BTreeMap::new();
        for number in 0..PODS {
            let pod = mk_pod("bench", &name(number), "node1", &["sleep"]);
            server.store().create(pod).map_err(|error| anyhow::anyhow!("{error:?}"))?;
            created.insert(name(number), Instant::now());
        }
        let mut figures = Figures::default();
        let begin = Instant::now();
        while !created.is_empty() && begin.elapsed() < Duration::from_secs(60) {
            let pods = server.store().list("pods", "bench");
            let now = Instant::now();
            for pod in pods.iter().filter(|pod| is_annotated(pod)) {
                let key = pod.pointer("/metadata/name").and_then(|name| name.as_str()).unwrap_or_default();
                if let Some(since) = created.remove(key) {
                    figures.add(now - since);
                }
            }
            // The server runs in this process: let it.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        anyhow::ensure!(created.is_empty(), "{} pods were never annotated", created.len());
        figures.print(&format!("{PODS} pods at once, round {}", round + 1));
        for number in 0..PODS {
            let _ = server.store().delete("pods", "bench", &name(number), true);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (memory, cpu) = lab.usage("node1")?;
    println!("{:<38} {:.1} MB, {cpu:?} CPU", "node process afterwards", memory as f64 / 1e6);
    lab.stop().await;
    Ok(())
}
