//! Who reaches whom: what `devcluster-matrix` in a pod and whoever asks it say to each other.
//!
//! One line of JSON each way over a unix socket: [`Request`], and a list with one boolean a target. The program listens on
//! its ports over TCP, UDP and SCTP, answers others of its kind, and asks all targets of a request at once.

use std::{net::IpAddr, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

/// What to try.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// How long an answer may take, in milliseconds.
    pub timeout_ms: u64,
    /// All targets, tried at once.
    pub targets: Vec<Target>,
}

/// Where to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
    /// Over what.
    pub protocol: Protocol,
}

/// Protocols with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP: a connection is made.
    Tcp,
    /// UDP: a datagram goes there and back.
    Udp,
    /// SCTP: INIT goes there and INIT ACK back. No SCTP in the kernel is needed.
    Sctp,
}

/// Which of the targets answer the program that serves at `socket`.
pub async fn ask(socket: &Path, request: &Request) -> Result<Vec<bool>> {
    let asked = async {
        let stream = UnixStream::connect(socket).await?;
        let (reader, mut writer) = stream.into_split();
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        writer.write_all(&line).await?;
        let mut answer = String::new();
        BufReader::new(reader).read_line(&mut answer).await?;
        let reached: Vec<bool> =
            serde_json::from_str(&answer).with_context(|| format!("it said {answer:?}"))?;
        ensure!(reached.len() == request.targets.len(), "{} answers", reached.len());
        Ok(reached)
    };
    let patience = Duration::from_millis(request.timeout_ms) + Duration::from_secs(30);
    tokio::time::timeout(patience, asked)
        .await
        .context("no answer")
        .flatten()
        .with_context(|| format!("asking the prober at {}", socket.display()))
}
