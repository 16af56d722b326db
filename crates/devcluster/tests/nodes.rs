//! Two nodes with real OVN: they come up, forward between each other, and leave nothing behind.

use std::{path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use devcluster::{Cluster, Daemon, Families, Node};

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// A logical switch with a port on each node, the other node's port known through a chassis row, as zones do.
async fn switch_across(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes() {
        node.join_ovn().await?;
        node.ovn(&["ovn-nbctl", "ls-add", "across"]).await?;
        for other in cluster.nodes() {
            let (port, address) = (format!("p{}", other.number()), addresses(other));
            node.ovn(&["ovn-nbctl", "lsp-add", "across", &port, "--", "lsp-set-addresses", &port, &address])
                .await?;
        }
    }
    Ok(())
}

fn addresses(node: &Node) -> String {
    let n = node.number();
    format!("0a:58:0a:00:00:{n:02x} 10.0.0.{n}")
}

/// A veth into a namespace named `pod`, its other end on br-int.
async fn plug(node: &Node) -> Result<()> {
    let n = node.number();
    let mac = format!("0a:58:0a:00:00:{n:02x}");
    node.exec(&["ip", "netns", "add", "pod"]).await?;
    node.ip_batch(&format!("link add p0 type veth peer name eth0 address {mac} netns pod\nlink set p0 up\n"))
        .await?;
    node.exec(&[
        "ip",
        "netns",
        "exec",
        "pod",
        "ip",
        "address",
        "add",
        &format!("10.0.0.{n}/24"),
        "dev",
        "eth0",
    ])
    .await?;
    node.exec(&["ip", "-n", "pod", "link", "set", "eth0", "mtu", "1342", "up"]).await?;
    node.exec(&["ip", "netns", "exec", "pod", "ethtool", "-K", "eth0", "tx", "off"]).await?;
    let id = format!("external_ids:iface-id=p{n}");
    node.ovn(&["ovs-vsctl", "--timeout=10", "add-port", "br-int", "p0", "--", "set", "Interface", "p0", &id])
        .await?;
    Ok(())
}

#[test]
fn two_nodes_talk_through_geneve() -> Result<()> {
    runtime()?.block_on(async {
        let since = Instant::now();
        let cluster = Cluster::builder().nodes(2).families(Families::Dual).start().await?;
        println!("two nodes after {:?}", since.elapsed());
        for node in cluster.nodes() {
            for daemon in Daemon::ALL {
                ensure!(node.daemon(daemon).is_some_and(|process| process.is_running()), "{daemon:?} runs");
            }
            node.exec(&["ping", "-c1", "-W2", "172.18.0.254"]).await?;
            node.exec(&["ping", "-c1", "-W2", "fd00:172:18::254"]).await?;
        }
        cluster.node(1).exec(&["ping", "-c1", "-W2", "172.18.0.2"]).await?;
        switch_across(&cluster).await?;
        for node in cluster.nodes() {
            for other in cluster.nodes() {
                if other.number() == node.number() {
                    continue;
                }
                let (chassis, ip) = (other.chassis(), other.address().to_string());
                node.ovn(&[
                    "ovn-sbctl",
                    "chassis-add",
                    &chassis,
                    "geneve",
                    &ip,
                    "--",
                    "set",
                    "Chassis",
                    &chassis,
                    "other_config:is-remote=true",
                ])
                .await?;
                // A remote port is bound by whoever knows where it is: here, this test.
                let port = format!("p{}", other.number());
                node.ovn(&[
                    "ovn-nbctl",
                    "lsp-set-type",
                    &port,
                    "remote",
                    "--",
                    "lsp-set-options",
                    &port,
                    &format!("requested-chassis={chassis}"),
                ])
                .await?;
                node.ovn(&["ovn-nbctl", "--wait=sb", "sync"]).await?;
                node.ovn(&["ovn-sbctl", "--timeout=10", "wait-until", "Port_Binding", &port, "type=remote"])
                    .await?;
            }
            // The same key on both nodes: what a tunnelled packet carries.
            node.ovn(&["ovn-nbctl", "set", "Logical_Switch", "across", "other_config:requested-tnl-key=77"])
                .await?;
            for number in [1, 2] {
                node.ovn(&[
                    "ovn-nbctl",
                    "lsp-set-options",
                    &format!("p{number}"),
                    &format!("requested-tnl-key={number}"),
                    &format!("requested-chassis={}", cluster.node(number).chassis()),
                ])
                .await?;
            }
            plug(node).await?;
            node.ovn(&[
                "ovs-vsctl",
                "--timeout=10",
                "wait-until",
                "Interface",
                "p0",
                "external_ids:ovn-installed=true",
            ])
            .await?;
            node.ovn(&["ovn-nbctl", "--timeout=10", "--wait=hv", "sync"]).await?;
        }
        let node1 = cluster.node(1);
        node1.exec(&["ip", "netns", "exec", "pod", "ping", "-c3", "-i0.2", "-W2", "10.0.0.2"]).await?;
        // Full size, not to be fragmented.
        node1
            .exec(&["ip", "netns", "exec", "pod", "ping", "-c1", "-W2", "-s1314", "-Mdo", "10.0.0.2"])
            .await?;
        let dir = cluster.work_dir().to_path_buf();
        let pid = node1.pid();
        cluster.stop().await;
        ensure!(!dir.exists(), "{} is still there", dir.display());
        ensure!(!Path::new(&format!("/proc/{pid}")).exists(), "node1 is still there");
        Ok(())
    })
}

#[test]
fn a_killed_daemon_can_be_started_again() -> Result<()> {
    runtime()?.block_on(async {
        let cluster = Cluster::builder().nodes(1).start().await?;
        let node = cluster.node(1);
        let nb = node.daemon(Daemon::Nb).context("no Northbound server")?;
        let outside = nb.outside_pid().context("it has no process id outside")?;
        ensure!(Path::new(&format!("/proc/{outside}/exe")).exists());
        node.ovn(&["ovn-nbctl", "ls-add", "kept"]).await?;
        let exit = nb.kill9().await?;
        ensure!(exit.signal == Some(9), "{exit:?}");
        node.start_daemon(Daemon::Nb).await?;
        ensure!(node.ovn(&["ovn-nbctl", "ls-list"]).await?.contains("kept"));
        ensure!(node.nb_socket().exists() && node.sb_socket().exists() && node.ovs_socket().exists());
        Ok(())
    })
}
