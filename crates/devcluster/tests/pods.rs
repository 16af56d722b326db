//! The pod runner against the embedded API, with a plugin that stands for ours.

mod common;

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use devcluster::{ApiChoice, Cluster, Program, Stack, binaries, mk_namespace, mk_pod};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);

/// One node with the embedded API and a namespace `shop`.
async fn start() -> Result<Stack> {
    let cluster = Cluster::builder().nodes(1).start().await?;
    let mut stack = Stack::without_agents(cluster, ApiChoice::Embedded).await?;
    stack.apply(&mk_namespace("shop")).await?;
    Ok(stack)
}

fn run<T>(test: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test)
}

async fn until(api: &Api<Pod>, name: &str, holds: impl Fn(&Pod) -> bool) -> Result<Pod> {
    let wait = await_condition(api.clone(), name, |pod: Option<&Pod>| pod.is_some_and(&holds));
    let pod =
        tokio::time::timeout(PATIENCE, wait).await.with_context(|| format!("{name} never got there"))??;
    pod.with_context(|| format!("{name} is gone"))
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

#[test]
fn a_pod_lives_from_sandbox_to_deletion() -> Result<()> {
    run(async {
        let mut stack = start().await?;
        let node = stack.cluster().node(1).clone();
        let probe = binaries::find("devcluster-probe")?.display().to_string();
        let pod = mk_pod("shop", "web", "node1", &[&probe, "serve", "--port", "8080"]);
        stack.apply(&pod).await?;
        // Without a CNI configuration nothing is tried.
        let api: Api<Pod> = Api::namespaced(stack.api().client(), "shop");
        until(&api, "web", |pod| {
            phase(pod) == "Pending" && pod.status.as_ref().is_some_and(|s| s.host_ip.is_some())
        })
        .await?;
        ensure!(stack.runner("node1")?.record("shop", "web").is_some_and(|record| record.attempts == 0));
        common::install(&node)?;
        let handle = stack.running("shop", "web", PATIENCE).await?;
        let address = handle.record.addresses.first().context("no address")?.clone();
        ensure!(address.starts_with("10.9.0.") && handle.record.add_took.is_some());
        let seen = until(&api, "web", |pod| phase(pod) == "Running").await?;
        let status = seen.status.context("no status")?;
        ensure!(status.pod_ip.as_deref() == Some(address.as_str()));
        ensure!(status.host_ip.as_deref() == Some("172.18.0.1"));
        ensure!(status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True"));

        // The server is a real one, in the pod's network and not in the node's.
        let target = format!("{address}:8080");
        handle.exec(&["ip", "link", "set", "eth0", "up"]).await?;
        let answer = handle.exec(&[&probe, "tcp", &target, "--tries", "5", "--bytes", "100000"]).await?;
        ensure!(answer.starts_with(&format!("peer={address}:")), "{answer}");
        let answer = handle.exec(&[&probe, "udp", &target, "--bytes", "1"]).await?;
        ensure!(answer.contains("bytes=1"), "{answer}");
        ensure!(handle.exec(&[&probe, "http", &target]).await?.contains("peer "));
        ensure!(node.exec(&["ip", "address"]).await.is_ok_and(|text| !text.contains(&address)));

        api.delete("web", &DeleteParams::default()).await?;
        stack.runner("node1")?.gone("shop", "web", PATIENCE).await?;
        ensure!(api.get_opt("web").await?.is_none());
        let calls = fs::read_to_string(node.outside("/run/calls"))?;
        let calls: Vec<&str> = calls.lines().filter_map(|line| line.split(' ').next()).collect();
        ensure!(calls == ["ADD", "DEL"], "{calls:?}");
        ensure!(!node.exec(&["ip", "netns"]).await?.contains("cni-"));
        stack.stop().await
    })
}

#[test]
fn a_failed_sandbox_is_replaced_and_told() -> Result<()> {
    run(async {
        let mut stack = start().await?;
        let node = stack.cluster().node(1).clone();
        fs::write(node.outside("/run/broken"), "")?;
        common::install(&node)?;
        stack.apply(&mk_pod("shop", "late", "node1", &["sleep", "infinity"])).await?;
        let runner = stack.runner("node1")?;
        let key = ("shop".to_owned(), "late".to_owned());
        let failed = runner.wait_for(|records| records.get(&key)?.last_error.clone());
        let error = tokio::time::timeout(PATIENCE, failed).await??;
        ensure!(error.contains("code 11: no address yet a test"), "{error}");
        fs::remove_file(node.outside("/run/broken"))?;
        let handle = stack.running("shop", "late", PATIENCE).await?;
        ensure!(handle.record.attempts >= 2);
        let calls = fs::read_to_string(node.outside("/run/calls"))?;
        let ids: Vec<&str> = calls.lines().filter_map(|line| line.strip_prefix("ADD ")).collect();
        ensure!(ids.len() >= 2 && ids[0] != ids[1], "every attempt has a sandbox of its own: {calls}");
        ensure!(calls.contains(&format!("DEL {}", ids[0])), "{calls}");
        stack.stop().await
    })
}

#[test]
fn pods_finish_restart_and_share_the_host() -> Result<()> {
    run(async {
        let mut stack = start().await?;
        let node = stack.cluster().node(1).clone();
        common::install(&node)?;
        let api: Api<Pod> = Api::namespaced(stack.api().client(), "shop");

        let mut done = mk_pod("shop", "done", "node1", &["sh", "-c", "echo for $WHO at $(ADDRESS)"]);
        done["spec"]["restartPolicy"] = json!("Never");
        done["spec"]["containers"][0]["env"] = json!([
            { "name": "WHO", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            { "name": "ADDRESS", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
        ]);
        stack.apply(&done).await?;
        let mut failed = mk_pod("shop", "failed", "node1", &["sh", "-c", "exit 3"]);
        failed["spec"]["restartPolicy"] = json!("Never");
        stack.apply(&failed).await?;
        let mut again = mk_pod("shop", "again", "node1", &["sh", "-c", "exit 1"]);
        again["spec"]["initContainers"] = json!([{ "name": "first", "image": "x", "command": ["true"] }]);
        stack.apply(&again).await?;
        let mut host = mk_pod("shop", "host", "node1", &["sleep", "infinity"]);
        host["spec"]["hostNetwork"] = json!(true);
        stack.apply(&host).await?;

        let pod = until(&api, "done", |pod| phase(pod) == "Succeeded").await?;
        let address = pod.status.and_then(|status| status.pod_ip).context("no address")?;
        let log = fs::read_to_string(node.outside("/var/log/shop_done_main.log"))?;
        ensure!(log == format!("for done at {address}\n"), "{log:?}");
        let pod = until(&api, "failed", |pod| phase(pod) == "Failed").await?;
        let code = pod.status.and_then(|status| {
            status.container_statuses?.first()?.state.as_ref()?.terminated.as_ref().map(|end| end.exit_code)
        });
        ensure!(code == Some(3));
        until(&api, "again", |pod| {
            let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            containers.into_iter().any(|one| one.restart_count >= 2)
        })
        .await?;
        let handle = stack.running("shop", "host", PATIENCE).await?;
        ensure!(handle.record.addresses == ["172.18.0.1"] && handle.record.sandbox.is_none());

        // A finished pod has no network any more; deleting it is quick and calls nothing.
        let runner = stack.runner("node1")?;
        let key = ("shop".to_owned(), "done".to_owned());
        let torn_down = runner.wait_for(|records| records.get(&key)?.sandbox.is_none().then_some(()));
        tokio::time::timeout(PATIENCE, torn_down).await??;
        api.delete("done", &DeleteParams::default()).await?;
        runner.gone("shop", "done", PATIENCE).await?;

        // A name that returns is another pod.
        let first = api.get("host").await?;
        let second: Pod = serde_json::from_value(host)?;
        api.delete("host", &DeleteParams::default()).await?;
        runner.gone("shop", "host", PATIENCE).await?;
        api.create(&PostParams::default(), &second).await?;
        let handle = stack.running("shop", "host", PATIENCE).await?;
        ensure!(Some(&handle.record.uid) != first.metadata.uid.as_ref());
        let argv = ["true"].map(str::to_owned).to_vec();
        ensure!(handle.spawn(Program { argv, ..Program::default() }).await?.wait().await?.success());
        stack.stop().await
    })
}
