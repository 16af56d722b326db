//! The network between the nodes: a bridge in a namespace of its own, whose address is the nodes' gateway.

use std::{fmt::Write as _, path::Path};

use anyhow::Result;

use crate::{
    addresses::{Families, GATEWAY, node_mac},
    space::Space,
    wire::Layout,
};

/// Name of the bridge.
pub const BRIDGE: &str = "underlay";

/// Makes the bridge.
pub(crate) async fn start(work: &Path, families: Families) -> Result<Space> {
    let space = Space::start(Layout { name: BRIDGE.to_owned(), dir: work.join(BRIDGE) }).await?;
    let mut lines = format!(
        "link set lo up\nlink add {BRIDGE} type bridge mcast_snooping 0\nlink set {BRIDGE} address 02:42:ac:12:00:fe\n"
    );
    for (address, length) in families.on_underlay(GATEWAY) {
        let _ = writeln!(lines, "address add {address}/{length} dev {BRIDGE}{}", nodad(address.is_ipv6()));
    }
    let _ = writeln!(lines, "link set {BRIDGE} up");
    space.ip_batch(&lines).await?;
    // The nodes' userspace datapath takes packets as they are: checksums must be in them already.
    space.exec(&["ethtool", "-K", BRIDGE, "tx", "off"]).await?;
    Ok(space)
}

/// Gives a node its `eth0` on the bridge.
pub(crate) async fn plug(underlay: &Space, node: &Space, number: u8) -> Result<()> {
    let port = format!("node{number}");
    // The node's process ids mean nothing inside the underlay's PID namespace: this runs outside, in its network only.
    let netns = format!("--net=/proc/{}/ns/net", underlay.pid());
    let pid = node.pid().to_string();
    let mac = node_mac(number);
    let link = ["link", "add", &port, "type", "veth", "peer", "name", "eth0", "address", &mac, "netns", &pid];
    run_outside(&netns, &link).await?;
    run_outside(&netns, &["link", "set", &port, "master", BRIDGE, "up"]).await
}

async fn run_outside(netns: &str, args: &[&str]) -> Result<()> {
    let output = tokio::process::Command::new("nsenter").arg(netns).arg("ip").args(args).output().await?;
    anyhow::ensure!(
        output.status.success(),
        "ip {} failed: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Duplicate address detection only delays what cannot be a duplicate here.
pub(crate) fn nodad(v6: bool) -> &'static str {
    if v6 { " nodad" } else { "" }
}
