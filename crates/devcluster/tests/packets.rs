//! Real packets between real pods: our daemon and plugin on nodes with real OVN.

#[path = "common/invariants.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod invariants;
#[path = "common/lab.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lab;

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use devcluster::{AgentOptions, ApiChoice, Cluster, Families, PodHandle, Stack, api, mk_pod};
use lab::{MTU, NAMESPACE, PATIENCE, addresses, at, eventually, run, servers};
use serde_json::json;

async fn start(families: Families) -> Result<Stack> {
    let builder = Cluster::builder().nodes(2).families(families);
    Stack::start(builder, ApiChoice::Any, AgentOptions::default()).await
}

/// A ping of one packet with `bytes` of payload that no one may fragment.
async fn ping(from: &PodHandle, to: IpAddr, bytes: usize) -> Result<String> {
    from.exec(&["ping", "-c1", "-W5", "-Mdo", &format!("-s{bytes}"), &to.to_string()]).await
}

/// Every pod reaches every pod, with one byte and with as many as fit into a packet, and sees its own address kept.
async fn all_pairs(families: Families) -> Result<()> {
    let mut stack = start(families).await?;
    let probe = lab::probe()?;
    let pods = servers(&mut stack, 2).await?;
    for from in &pods {
        ensure!(addresses(from).len() == lab::count(families), "{:?}", from.record.addresses);
        for to in pods.iter().filter(|to| to.record.uid != from.record.uid) {
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
                        .with_context(|| format!("{own} to {address}, {protocol}, {bytes} bytes"))?;
                    let seen = answer.trim_start_matches("peer=").trim_start_matches('[');
                    ensure!(seen.starts_with(&own.to_string()), "{address} saw {answer} and not {own}");
                }
                for bytes in [1, MTU - headers] {
                    ping(from, address, bytes).await?;
                }
            }
        }
    }
    let (from, to) = (&pods[0], &pods[3]);
    for address in addresses(to) {
        let headers = if address.is_ipv4() { 20 + 8 } else { 40 + 8 };
        ensure!(ping(from, address, MTU - headers + 1).await.is_err(), "the MTU is not {MTU}");
    }
    node_and_pods(&stack, &pods).await?;
    invariants::hold(&stack).await?;
    stack.stop().await
}

/// A node reaches its own pods as kubelet's probes do, and pods of any node reach a node's management port.
async fn node_and_pods(stack: &Stack, pods: &[PodHandle]) -> Result<()> {
    let probe = lab::probe()?;
    let mut management = Vec::new();
    for node in stack.cluster().nodes() {
        let text =
            node.exec(&["ip", "-br", "address", "show", "dev", "ovn-k8s-mp0", "scope", "global"]).await?;
        let found: Vec<IpAddr> =
            text.split_whitespace().filter_map(|word| word.split_once('/')?.0.parse().ok()).collect();
        ensure!(found.len() == lab::count(stack.cluster().families()), "{}: {text}", node.name());
        management.push((node.name().to_owned(), found));
    }
    for pod in pods {
        for address in addresses(pod) {
            let argv = [&probe, "tcp", &at(address), "--tries", "5", "--bytes", "100000"].map(str::to_owned);
            let seen = pod.node().exec(&argv).await.with_context(|| format!("node to its pod {address}"))?;
            let own = management.iter().find(|(node, _)| node == pod.node().name()).map(|(_, ips)| ips);
            let own = own.context("no such node")?;
            ensure!(
                own.iter().any(|ip| seen.contains(&ip.to_string())),
                "{seen}: not from the management port"
            );
        }
        for address in management.iter().flat_map(|(_, addresses)| addresses) {
            let headers = if address.is_ipv4() { 20 + 8 } else { 40 + 8 };
            for bytes in [1, MTU - headers] {
                ping(pod, *address, bytes).await?;
            }
        }
    }
    Ok(())
}

#[test]
fn all_pairs_over_ipv4() -> Result<()> {
    run(all_pairs(Families::V4))
}

#[test]
fn all_pairs_over_ipv6() -> Result<()> {
    run(all_pairs(Families::V6))
}

#[test]
fn all_pairs_over_both() -> Result<()> {
    run(all_pairs(Families::Dual))
}

#[test]
fn a_pod_that_lies_about_its_address_is_silent() -> Result<()> {
    run(async {
        let mut stack = start(Families::Dual).await?;
        let probe = lab::probe()?;
        let pods = servers(&mut stack, 2).await?;
        let liar = pods.first().context("no pods")?;
        // The neighbour on the same switch and the one on the other node.
        for (other, address) in
            [&pods[1], &pods[3]].iter().flat_map(|pod| addresses(pod).into_iter().map(move |ip| (pod, ip)))
        {
            let target = at(address);
            let ask = [&probe, "udp", &target, "--tries", "3", "--timeout-ms", "300"];
            liar.exec(&ask).await.context("the pod as it should be")?;

            // A foreign IP with the right MAC.
            let (foreign, length) =
                if address.is_ipv4() { ("10.244.0.200", 24) } else { ("fd00:10:244::200", 64) };
            liar.exec(&["ip", "address", "replace", &format!("{foreign}/{length}"), "dev", "eth0", "nodad"])
                .await?;
            let lie = [&ask[..], &["--from", foreign]].concat();
            let got = liar.exec(&lie).await;
            ensure!(got.is_err(), "a foreign IP got to {:?}: {got:?}", other.record.addresses);
            liar.exec(&["ip", "address", "del", &format!("{foreign}/{length}"), "dev", "eth0"]).await?;
            liar.exec(&ask).await.context("its own IP still works")?;
        }

        // A foreign MAC with the right IP.
        let mac = liar.record.mac.clone().context("no MAC")?;
        let target = at(*addresses(&pods[3]).first().context("no address")?);
        let ask = [&probe, "udp", &target, "--tries", "3", "--timeout-ms", "300"];
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
fn bandwidth_annotations_become_limits_and_follow_changes() -> Result<()> {
    run(async {
        let builder = Cluster::builder().nodes(1);
        let mut stack = Stack::start(builder, ApiChoice::Any, AgentOptions::default()).await?;
        servers(&mut stack, 1).await?;
        let node = stack.cluster().node(1).clone();
        // (into the pod, out of it) of each of the two conventions.
        for (name, into, from, first, second) in [
            (
                "quantities",
                "kubernetes.io/ingress-bandwidth",
                "kubernetes.io/egress-bandwidth",
                ["1M", "20M"],
                ["3M", "4M"],
            ),
            (
                "rates",
                "ovn.kubernetes.io/ingress_rate",
                "ovn.kubernetes.io/egress_rate",
                ["1", "20"],
                ["3", "4"],
            ),
        ] {
            let mut pod = mk_pod(NAMESPACE, name, "node1", &["sleep", "infinity"]);
            pod["metadata"]["annotations"] = json!({ into: first[0], from: first[1] });
            stack.apply(&pod).await?;
            let handle = stack.running(NAMESPACE, name, PATIENCE).await?;
            limited(&node, &handle, Some((1_000_000, 20_000))).await?;
            pod["metadata"]["annotations"] = json!({ into: second[0], from: second[1] });
            stack.apply(&pod).await?;
            limited(&node, &handle, Some((3_000_000, 4_000))).await?;
            // Limited or not: it talks.
            let gateway = "10.244.0.2".parse()?;
            ping(&handle, gateway, 1).await?;
            lab::delete_pod(&stack, name).await?;
            lab::pod_gone(&stack, name, &handle.record.uid).await?;
            limited(&node, &handle, None).await?;
        }
        invariants::hold(&stack).await?;
        stack.stop().await
    })
}

/// Open vSwitch limits the pod to bit/s towards it and kbit/s from it; None: no row is left.
async fn limited(node: &devcluster::Node, pod: &PodHandle, limits: Option<(u64, i64)>) -> Result<()> {
    let sandbox = pod.record.sandbox.as_ref().context("no sandbox")?.id().to_owned();
    eventually("limits", async || {
        let rows = lab::rows(&node.ovs_socket(), "Open_vSwitch").await?;
        let interface =
            lab::table(&rows, "Interface").find(|row| row.key("external_ids", "sandbox") == Some(&sandbox));
        let rates: Vec<_> =
            lab::table(&rows, "QoS").filter_map(|row| row.key("other_config", "max-rate")).collect();
        let Some((into, from)) = limits else {
            ensure!(interface.is_none() && rates.is_empty(), "{interface:?} {rates:?}");
            ensure!(lab::table(&rows, "Queue").next().is_none(), "a queue is left");
            return Ok(());
        };
        ensure!(rates == [into.to_string()], "{rates:?}");
        let policing = interface.context("no interface")?.int("ingress_policing_rate");
        ensure!(policing == Some(from), "{policing:?}");
        Ok(())
    })
    .await
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
        let pods = servers(&mut stack, 2).await?;
        ensure!(pods.len() == 2);
        for name in ["node1-0", "node1-1"] {
            let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": NAMESPACE, "name": name } });
            api::delete(&stack.api().client(), &pod).await?;
        }
        let client = stack.api().client();
        stack.stop().await?;
        let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client.clone());
        ensure!(nodes.list(&Default::default()).await?.items.is_empty(), "nodes were left in the API");
        let all: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
        let lives = |namespace: &&k8s_openapi::api::core::v1::Namespace| {
            let metadata = &namespace.metadata;
            let ours = metadata.name.as_deref().is_some_and(|name| name.starts_with("ovn-"));
            ours && metadata.deletion_timestamp.is_none()
        };
        let namespaces = all.list(&Default::default()).await?.items;
        let left: Vec<_> = namespaces.iter().filter(lives).collect();
        ensure!(left.is_empty(), "namespaces were left in the API: {left:?}");
        server.stop().await;
        Ok(())
    })
}
