//! Questions to the daemons of Open vSwitch and OVN over their control sockets, which are what `ovs-appctl` uses.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Answers we ask for are short.
const LIMIT: usize = 64 * 1024;

/// Control sockets in a directory whose name starts so. A daemon that was killed leaves its socket behind.
pub(crate) fn sockets(run_dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(run_dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(prefix) && name.ends_with(".ctl")
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Runs a command of the daemon behind the socket. The error is the connection's, or what the daemon objects to.
pub(crate) async fn call(socket: &Path, command: &str, args: &[&str]) -> io::Result<String> {
    match timeout(PATIENCE, ask(socket, command, args)).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
    }
}

async fn ask(socket: &Path, command: &str, args: &[&str]) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    let question = json!({ "id": 0, "method": command, "params": args }).to_string();
    stream.write_all(question.as_bytes()).await?;
    let mut answer = Vec::new();
    // The server keeps the connection open: the answer ends where its JSON does.
    while answer.len() < LIMIT {
        if stream.read_buf(&mut answer).await? == 0 {
            break;
        }
        if let Ok(reply) = serde_json::from_slice::<Value>(&answer) {
            return match reply["error"].as_str() {
                Some(error) => Err(io::Error::other(error.trim().to_owned())),
                None => Ok(reply["result"].as_str().unwrap_or_default().to_owned()),
            };
        }
    }
    Err(io::Error::other("the answer is not JSON"))
}
