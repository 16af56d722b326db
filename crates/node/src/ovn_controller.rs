//! Whether ovn-controller runs and is connected, asked over its control socket. Nothing in the databases tells: after a
//! restart of the machine they still show what ovn-controller did before.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// An answer is one word; more is no answer.
const LIMIT: usize = 4096;

/// Asks every ovn-controller whose socket is in the directory, for one that was killed leaves its socket behind. The
/// error says what is wrong.
pub(crate) async fn connected(run_dir: &Path) -> Result<(), String> {
    let mut problem = format!("it does not run: no socket ovn-controller.*.ctl in {}", run_dir.display());
    for socket in sockets(run_dir) {
        match timeout(PATIENCE, ask(&socket)).await {
            Ok(Ok(status)) if status.trim() == "connected" => return Ok(()),
            Ok(Ok(status)) => problem = format!("it says {:?} of its Southbound database", status.trim()),
            Ok(Err(error)) => problem = format!("{}: {error}", socket.display()),
            Err(_) => problem = format!("{}: no answer", socket.display()),
        }
    }
    Err(problem)
}

fn sockets(run_dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(run_dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("ovn-controller.") && name.ends_with(".ctl")
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

async fn ask(socket: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(br#"{"id":0,"method":"connection-status","params":[]}"#).await?;
    let mut answer = Vec::new();
    // The server keeps the connection open: the answer ends where its JSON does.
    while answer.len() < LIMIT {
        if stream.read_buf(&mut answer).await? == 0 {
            break;
        }
        if let Ok(reply) = serde_json::from_slice::<serde_json::Value>(&answer) {
            return Ok(reply["result"].as_str().unwrap_or_default().to_owned());
        }
    }
    Err(std::io::Error::other("the answer is not JSON"))
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    async fn answering(dir: &Path, pid: u32, answer: &'static str) -> tokio::task::JoinHandle<()> {
        let listener = UnixListener::bind(dir.join(format!("ovn-controller.{pid}.ctl"))).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut question = [0; 128];
            let _ = stream.read(&mut question).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            let _ = stream.read(&mut question).await;
        })
    }

    #[tokio::test]
    async fn one_that_is_connected_counts_whatever_others_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        assert!(connected(dir.path()).await.unwrap_err().contains("does not run"));
        drop(UnixListener::bind(dir.path().join("ovn-controller.1.ctl")).unwrap());
        assert!(connected(dir.path()).await.unwrap_err().contains("ovn-controller.1.ctl"));
        let _busy = answering(dir.path(), 2, r#"{"id":0,"result":"not connected\n","error":null}"#).await;
        assert!(connected(dir.path()).await.unwrap_err().contains("not connected"));
        let _good = answering(dir.path(), 3, r#"{"id":0,"result":"connected\n","error":null}"#).await;
        assert_eq!(connected(dir.path()).await, Ok(()));
    }
}
