//! Tells at once when ovs-vswitchd, and with it the bridge's flows, is gone: nothing in the database does. An OpenFlow
//! connection to the bridge is held open and only kept alive.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// OpenFlow 1.3 on the wire.
const VERSION: u8 = 4;
const HELLO: u8 = 0;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
/// Every message starts with version, type, length and transaction id.
const HEADER: usize = 8;

/// A connection that lives as long as the bridge's flows.
#[derive(Debug)]
pub(crate) struct Guard {
    alive: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Guard {
    /// Connects to the bridge's management socket; `wake` is notified when the connection ends.
    pub(crate) async fn connect(socket: &Path, wake: Arc<Notify>) -> io::Result<Guard> {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(&message(HELLO, [0; 4], &[])).await?;
        let alive = Arc::new(AtomicBool::new(true));
        let flag = alive.clone();
        let task = tokio::spawn(async move {
            let _ = keep(stream).await;
            flag.store(false, Ordering::Release);
            wake.notify_one();
        });
        Ok(Guard { alive, task })
    }

    /// Whether the flows are still those that were there when the connection was made, and ours since.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers whether we are there, and passes over everything else, until the connection ends.
async fn keep(mut stream: UnixStream) -> io::Result<()> {
    let mut header = [0; HEADER];
    loop {
        stream.read_exact(&mut header).await?;
        let [_, kind, high, low, id @ ..] = header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let mut body = vec![0; length.saturating_sub(HEADER)];
        stream.read_exact(&mut body).await?;
        if kind == ECHO_REQUEST {
            stream.write_all(&message(ECHO_REPLY, id, &body)).await?;
        }
    }
}

fn message(kind: u8, id: [u8; 4], body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(HEADER + body.len()).unwrap_or(u16::MAX);
    let mut message = vec![VERSION, kind];
    message.extend(length.to_be_bytes());
    message.extend(id);
    message.extend(body);
    message
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn greets_answers_and_tells_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("br.mgmt");
        let wake = Arc::new(Notify::new());
        assert!(Guard::connect(&socket, wake.clone()).await.is_err(), "nobody there");
        let listener = UnixListener::bind(&socket).unwrap();
        let guard = Guard::connect(&socket, wake.clone()).await.unwrap();
        let (mut switch, _) = listener.accept().await.unwrap();
        let mut hello = [0; HEADER];
        switch.read_exact(&mut hello).await.unwrap();
        assert_eq!(hello, [4, 0, 0, 8, 0, 0, 0, 0]);
        switch.write_all(&message(10, [0; 4], b"something else")).await.unwrap();
        switch.write_all(&message(ECHO_REQUEST, [1, 2, 3, 4], b"there?")).await.unwrap();
        let mut answer = [0; HEADER + 6];
        switch.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[..], message(ECHO_REPLY, [1, 2, 3, 4], b"there?"));
        assert!(guard.is_alive());
        drop(switch);
        wake.notified().await;
        assert!(!guard.is_alive());
    }
}
