//! Real packets between real pods: our daemon and plugin on nodes with real OVN.

use std::{net::IpAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use devcluster::{
    AgentOptions, ApiChoice, Cluster, Families, PodHandle, Stack, binaries, mk_namespace, mk_pod,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// MTU of a pod's interface, as the agents' command line says.
const MTU: usize = 1342;

fn run<T>(test: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test)
}

/// Two pods with a server on every node.
async fn servers(stack: &mut Stack) -> Result<Vec<(String, PodHandle)>> {
    let probe = binaries::find("devcluster-probe")?.display().to_string();
    stack.apply(&mk_namespace("packets")).await?;
    let mut names = Vec::new();
    for node in stack.cluster().nodes().to_vec() {
        for which in ["a", "b"] {
            let name = format!("{}-{which}", node.name());
            stack.apply(&mk_pod("packets", &name, node.name(), &[&probe, "serve"])).await?;
            names.push(name);
        }
    }
    let mut pods = Vec::new();
    for name in names {
        let pod = stack.running("packets", &name, PATIENCE).await?;
        pods.push((name, pod));
    }
    Ok(pods)
}

fn addresses(pod: &PodHandle) -> Vec<IpAddr> {
    pod.record.addresses.iter().filter_map(|text| text.parse().ok()).collect()
}

fn at(address: IpAddr) -> String {
    std::net::SocketAddr::new(address, 8080).to_string()
}

/// Every pod reaches every pod, with one byte and with as many as fit into a packet, and sees its own address kept.
async fn all_pairs(families: Families, expected: usize) -> Result<()> {
    let builder = Cluster::builder().nodes(2).families(families);
    let mut stack = Stack::start(builder, ApiChoice::Any, AgentOptions::default()).await?;
    let probe = binaries::find("devcluster-probe")?.display().to_string();
    let pods = servers(&mut stack).await?;
    for (from_name, from) in &pods {
        ensure!(addresses(from).len() == expected, "{from_name} has {:?}", from.record.addresses);
        for (to_name, to) in pods.iter().filter(|(name, _)| name != from_name) {
            for address in addresses(to) {
                let headers = if address.is_ipv4() { 20 + 8 } else { 40 + 8 };
                let own = addresses(from).into_iter().find(|own| own.is_ipv4() == address.is_ipv4());
                let own = own.context("no address of this family")?;
                for (protocol, bytes) in [("tcp", 1), ("tcp", 200_000), ("udp", 1), ("udp", MTU - headers)] {
                    let (target, bytes) = (at(address), bytes.to_string());
                    let argv = [&probe, protocol, &target, "--bytes", &bytes, "--tries", "5"];
                    let answer = from
                        .exec(&argv)
                        .await
                        .with_context(|| format!("{from_name} to {to_name}, {protocol}, {bytes} bytes"))?;
                    let seen = answer.trim_start_matches("peer=").trim_start_matches('[');
                    ensure!(seen.starts_with(&own.to_string()), "{to_name} saw {answer} and not {own}");
                }
            }
        }
    }
    // A node reaches its own pods, as kubelet's probes do.
    for (name, pod) in &pods {
        for address in addresses(pod) {
            let argv = [&probe, "tcp", &at(address), "--tries", "5"].map(str::to_owned);
            pod.node().exec(&argv).await.with_context(|| format!("node to its pod {name}"))?;
        }
    }
    stack.stop().await
}

#[test]
fn all_pairs_over_ipv4() -> Result<()> {
    run(all_pairs(Families::V4, 1))
}

#[test]
fn all_pairs_over_ipv6() -> Result<()> {
    run(all_pairs(Families::V6, 1))
}

#[test]
fn all_pairs_over_both() -> Result<()> {
    run(all_pairs(Families::Dual, 2))
}

#[test]
fn a_pod_that_lies_about_its_address_is_silent() -> Result<()> {
    run(async {
        let builder = Cluster::builder().nodes(2).families(Families::V4);
        let mut stack = Stack::start(builder, ApiChoice::Any, AgentOptions::default()).await?;
        let probe = binaries::find("devcluster-probe")?.display().to_string();
        let pods = servers(&mut stack).await?;
        let (_, liar) = pods.first().context("no pods")?;
        let (_, other) = pods.last().context("no pods")?;
        let target = at(*addresses(other).first().context("no address")?);
        let ask = [&probe, "udp", &target, "--tries", "3", "--timeout-ms", "500"];
        liar.exec(&ask).await.context("the pod as it should be")?;

        // A foreign IP with the right MAC.
        liar.exec(&["ip", "address", "add", "10.244.0.200/24", "dev", "eth0"]).await?;
        let foreign = [&ask[..], &["--from", "10.244.0.200"]].concat();
        ensure!(liar.exec(&foreign).await.is_err(), "a foreign IP got through");
        liar.exec(&ask).await.context("its own IP still works")?;

        // A foreign MAC with the right IP.
        let mac = liar.record.mac.clone().context("no MAC")?;
        let route = liar.exec(&["ip", "route", "show", "default"]).await?;
        for (address, works) in [("0a:58:00:00:00:66", false), (mac.as_str(), true)] {
            liar.exec(&["ip", "link", "set", "eth0", "down"]).await?;
            liar.exec(&["ip", "link", "set", "eth0", "address", address]).await?;
            liar.exec(&["ip", "link", "set", "eth0", "up"]).await?;
            let mut add = vec!["ip", "route", "replace"];
            add.extend(route.split_whitespace());
            liar.exec(&add).await?;
            let asked = liar.exec(&ask).await;
            ensure!(asked.is_ok() == works, "with MAC {address}: {asked:?}");
        }
        stack.stop().await
    })
}

#[test]
fn an_existing_api_server_is_used_and_left_clean() -> Result<()> {
    run(async {
        // It listens outside the cluster's namespaces, as a real one would.
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let server = devapi::Server::start(devapi::Options::new(listener)).await?;
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("kubeconfig");
        std::fs::write(&file, server.kubeconfig())?;
        let builder = Cluster::builder().nodes(1);
        let choice = ApiChoice::Kubeconfig(file);
        let mut stack = Stack::start(builder, choice, AgentOptions::default()).await?;
        let pods = servers(&mut stack).await?;
        ensure!(pods.len() == 2);
        let client = stack.api().client();
        stack.stop().await?;
        let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client);
        ensure!(nodes.list(&Default::default()).await?.items.is_empty(), "nodes were left in the API");
        server.stop().await;
        Ok(())
    })
}
