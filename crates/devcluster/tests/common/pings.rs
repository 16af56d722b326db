//! Pings that run beside what a test does, read while they come.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result, bail};
use devcluster::{PodHandle, Process, Program, Space};
use nix::{sys::stat::Mode, unistd::mkfifo};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::unix::pipe,
    sync::watch,
};

use super::PATIENCE;

/// Pings every 20 ms until [`Pings::end`] is called.
pub(crate) struct Pings {
    process: Process,
    /// How many were answered so far; closed at ping's end.
    answered: watch::Receiver<u32>,
    reader: tokio::task::JoinHandle<Result<Said>>,
}

/// What became of all pings.
#[derive(Debug, Default)]
pub(crate) struct Count {
    /// Sent.
    pub(crate) sent: u32,
    /// Never answered. The last one may still be on its way when ping is stopped; it does not count.
    pub(crate) lost: u32,
    /// How often answers stopped coming.
    pub(crate) gaps: u32,
}

#[derive(Debug, Default)]
struct Said {
    answered: BTreeSet<u32>,
    last: u32,
    all: String,
}

// === impl Pings ===

impl Pings {
    /// Starts in a pod, and waits for the first answer.
    pub(crate) async fn start(from: &PodHandle, to: IpAddr) -> Result<Self> {
        // Before the stream: the first packet of two neighbours waits until they know each other.
        from.exec(&["ping", "-c1", "-W5", &to.to_string()]).await?;
        let pings = Self::read(from.node(), to, async |program| from.spawn(program).await).await?;
        pings.more(1).await?;
        Ok(pings)
    }

    /// Starts on a machine, whether or not anybody answers yet.
    pub(crate) async fn on(space: &Space, to: IpAddr) -> Result<Self> {
        Self::read(space, to, async |program| space.spawn(program).await).await
    }

    async fn read(
        space: &Space,
        to: IpAddr,
        spawn: impl AsyncFnOnce(Program) -> Result<Process>,
    ) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("/run/pings-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let file = space.outside(&name);
        mkfifo(&file, Mode::S_IRUSR | Mode::S_IWUSR).with_context(|| file.display().to_string())?;
        // Open before ping is: whoever opens a pipe for writing waits for a reader.
        let lines = pipe::OpenOptions::new().open_receiver(&file)?;
        let argv = ["ping", "-O", "-i0.02", "-W5", &to.to_string()].map(str::to_owned).to_vec();
        let process = spawn(Program { argv, log: Some(name.into()), ..Program::default() }).await?;
        let (count, answered) = watch::channel(0);
        let reader = tokio::spawn(follow(lines, count));
        Ok(Self { process, answered, reader })
    }

    /// Waits until `count` more answers have come.
    pub(crate) async fn more(&self, count: u32) -> Result<()> {
        let mut answered = self.answered.clone();
        let wanted = *answered.borrow() + count;
        let reached = tokio::time::timeout(PATIENCE, answered.wait_for(|now| *now >= wanted)).await;
        reached
            .with_context(|| format!("{count} more answers: not within {PATIENCE:?}"))?
            .context("ping ended")?;
        Ok(())
    }

    /// Waits for ten more answers, stops, and counts.
    pub(crate) async fn end(self) -> Result<Count> {
        const SIGINT: i32 = 2;
        self.more(10).await?;
        self.process.signal(SIGINT).await?;
        self.process.wait().await?;
        let said = self.reader.await??;
        // "250 packets transmitted, 250 received, …"
        let line = said.all.lines().find(|line| line.contains("transmitted"));
        let sent = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        let Some(sent) = sent else { bail!("ping said {:?}", said.all) };
        let missed: BTreeSet<u32> = (1..said.last).filter(|number| !said.answered.contains(number)).collect();
        let gaps = missed.iter().filter(|number| !missed.contains(&(*number - 1))).count();
        Ok(Count { sent, lost: u32::try_from(missed.len())?, gaps: u32::try_from(gaps)? })
    }
}

// === impl Said ===

impl Said {
    /// "64 bytes from 10.244.0.3: icmp_seq=7 ttl=64 time=0.2 ms"; other lines are kept as they are.
    fn line(&mut self, line: &str) {
        let number =
            line.split("icmp_seq=").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        match number {
            Some(number) if line.contains("bytes from") => {
                self.answered.insert(number);
                self.last = self.last.max(number);
            }
            _ => {
                self.all.push_str(line);
                self.all.push('\n');
            }
        }
    }
}

async fn follow(lines: pipe::Receiver, count: watch::Sender<u32>) -> Result<Said> {
    let mut said = Said::default();
    let mut lines = BufReader::new(lines).lines();
    while let Some(line) = lines.next_line().await? {
        said.line(&line);
        count.send_replace(u32::try_from(said.answered.len())?);
    }
    Ok(said)
}
