//! The task that owns the connection: which server to ask, when to try again, who is told.

use std::{sync::Arc, sync::Weak, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

use super::{Command, Endpoint, Notice, Options, TxnError, link, notices::Queue, replica::Mirror, transport};
use crate::session::Memory;

/// Where notices go.
pub(super) enum Sink {
    /// To a receiver.
    Queue(Arc<Queue>),
    /// Straight into a replica's cache, if it still exists.
    Mirror(Weak<Mirror>),
}

/// What outlives a single connection.
pub(super) struct Driver {
    pub(super) options: Arc<Options>,
    pub(super) commands: Commands,
    pub(super) sink: Sink,
    pub(super) memory: Memory,
    /// Whether the receiver knows us as connected.
    pub(super) announced: bool,
    told: Option<String>,
}

/// The commands of all clients.
pub(super) struct Commands {
    receiver: mpsc::Receiver<Command>,
    /// Whether all clients are gone.
    orphaned: bool,
}

/// Why a connection ended.
pub(super) enum End {
    /// Nobody is interested any more.
    Stop,
    /// It broke, or this server is not the right one.
    Lost(String),
    /// It was ended on request, to begin anew.
    Again,
}

/// Runs until nobody is interested any more.
pub(super) async fn run(options: Options, receiver: mpsc::Receiver<Command>, sink: Sink) {
    let commands = Commands { receiver, orphaned: false };
    let mut driver = Driver {
        options: Arc::new(options),
        commands,
        sink,
        memory: Memory::default(),
        announced: false,
        told: None,
    };
    driver.run().await;
    if let Sink::Queue(queue) = &driver.sink {
        queue.end();
    }
}

// === impl Driver ===

impl Driver {
    async fn run(&mut self) {
        let options = self.options.clone();
        if options.endpoints.is_empty() {
            self.down("no database address is configured".to_owned());
            while self.refuse_one().await {}
            return;
        }
        let (mut backoff, mut attempts) = (options.backoff_min, 0);
        for endpoint in options.endpoints.iter().cycle() {
            let started = Instant::now();
            match self.visit(endpoint).await {
                End::Stop => return,
                End::Again => {
                    self.down(format!("{endpoint}: loading everything anew"));
                    continue;
                }
                End::Lost(reason) => {
                    let lasted = self.announced && started.elapsed() >= options.backoff_max;
                    self.down(format!("{endpoint}: {reason}"));
                    if lasted {
                        (backoff, attempts) = (options.backoff_min, 0);
                        continue;
                    }
                }
            }
            // Every server is asked once before waiting.
            attempts += 1;
            if attempts % options.endpoints.len() != 0 {
                continue;
            }
            if !self.pause(backoff).await {
                return;
            }
            backoff = (backoff * 2).min(options.backoff_max);
        }
    }

    /// One connection, from its beginning to its end.
    async fn visit(&mut self, endpoint: &Endpoint) -> End {
        let options = self.options.clone();
        let stream = {
            let connecting = timeout(options.connect_timeout, transport::open(endpoint, &options));
            tokio::pin!(connecting);
            loop {
                tokio::select! {
                    opened = &mut connecting => break opened,
                    interest = self.refuse_one() => if !interest {
                        return End::Stop;
                    },
                }
            }
        };
        match stream {
            Ok(Ok(stream)) => link::serve(self, stream).await,
            Ok(Err(error)) => End::Lost(format!("cannot connect: {error}")),
            Err(_) => End::Lost(format!("cannot connect within {:?}", options.connect_timeout)),
        }
    }

    /// Waits; false when nobody is interested any more.
    async fn pause(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            tokio::select! {
                () = sleep_until(until) => return true,
                interest = self.refuse_one() => if !interest {
                    return false;
                },
            }
        }
    }

    /// Answers one command while there is no connection. False when nobody is interested any more.
    async fn refuse_one(&mut self) -> bool {
        match self.commands.next(&self.sink).await {
            Some(Command::Transact { reply, .. }) => {
                // Whoever asked may have gone.
                let _ = reply.send(Err(TxnError::NotConnected));
                true
            }
            Some(Command::Reload) => {
                self.memory = Memory::default();
                true
            }
            None => false,
        }
    }

    fn down(&mut self, reason: String) {
        tracing::debug!(database = self.options.database, reason, "database connection ended");
        if self.announced || self.told.as_ref() != Some(&reason) {
            self.told = Some(reason.clone());
            self.announced = false;
            self.sink.put(Notice::Down { reason });
        }
    }
}

// === impl Commands ===

impl Commands {
    /// The next command; none when nobody is interested any more. May be dropped at any time.
    pub(super) async fn next(&mut self, sink: &Sink) -> Option<Command> {
        if !self.orphaned {
            if let Some(command) = self.receiver.recv().await {
                return Some(command);
            }
            self.orphaned = true;
        }
        match sink {
            Sink::Queue(queue) => queue.abandoned().await,
            // A replica has a client, so without clients there is no replica.
            Sink::Mirror(_) => {}
        }
        None
    }
}

// === impl Sink ===

impl Sink {
    /// Tells a notice. False when the receiver's copy turned out to be wrong.
    pub(super) fn put(&self, notice: Notice) -> bool {
        match self {
            Sink::Queue(queue) => {
                queue.put(notice);
                true
            }
            Sink::Mirror(mirror) => mirror.upgrade().is_none_or(|mirror| mirror.apply(&notice)),
        }
    }

    /// Whether no more should be read before the receiver has caught up.
    pub(super) fn is_full(&self, limit: usize) -> bool {
        match self {
            Sink::Queue(queue) => queue.is_full(limit),
            Sink::Mirror(_) => false,
        }
    }

    /// Returns when there is room again.
    pub(super) async fn room(&self, limit: usize) {
        if let Sink::Queue(queue) = self {
            queue.room(limit).await;
        }
    }
}
