//! TCP from one network namespace to another: the API server inside the underlay for kubectl outside, or a real API
//! server outside for the nodes inside.

use std::{
    net::{SocketAddr, TcpListener},
    thread,
};

use anyhow::{Context, Result};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener as Listener, TcpStream},
    sync::oneshot,
};

use crate::space::Space;

/// Carries connections until it is dropped.
pub struct Relay {
    address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

// === impl Relay ===

impl Relay {
    /// Takes connections on `listener`, of whatever namespace, to `to` as seen from `space`, or from this process's own
    /// namespace without one.
    pub fn start(listener: TcpListener, to: SocketAddr, space: Option<&Space>) -> Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || -> Result<()> {
            // A thread's sockets are of the namespace it is in, so the relay is a thread with a runtime of its own.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            thread::Builder::new().name("devcluster-relay".to_owned()).spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = serve(listener, to) => {}
                        _ = stopped => {}
                    }
                });
            })?;
            Ok(())
        };
        // A new thread starts in the namespace of the one that made it.
        match space {
            Some(space) => space.in_network(run)?,
            None => run()?,
        }
        Ok(Self { address, _stop: stop })
    }

    /// Where it takes connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(listener: TcpListener, to: SocketAddr) -> Result<()> {
    let listener = Listener::from_std(listener).context("listening")?;
    loop {
        let (mut near, _) = listener.accept().await?;
        tokio::spawn(async move {
            let Ok(mut far) = TcpStream::connect(to).await else { return };
            let _ = near.set_nodelay(true);
            let _ = far.set_nodelay(true);
            let _ = copy_bidirectional(&mut near, &mut far).await;
        });
    }
}
