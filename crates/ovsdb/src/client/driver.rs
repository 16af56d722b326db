//! The task that owns the connection.

use std::sync::Weak;

use tokio::sync::mpsc;

use super::{Command, Notice, Options, TxnError, replica::Mirror};

/// Where notices go.
pub(super) enum Sink {
    Channel(mpsc::Sender<Notice>),
    Mirror(Weak<Mirror>),
}

pub(super) async fn run(options: Options, mut requests: mpsc::Receiver<Command>, sink: Sink) {
    let notice = Notice::Down { reason: format!("{} is not connected", options.database) };
    match &sink {
        Sink::Channel(channel) => {
            let _ = channel.send(notice).await;
        }
        Sink::Mirror(mirror) => {
            if let Some(mirror) = mirror.upgrade() {
                mirror.apply(&notice);
            }
        }
    }
    while let Some(command) = requests.recv().await {
        if let Command::Transact { reply, .. } = command {
            let _ = reply.send(Err(TxnError::NotConnected));
        }
    }
}
