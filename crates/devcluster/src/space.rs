//! A node's namespaces and the processes in them.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sched::{CloneFlags, setns};
use tokio::sync::{oneshot, watch};

use crate::{
    binaries,
    wire::{Call, Event, Exit, Layout, Program, Reply, Request},
};

/// Network, mount, PID, IPC and UTS namespace, held by their first process.
#[derive(Clone)]
pub struct Space {
    inner: Arc<Inner>,
}

struct Inner {
    layout: Layout,
    /// `unshare`, the parent of the first process: itself in the network and mount namespace.
    holder: Mutex<Option<Child>>,
    holder_pid: u32,
    requests: Mutex<Option<ChildStdin>>,
    next: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    ready: Option<oneshot::Sender<Result<()>>>,
    calls: HashMap<u64, oneshot::Sender<Result<i32>>>,
    exits: HashMap<u64, watch::Sender<Option<Exit>>>,
}

/// A program running in a [`Space`]. Dropping it does not end the program.
#[derive(Clone)]
pub struct Process {
    space: Space,
    program: Arc<Program>,
    pid: i32,
    exit: watch::Receiver<Option<Exit>>,
}

// === impl Space ===

impl Space {
    /// Makes the namespaces and waits until their mounts are there.
    pub async fn start(layout: Layout) -> Result<Self> {
        let init = binaries::find("devcluster-init")?;
        fs::create_dir_all(&layout.dir).with_context(|| format!("making {}", layout.dir.display()))?;
        let mut holder = Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"])
            .args(["--propagation", "slave", "--"])
            .arg(init)
            .arg("node")
            .arg(serde_json::to_string(&layout)?)
            // A group of its own: Ctrl-C at the terminal is for the builder, which takes the cluster down in order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting unshare")?;
        let (Some(requests), Some(replies), Some(errors)) =
            (holder.stdin.take(), holder.stdout.take(), holder.stderr.take())
        else {
            bail!("unshare was started without pipes");
        };
        let (ready, is_ready) = oneshot::channel();
        let space = Self {
            inner: Arc::new(Inner {
                layout,
                holder_pid: holder.id(),
                holder: Mutex::new(Some(holder)),
                requests: Mutex::new(Some(requests)),
                next: AtomicU64::new(1),
                waiting: Mutex::new(Waiting { ready: Some(ready), ..Waiting::default() }),
            }),
        };
        let reader = Arc::downgrade(&space.inner);
        thread::Builder::new().name("devcluster-replies".to_owned()).spawn(move || {
            for line in BufReader::new(replies).lines().map_while(Result::ok) {
                let Some(inner) = reader.upgrade() else { return };
                inner.take(&line);
            }
            let said = std::io::read_to_string(errors).unwrap_or_default();
            if let Some(inner) = reader.upgrade() {
                inner.lost(said.trim());
            }
        })?;
        is_ready.await.unwrap_or_else(|_| Err(anyhow!("the first process went away")))?;
        Ok(space)
    }

    /// Host name of the node.
    pub fn name(&self) -> &str {
        &self.inner.layout.name
    }

    /// Where a file of one of the node's private directories is for those outside, for example
    /// `/var/run/ovn/ovnnb_db.sock`.
    pub fn outside(&self, path: impl AsRef<Path>) -> PathBuf {
        self.inner.layout.outside(path.as_ref())
    }

    /// A process outside whose network and mount namespaces are the node's: for `ip link set … netns PID` and `nsenter`.
    pub fn pid(&self) -> u32 {
        self.inner.holder_pid
    }

    /// Whether it has not been stopped.
    pub fn is_up(&self) -> bool {
        self.inner.requests().is_some()
    }

    /// Starts a program.
    pub async fn spawn(&self, program: Program) -> Result<Process> {
        let (started, exit) = self.inner.spawn(&program)?;
        let pid = started
            .await
            .unwrap_or_else(|_| Err(anyhow!("{} is gone", self.name())))
            .with_context(|| format!("{}: {}", self.name(), program.argv.join(" ")))?;
        Ok(Process { space: self.clone(), program: Arc::new(program), pid, exit })
    }

    /// Runs a program to its end, whatever the end.
    pub async fn run(&self, program: Program) -> Result<Exit> {
        self.spawn(program).await?.wait().await
    }

    /// Runs a command to its end and gives its standard output; an exit code other than 0 is an error that holds what
    /// the command said.
    pub async fn exec<S: AsRef<str>>(&self, argv: &[S]) -> Result<String> {
        let argv: Vec<String> = argv.iter().map(|arg| arg.as_ref().to_owned()).collect();
        let line = argv.join(" ");
        let exit = self.run(Program { argv, ..Program::default() }).await?;
        ensure!(
            exit.success(),
            "{}: `{line}` failed ({}): {}",
            self.name(),
            exit.how(),
            format!("{}{}", exit.stderr, exit.stdout).trim()
        );
        Ok(exit.stdout)
    }

    /// Runs lines of `ip -batch`.
    pub async fn ip_batch(&self, lines: &str) -> Result<()> {
        let program = Program {
            argv: ["ip", "-batch", "-"].map(str::to_owned).to_vec(),
            stdin: Some(lines.as_bytes().to_vec()),
            ..Program::default()
        };
        let exit = self.run(program).await?;
        ensure!(exit.success(), "{}: ip -batch failed: {}\n{lines}", self.name(), exit.stderr.trim());
        Ok(())
    }

    /// Runs `work` on a thread of its own inside the node's network namespace: sockets made there belong to the node and
    /// may be used from anywhere.
    pub fn in_network<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = format!("/proc/{}/ns/net", self.pid());
        let file = fs::File::open(&path).with_context(|| format!("opening {path}"))?;
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(&file, CloneFlags::CLONE_NEWNET)
                        .with_context(|| format!("entering the network namespace of {}", self.name()))?;
                    work()
                })
                .join()
                .unwrap_or_else(|_| Err(anyhow!("the thread in {}'s network panicked", self.name())))
        })
    }

    /// Ends every process in the namespaces and frees them. May be called again.
    pub fn stop(&self) {
        drop(self.inner.requests());
        self.inner.stop();
    }
}

// === impl Inner ===

impl Inner {
    fn requests(&self) -> MutexGuard<'_, Option<ChildStdin>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, id: u64, call: Call) -> Result<()> {
        let mut line = serde_json::to_vec(&Request { id, call })?;
        line.push(b'\n');
        let mut pipe = self.requests();
        let pipe = pipe.as_mut().with_context(|| format!("{} was stopped", self.layout.name))?;
        pipe.write_all(&line).with_context(|| format!("{}'s first process is gone", self.layout.name))
    }

    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    #[expect(clippy::type_complexity, reason = "the two ends of one start")]
    fn spawn(
        &self,
        program: &Program,
    ) -> Result<(oneshot::Receiver<Result<i32>>, watch::Receiver<Option<Exit>>)> {
        let id = self.next();
        let (started, on_start) = oneshot::channel();
        let (exit, on_exit) = watch::channel(None);
        {
            let mut waiting = self.waiting();
            waiting.calls.insert(id, started);
            waiting.exits.insert(id, exit);
        }
        self.send(id, Call::Spawn(program.clone()))?;
        Ok((on_start, on_exit))
    }

    fn signal(&self, pid: i32, signal: i32) -> Result<oneshot::Receiver<Result<i32>>> {
        let id = self.next();
        let (done, on_done) = oneshot::channel();
        self.waiting().calls.insert(id, done);
        self.send(id, Call::Signal { pid, signal })?;
        Ok(on_done)
    }

    fn take(&self, line: &str) {
        let Ok(reply) = serde_json::from_str::<Reply>(line) else { return };
        let mut waiting = self.waiting();
        let call = |waiting: &mut Waiting, result| {
            if let Some(call) = waiting.calls.remove(&reply.id) {
                let _ = call.send(result);
            }
        };
        match reply.event {
            Event::Ready => {
                if let Some(ready) = waiting.ready.take() {
                    let _ = ready.send(Ok(()));
                }
            }
            Event::Started { pid } => call(&mut waiting, Ok(pid)),
            Event::Done => call(&mut waiting, Ok(0)),
            Event::Failed { error } => {
                waiting.exits.remove(&reply.id);
                call(&mut waiting, Err(anyhow!(error)));
            }
            Event::Exited(exit) => {
                if let Some(sender) = waiting.exits.remove(&reply.id) {
                    sender.send_replace(Some(exit));
                }
            }
        }
    }

    /// The first process is gone: nobody shall wait for it.
    fn lost(&self, said: &str) {
        let mut waiting = self.waiting();
        let cause = || anyhow!("{}'s first process ended: {said}", self.layout.name);
        if let Some(ready) = waiting.ready.take() {
            let _ = ready.send(Err(cause()));
        }
        for (_, call) in waiting.calls.drain() {
            let _ = call.send(Err(cause()));
        }
        waiting.exits.clear();
    }

    fn stop(&self) {
        self.requests().take();
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut holder) = holder {
            // unshare waits for the first process, which waits for all in its namespace to be gone.
            let _ = holder.wait();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}

// === impl Process ===

impl Process {
    /// Process id inside the node.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What was started.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Process id outside, for `/proc`. None when it has ended.
    pub fn outside_pid(&self) -> Option<u32> {
        let namespace = fs::read_link(format!("/proc/{}/ns/pid_for_children", self.space.pid())).ok()?;
        fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            if fs::read_link(format!("/proc/{pid}/ns/pid")).ok()? != namespace {
                return None;
            }
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            let inside: i32 = ids.split_whitespace().next_back()?.parse().ok()?;
            (inside == self.pid).then_some(pid)
        })
    }

    /// Whether it has not ended yet.
    pub fn is_running(&self) -> bool {
        self.exit_so_far().is_none()
    }

    /// How it ended; none while it runs.
    pub(crate) fn exit_so_far(&self) -> Option<Exit> {
        let exit = self.exit.borrow().clone();
        // The namespace's end is the program's end, though nobody tells how.
        exit.or_else(|| self.exit.has_changed().is_err().then(Exit::default))
    }

    /// Waits for its end.
    pub async fn wait(&self) -> Result<Exit> {
        let mut exit = self.exit.clone();
        let exit = exit.wait_for(Option::is_some).await;
        exit.ok()
            .and_then(|exit| exit.clone())
            .with_context(|| format!("{} went away with {}", self.space.name(), self.program.argv.join(" ")))
    }

    /// Sends a signal to it and to all it has started (its process group).
    pub async fn signal(&self, signal: i32) -> Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        self.space.inner.signal(self.pid, signal)?.await.unwrap_or_else(|_| Ok(0)).map(drop)
    }

    /// `kill -9`, and waits for the end.
    pub async fn kill9(&self) -> Result<Exit> {
        self.signal(nix::libc::SIGKILL).await?;
        self.wait().await
    }

    /// SIGTERM, and waits for the end.
    pub async fn terminate(&self) -> Result<Exit> {
        self.signal(nix::libc::SIGTERM).await?;
        self.wait().await
    }

    /// Kills it if it runs, and starts the same again.
    pub async fn restart(&self) -> Result<Process> {
        if self.is_running() {
            self.kill9().await?;
        }
        self.space.spawn(self.program.as_ref().clone()).await
    }
}
