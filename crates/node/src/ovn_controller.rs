//! Whether ovn-controller runs and is connected, asked over its control socket. Nothing in the databases tells: after a
//! restart of the machine they still show what ovn-controller did before.

use std::path::Path;

use crate::unixctl;

/// Asks every ovn-controller whose socket is in the directory, for one that was killed leaves its socket behind. The
/// error says what is wrong.
pub(crate) async fn connected(run_dir: &Path) -> Result<(), String> {
    let mut problem = format!("it does not run: no socket ovn-controller.*.ctl in {}", run_dir.display());
    for socket in unixctl::sockets(run_dir, "ovn-controller.") {
        match unixctl::call(&socket, "connection-status", &[]).await {
            Ok(status) if status.trim() == "connected" => return Ok(()),
            Ok(status) => problem = format!("it says {:?} of its Southbound database", status.trim()),
            Err(error) => problem = format!("{}: {error}", socket.display()),
        }
    }
    Err(problem)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
