//! Who reaches whom: a real ping and a real TCP connection for every pair.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, bail};
use devcluster::{Families, binaries};

use super::{PodHandle, Table};

/// A running pod and the port its server listens on.
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) pod: PodHandle,
    pub(super) port: Option<u16>,
}

/// Prints a matrix for each address family; fails when a cell does.
pub(super) async fn print(peers: &[Peer], families: Families) -> Result<()> {
    let mut broken = Vec::new();
    for v6 in [false, true] {
        if (v6 && !families.v6()) || (!v6 && !families.v4()) {
            continue;
        }
        let mut heading = vec![format!("{} from \\ to", if v6 { "IPv6" } else { "IPv4" })];
        heading.extend(peers.iter().map(|peer| peer.name.clone()));
        let mut table = Table::new(&heading);
        // One source after the other: a round trip shall not measure the others' start-up.
        for from in peers {
            let mut row = vec![from.name.clone()];
            for to in peers {
                row.push(cell(from, to, v6, &mut broken).await);
            }
            table.row(row);
        }
        println!("{table}");
    }
    println!("Cells: round trip of a ping / of an HTTP request with its TCP connection, in ms.");
    if broken.is_empty() {
        return Ok(());
    }
    bail!("not everybody reaches everybody:\n{}", broken.join("\n"))
}

async fn cell(from: &Peer, to: &Peer, v6: bool, broken: &mut Vec<String>) -> String {
    if from.name == to.name {
        return "·".to_owned();
    }
    let address = to
        .pod
        .record
        .addresses
        .iter()
        .filter_map(|text| text.parse::<IpAddr>().ok())
        .find(|ip| ip.is_ipv6() == v6);
    let Some(address) = address else {
        broken.push(format!("{} has no address of this family", to.name));
        return "no address".to_owned();
    };
    let mut show = |what: &str, result: Result<f64>| match result {
        Ok(ms) => format!("{ms:.2}"),
        Err(error) => {
            broken.push(format!("{} → {} {what}: {error:#}", from.name, to.name));
            "✗".to_owned()
        }
    };
    let ping = show("ping", ping(from, address).await);
    let Some(port) = to.port else { return ping };
    let http = show("TCP", http(from, SocketAddr::new(address, port)).await);
    format!("{ping} / {http}")
}

/// The second of two pings: the first one also resolves the neighbour and makes the switch learn the flow.
async fn ping(from: &Peer, to: IpAddr) -> Result<f64> {
    let text = from.pod.exec(&["ping", "-c2", "-i0.02", "-W2", &to.to_string()]).await?;
    let mut times = text
        .lines()
        .filter_map(|line| line.split_once("time="))
        .filter_map(|(_, rest)| rest.split_whitespace().next().and_then(|number| number.parse().ok()));
    times.next_back().map_or_else(|| bail!("no round trip in {text:?}"), Ok)
}

async fn http(from: &Peer, to: SocketAddr) -> Result<f64> {
    let probe = binaries::find("devcluster-probe")?.display().to_string();
    let text = from.pod.exec(&[probe.as_str(), "http", &to.to_string()]).await?;
    let micros = |name: &str| {
        text.split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.parse::<f64>().ok())
            .unwrap_or_default()
    };
    Ok((micros("connect_us=") + micros("rtt_us=")) / 1e3)
}
