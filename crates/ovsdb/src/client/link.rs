//! One connection: bytes to and from a session, deadlines and probes.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    time::{Instant, sleep_until},
};

use super::{
    Command, Notice, TxnError,
    driver::{Driver, End},
    transport::Stream,
};
use crate::{
    OpResult,
    rpc::Failure,
    session::{Event, Plan, Session, SessionError},
};

type Reply = oneshot::Sender<Result<Vec<OpResult>, TxnError>>;

/// Transactions are taken only while less than this waits to be sent.
const MOST_UNSENT: usize = 4 << 20;
const READ_AT_ONCE: usize = 64 << 10;

struct Link {
    session: Session,
    waiting: BTreeMap<u64, Reply>,
    tokens: u64,
    /// When each request without an answer is given up.
    deadlines: VecDeque<(u64, Instant)>,
    requests_seen: u64,
    /// When the server was last heard.
    heard: Instant,
    rpc_timeout: Duration,
    probe: Duration,
}

/// Talks to the server until the connection ends. Transactions without an answer get to know so.
pub(super) async fn serve(driver: &mut Driver, stream: Box<dyn Stream>) -> End {
    let options = driver.options.clone();
    let plan = Plan {
        database: options.database.clone(),
        monitor: options.monitor.clone(),
        leader_only: options.leader_only,
    };
    let mut link = Link {
        session: Session::start(plan, std::mem::take(&mut driver.memory)),
        waiting: BTreeMap::new(),
        tokens: 0,
        deadlines: VecDeque::new(),
        requests_seen: 1,
        heard: Instant::now(),
        rpc_timeout: options.rpc_timeout,
        probe: options.probe_interval,
    };
    let (end, whole) = match link.run(driver, stream).await {
        Ok(end) => (end, false),
        Err(Broken { reason, whole }) => (End::Lost(reason), whole),
    };
    driver.memory = link.session.end(whole || matches!(end, End::Again));
    for reply in link.waiting.into_values() {
        // Whoever asked may have gone.
        let _ = reply.send(Err(TxnError::Unknown));
    }
    end
}

struct Broken {
    reason: String,
    /// Whether what was received cannot be trusted.
    whole: bool,
}

impl From<SessionError> for Broken {
    fn from(error: SessionError) -> Broken {
        let whole = matches!(error, SessionError::Frame(_) | SessionError::Json(_));
        Broken { reason: error.to_string(), whole }
    }
}

fn broken(reason: impl Into<String>) -> Broken {
    Broken { reason: reason.into(), whole: false }
}

// === impl Link ===

impl Link {
    async fn run(&mut self, driver: &mut Driver, stream: Box<dyn Stream>) -> Result<End, Broken> {
        let limit = driver.options.waiting_rows;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut buffer = vec![0; READ_AT_ONCE];
        let mut unflushed = false;
        loop {
            self.settle(driver)?;
            let full = driver.sink.is_full(limit);
            let wake = self.wake();
            let unsent = self.session.output();
            let (sending, room) = (!unsent.is_empty(), unsent.len() < MOST_UNSENT);
            tokio::select! {
                received = reader.read(&mut buffer), if !full => match received {
                    Ok(0) => return Err(broken("the server closed the connection")),
                    Ok(count) => {
                        self.heard = Instant::now();
                        self.session.receive(&buffer[..count])?;
                    }
                    Err(error) => return Err(broken(format!("cannot read: {error}"))),
                },
                sent = push(&mut writer, unsent), if sending || unflushed => {
                    let count = sent.map_err(|error| broken(format!("cannot send: {error}")))?;
                    self.session.output().drain(..count);
                    unflushed = sending;
                }
                command = driver.commands.next(&driver.sink), if room => match command {
                    Some(command) => {
                        if let Some(end) = self.command(command) {
                            return Ok(end);
                        }
                    }
                    None => return Ok(End::Stop),
                },
                () = driver.sink.room(limit), if full => self.heard = Instant::now(),
                () = wait_until(wake), if !full => self.overdue()?,
            }
        }
    }

    /// Tells what the session has to tell.
    fn settle(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        while let Some(event) = self.session.event() {
            let notice = match event {
                Event::Up { schema, capabilities } => {
                    driver.announced = true;
                    Notice::Up { schema, capabilities }
                }
                Event::Reset(update) => Notice::Reset(update),
                Event::Update(update) => Notice::Update(update),
                Event::Reply { token, result } => {
                    if let Some(reply) = self.waiting.remove(&token) {
                        // Whoever asked may have gone.
                        let _ = reply.send(result.map_err(TxnError::from));
                    }
                    continue;
                }
            };
            if !driver.sink.put(notice) {
                return Err(Broken {
                    reason: "an update names a row that is not there".to_owned(),
                    whole: true,
                });
            }
        }
        for id in self.requests_seen..self.session.next_request() {
            self.deadlines.push_back((id, Instant::now() + self.rpc_timeout));
        }
        self.requests_seen = self.session.next_request();
        let oldest = self.session.oldest_request().unwrap_or(u64::MAX);
        while self.deadlines.front().is_some_and(|(id, _)| *id < oldest) {
            self.deadlines.pop_front();
        }
        Ok(())
    }

    fn command(&mut self, command: Command) -> Option<End> {
        match command {
            Command::Reload => return Some(End::Again),
            Command::Transact { reply, .. } if !self.session.is_up() => {
                // Whoever asked may have gone.
                let _ = reply.send(Err(TxnError::NotConnected));
            }
            // Nobody waits for it any more, and it has not been sent.
            Command::Transact { reply, .. } if reply.is_closed() => {}
            Command::Transact { ops, reply } => {
                self.tokens += 1;
                self.session.transact(self.tokens, &ops);
                self.waiting.insert(self.tokens, reply);
            }
        }
        None
    }

    /// When to look at the clock next.
    fn wake(&self) -> Option<Instant> {
        let probe = (!self.probe.is_zero()).then(|| {
            let asked = self.heard + self.probe;
            // Once asked, the server has the same time again.
            if Instant::now() < asked { asked } else { asked + self.probe }
        });
        [probe, self.due()].into_iter().flatten().min()
    }

    /// When the oldest request is given up. The first load may take long, as long as something comes.
    fn due(&self) -> Option<Instant> {
        let (_, deadline) = self.deadlines.front().filter(|_| !self.rpc_timeout.is_zero())?;
        Some(if self.session.is_live() { *deadline } else { self.heard + self.rpc_timeout })
    }

    fn overdue(&mut self) -> Result<(), Broken> {
        let now = Instant::now();
        if self.due().is_some_and(|due| due <= now) {
            return Err(broken(format!("the server has not answered for {:?}", self.rpc_timeout)));
        }
        let silent = now - self.heard;
        if self.probe.is_zero() || silent < self.probe {
            return Ok(());
        }
        if silent >= self.probe * 2 {
            return Err(broken(format!("the server has been silent for {:?}", self.probe * 2)));
        }
        self.session.probe();
        Ok(())
    }
}

/// Writes some of what is unsent, or else sees to it that all that was written is on its way. One step at a
/// time: dropped in between, nothing is written twice.
async fn push(writer: &mut (impl AsyncWriteExt + Unpin), unsent: &[u8]) -> io::Result<usize> {
    if unsent.is_empty() { writer.flush().await.map(|()| 0) } else { writer.write(unsent).await }
}

async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

// === impl TxnError ===

impl From<Failure> for TxnError {
    fn from(failure: Failure) -> TxnError {
        match failure {
            Failure::Rejected(rejection) => TxnError::Rejected(rejection),
            Failure::Protocol(reason) => TxnError::Protocol(reason),
        }
    }
}
