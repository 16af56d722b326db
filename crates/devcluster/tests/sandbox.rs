//! The plugin is called as a runtime calls it: shown with a plugin that writes down what it was given.

mod common;

use std::{fs, sync::Arc};

use anyhow::{Context, Result, ensure};
use devcluster::{Cluster, Node, PodArgs, Sandbox, sandbox};
use serde_json::{Value, json};

fn seen(node: &Arc<Node>, what: &str) -> Result<String> {
    let file = node.outside(format!("/run/seen.{what}"));
    fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
}

#[test]
fn the_plugin_gets_what_a_runtime_gives() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cluster = Cluster::builder().nodes(1).start().await?;
        let node = cluster.node(1);
        ensure!(sandbox::conf(node).is_err(), "a fresh node has no configuration");
        let (ready, installed) = tokio::join!(sandbox::network_ready(node), async { common::install(node) });
        ready.and(installed)?;

        let sandbox = Sandbox::create(node).await?;
        let pod = PodArgs { namespace: "shop".into(), name: "web".into(), uid: Some("u-1".into()) };
        let reply = sandbox.cni("ADD", &pod).await?;
        reply.success()?;
        let address = reply.addresses().first().cloned().context("no address")?;
        ensure!(address.starts_with("10.9.0.") && reply.mac().as_deref() == Some("0a:58:0a:09:00:07"));
        let env = seen(node, "ADD")?;
        for line in [
            format!("CNI_CONTAINERID={}", sandbox.id()),
            format!("CNI_NETNS={}", sandbox.netns()),
            "CNI_IFNAME=eth0".to_owned(),
            "CNI_PATH=/opt/cni/bin".to_owned(),
            format!(
                "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;\
                 K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID=u-1",
                sandbox.id()
            ),
        ] {
            ensure!(env.lines().any(|seen| seen == line), "{line} is not in\n{env}");
        }
        ensure!(sandbox.id().len() == 64);
        ensure!(sandbox.exec(&["ip", "-4", "address", "show", "eth0"]).await?.contains(&address));

        let check =
            sandbox.cni_with("CHECK", &pod, json!({ "prevResult": { "cniVersion": "1.1.0" } })).await?;
        ensure!(check.code() == Some(50), "{check:?}");
        ensure!(check.success().is_err_and(|error| error.to_string().contains("not ready")));
        let conf: Value = serde_json::from_str(&seen(node, "CHECK.conf")?)?;
        ensure!(conf["name"] == "fake" && conf["prevResult"]["cniVersion"] == "1.1.0", "{conf}");

        let version = sandbox::call_on_node(node, "VERSION", json!({})).await?;
        ensure!(version.success()?["supportedVersions"][1] == "1.1.0");
        sandbox.cni("DEL", &pod).await?.success()?;
        // Something still runs in the namespace: it ends with it.
        let argv = ["sleep", "infinity"].map(str::to_owned).to_vec();
        let left = sandbox.spawn(devcluster::Program { argv, ..Default::default() }).await?;
        sandbox.remove().await?;
        ensure!(left.wait().await?.signal == Some(9));
        ensure!(!node.exec(&["ip", "netns"]).await?.contains("cni-"));
        Ok(())
    })
}

#[test]
fn a_dead_builder_leaves_nothing() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // This very test, started again as the builder that is going to be killed.
    if std::env::var_os("DEVCLUSTER_TEST_VICTIM").is_some() {
        return runtime.block_on(async {
            let cluster = Cluster::builder().nodes(1).start().await?;
            println!("up {} {}", cluster.work_dir().display(), cluster.node(1).pid());
            std::future::pending().await
        });
    }
    runtime.block_on(async {
        let mut victim = tokio::process::Command::new(std::env::current_exe()?)
            .args(["--exact", "a_dead_builder_leaves_nothing", "--nocapture"])
            .env("DEVCLUSTER_TEST_VICTIM", "1")
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let out = victim.stdout.take().context("no pipe")?;
        let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(out));
        let (dir, pid) = loop {
            let line = lines.next_line().await?.context("the victim ended early")?;
            if let Some((_, rest)) = line.split_once("up ") {
                let (dir, pid) = rest.split_once(' ').context("an odd line")?;
                break (dir.to_owned(), pid.to_owned());
            }
        };
        ensure!(fs::exists(&dir)? && fs::exists(format!("/proc/{pid}"))?);
        victim.kill().await?;
        // The kernel and the janitor do the rest by themselves; nobody tells when they are done.
        let gone = async {
            while fs::exists(&dir).unwrap_or(true) || fs::exists(format!("/proc/{pid}")).unwrap_or(true) {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), gone)
            .await
            .context("something was left behind")
    })
}
