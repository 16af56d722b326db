//! OVN's own word on a connection: ovn-trace in the zones of both ends.

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use devcluster::Node;
use policy_model::{Cluster, Party, Pod, Protocol, Traffic};

use crate::matrix::{Lab, TRACE_PATIENCE};

/// Only connections between pods are followed: elsewhere the node's kernel has its part.
pub(crate) fn can_be_traced(traffic: &Traffic) -> bool {
    let is_pod = |party: &Party| matches!(party, Party::Pod(..));
    is_pod(&traffic.from) && is_pod(&traffic.to)
}

/// Whether OVN lets the first packet through, from port to port.
pub(crate) async fn passes(lab: &Lab, cluster: &Cluster, traffic: &Traffic) -> Result<bool> {
    let from = cluster.source(&traffic.from, traffic.v6).and_then(|end| end.pod).context("no source")?;
    let to =
        cluster.destination(&traffic.to, traffic.v6).and_then(|end| end.pod).context("no destination")?;
    let node = |pod: &Pod| {
        let mut nodes = lab.stack.cluster().nodes().iter();
        nodes.find(|node| node.name() == pod.node).cloned().with_context(|| format!("no node {}", pod.node))
    };
    let (here, there) = (node(from)?, node(to)?);
    let (from_port, to_port) = (port(from), port(to));
    if here.name() == there.name() {
        let flow = flow(traffic, from, to, &from_port, &mac(from)?, &mac(to)?)?;
        return Ok(trace(lab, &here, &pod_switch(from), &flow).await?.contains(&leaves(&to_port)));
    }
    // Out of the one zone to the tunnel, and in from there.
    let gateway = gateway(from)?;
    let first = flow(traffic, from, to, &from_port, &mac(from)?, &gateway)?;
    if !trace(lab, &here, &pod_switch(from), &first)
        .await?
        .contains(&leaves(&format!("tstor-{}", there.name())))
    {
        return Ok(false);
    }
    let tunnel = format!("tstor-{}", here.name());
    let router = router_mac(&there).await?;
    let second = flow(traffic, from, to, &tunnel, "0a:58:64:58:00:01", &router)?;
    Ok(trace(lab, &there, "transit_switch", &second).await?.contains(&leaves(&to_port)))
}

fn port(pod: &Pod) -> String {
    format!("{}_{}", pod.namespace, pod.name)
}

fn pod_switch(pod: &Pod) -> String {
    pod.node.clone()
}

fn leaves(port: &str) -> String {
    format!("output to \"{port}\"")
}

/// A port's hardware address follows from its first address.
fn mac(pod: &Pod) -> Result<String> {
    let [a, b, c, d] = first(pod)?;
    Ok(format!("0a:58:{a:02x}:{b:02x}:{c:02x}:{d:02x}"))
}

/// The hardware address of the router's port, which has the first address of the node's subnet.
fn gateway(pod: &Pod) -> Result<String> {
    let [a, b, c, _] = first(pod)?;
    Ok(format!("0a:58:{a:02x}:{b:02x}:{c:02x}:01"))
}

fn first(pod: &Pod) -> Result<[u8; 4]> {
    match pod.addresses.first().context("a pod without an address")? {
        IpAddr::V4(ip) => Ok(ip.octets()),
        IpAddr::V6(ip) => bail!("{ip} is not IPv4"),
    }
}

/// The hardware address of the cluster router on the transit switch.
async fn router_mac(node: &Node) -> Result<String> {
    let rows = crate::lab::northbound(node).await?;
    let name = format!("rtots-{}", node.name());
    let row = crate::lab::table(&rows, "Logical_Router_Port").find(|row| row.str("name") == Some(&name));
    Ok(row.and_then(|row| row.str("mac")).context("no port on the transit switch")?.to_owned())
}

fn flow(traffic: &Traffic, from: &Pod, to: &Pod, inport: &str, src: &str, dst: &str) -> Result<String> {
    let ip = |pod: &Pod| {
        let found = pod.addresses.iter().find(|ip| ip.is_ipv6() == traffic.v6);
        found.copied().context("no address of the family")
    };
    let (from, to) = (ip(from)?, ip(to)?);
    let family = if traffic.v6 { "ip6" } else { "ip4" };
    let protocol = match traffic.protocol {
        Protocol::Icmp => bail!("ICMP has no port"),
        other => other.to_string(),
    };
    Ok(format!(
        "inport == \"{inport}\" && eth.src == {src} && eth.dst == {dst} && {family}.src == {from} && {family}.dst == {to} \
         && ip.ttl == 64 && {protocol} && {protocol}.src == 40000 && {protocol}.dst == {}",
        traffic.port
    ))
}

async fn trace(lab: &Lab, node: &Node, switch: &str, flow: &str) -> Result<String> {
    let mut command = tokio::process::Command::from(lab.stack.cluster().prefix().command("ovn-trace"));
    command.arg(format!("--db=unix:{}", node.sb_socket().display()));
    // Each time connection tracking is asked, the connection is new.
    command.args(["--summary", "--ct=new", "--ct=new", "--ct=new", "--ct=new", "--ct=new", "--ct=new"]);
    command.args([switch, flow]);
    let output =
        tokio::time::timeout(TRACE_PATIENCE, command.output()).await.context("ovn-trace hangs")??;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("ovn-trace {switch} '{flow}': {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}
