//! Where the programs of a real API server run.

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::{Child, Command};

/// The network and the processes that a real API server is put into: this machine's, or those of a namespace.
pub trait Place: Send + Sync {
    /// A program that was started there.
    type Process: Running;

    /// Starts a program; both its outputs go to the file `log`, its input is empty.
    fn start(
        &self,
        argv: Vec<String>,
        log: PathBuf,
    ) -> impl Future<Output = io::Result<Self::Process>> + Send;

    /// Binds a TCP socket there.
    fn listen(&self, address: SocketAddr) -> io::Result<TcpListener>;

    /// Connects to a TCP socket there that is near: it is answered at once, by a refusal if nobody listens.
    fn connect(&self, address: SocketAddr) -> io::Result<TcpStream>;
}

/// A started program. It ends when it is dropped, or at the latest with its place.
pub trait Running: Send {
    /// How it ended; `None` while it runs.
    fn ended(&mut self) -> Option<String>;

    /// Kills it and waits for its end.
    fn kill(&mut self) -> impl Future<Output = ()> + Send;
}

/// This process's own namespaces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here;

// === impl Here ===

impl Place for Here {
    type Process = Child;

    async fn start(&self, argv: Vec<String>, log: PathBuf) -> io::Result<Child> {
        let (program, arguments) =
            argv.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program"))?;
        let out = std::fs::File::create(Path::new(&log))?;
        let errors = out.try_clone()?;
        Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
    }

    fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind(address)
    }

    fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address)
    }
}

impl Running for Child {
    fn ended(&mut self) -> Option<String> {
        self.try_wait().ok().flatten().map(|status| status.to_string())
    }

    async fn kill(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = Child::kill(self).await;
    }
}
