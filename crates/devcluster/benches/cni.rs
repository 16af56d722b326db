//! `cargo xtask bench cni`: CNI ADD and DEL beside OVN's own share of attaching a port, measured in the same run.
//!
//! Durations are those of the plugin's process, start to exit, as the runtime sees them. *cold*: ADD is called the
//! moment the pod object exists; *annotated*: its addresses are known already.

mod lab;

use anyhow::Result;
use devcluster::{PodArgs, Sandbox};
use futures::future::try_join_all;
use lab::{Figures, Floor, Lab, all_annotated, print_stages};

const SEQUENTIAL: u32 = 60;
const AT_ONCE: usize = 20;
const ROUNDS: usize = 4;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let lab = Lab::start(2).await?;
    let node = lab.cluster.node(1).clone();
    let floor = Floor::connect(&node).await;
    let mut figures = Figures::default();
    for number in 0..SEQUENTIAL {
        figures.add(floor.measure(number).await?);
    }
    figures.print("OVN's own share");
    let floor_p50 = figures.percentile(50);

    let mut pods = 0;
    for cold in [true, false] {
        let (mut add, mut del) = (Figures::default(), Figures::default());
        for _ in 0..SEQUENTIAL {
            pods += 1;
            let sandbox = Sandbox::create(&node).await?;
            let pod = create(&lab, pods, cold).await?;
            let reply = sandbox.cni("ADD", &pod).await?;
            reply.success()?;
            add.add(reply.took);
            let reply = sandbox.cni("DEL", &pod).await?;
            reply.success()?;
            del.add(reply.took);
            sandbox.remove().await?;
            remove(&lab, &pod).await?;
        }
        let kind = if cold { "cold" } else { "annotated" };
        add.print(&format!("ADD, {kind}, one after the other"));
        del.print(&format!("DEL, {kind}, one after the other"));
        println!(
            "{:<38} {:.2}",
            format!("ADD p50 / OVN's share p50, {kind}"),
            add.percentile(50).as_secs_f64() / floor_p50.as_secs_f64()
        );
        print_stages(&node)?;
    }
    for cold in [true, false] {
        let (mut add, mut del) = (Figures::default(), Figures::default());
        for _ in 0..ROUNDS {
            let sandboxes = try_join_all((0..AT_ONCE).map(|_| Sandbox::create(&node))).await?;
            let mut known = Vec::new();
            for _ in 0..AT_ONCE {
                pods += 1;
                known.push(create(&lab, pods, cold).await?);
            }
            let calls = sandboxes.iter().zip(&known).map(|(sandbox, pod)| sandbox.cni("ADD", pod));
            for reply in try_join_all(calls).await? {
                reply.success()?;
                add.add(reply.took);
            }
            let calls = sandboxes.iter().zip(&known).map(|(sandbox, pod)| sandbox.cni("DEL", pod));
            for reply in try_join_all(calls).await? {
                reply.success()?;
                del.add(reply.took);
            }
            for (sandbox, pod) in sandboxes.iter().zip(&known) {
                sandbox.remove().await?;
                remove(&lab, pod).await?;
            }
        }
        let kind = if cold { "cold" } else { "annotated" };
        add.print(&format!("ADD, {kind}, {AT_ONCE} at once"));
        del.print(&format!("DEL, {kind}, {AT_ONCE} at once"));
    }
    print_stages(&node)?;
    let (memory, cpu) = lab.usage("node1")?;
    println!("{:<38} {:.1} MB, {cpu:?} CPU", "node process afterwards", memory as f64 / 1e6);
    lab.stop().await;
    Ok(())
}

async fn create(lab: &Lab, number: usize, cold: bool) -> Result<PodArgs> {
    let pod = lab.pod(&format!("p{number}"), "node1").await?;
    if !cold {
        let server = lab.api.embedded();
        let count = server.map_or(0, |server| server.store().list("pods", "bench").len());
        all_annotated(lab, count).await?;
    }
    Ok(pod)
}

async fn remove(lab: &Lab, pod: &PodArgs) -> Result<()> {
    if let Some(server) = lab.api.embedded() {
        let _ = server.store().delete("pods", "bench", &pod.name, true);
    }
    Ok(())
}
