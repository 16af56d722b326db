//! The programs of a node: started, signalled, reaped.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{Read, Seek, Write, stdout},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Context, Result};
use devcluster::wire::{Event, Exit, Program, Reply};
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::Pid,
};

/// The running programs and the thread that reaps them.
#[derive(Clone)]
pub(crate) struct Children {
    shared: Arc<Shared>,
}

struct Shared {
    running: Mutex<HashMap<i32, Running>>,
    /// Told when a program was started: the reaper has something to wait for.
    started: Condvar,
}

struct Running {
    id: u64,
    since: Instant,
    captured: Option<(File, File)>,
}

// === impl Children ===

impl Children {
    pub(crate) fn start() -> Self {
        let children =
            Self { shared: Arc::new(Shared { running: Mutex::default(), started: Condvar::new() }) };
        let reaper = children.clone();
        thread::spawn(move || reaper.reap());
        children
    }

    /// Sends one line to the builder. When it is gone there is nobody to tell.
    pub(crate) fn tell(&self, id: u64, event: Event) {
        let Ok(mut line) = serde_json::to_vec(&Reply { id, event }) else { return };
        line.push(b'\n');
        let mut out = stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }

    pub(crate) fn spawn(&self, id: u64, program: &Program) {
        // Held over the start, so that the reaper cannot see the end before the program is known here.
        let mut running = self.lock();
        match start(id, program) {
            Ok((pid, program)) => {
                running.insert(pid, program);
                self.tell(id, Event::Started { pid });
                self.shared.started.notify_all();
            }
            Err(error) => self.tell(id, Event::Failed { error: format!("{error:#}") }),
        }
    }

    pub(crate) fn signal(&self, id: u64, pid: i32, signal: i32) {
        let sent = Signal::try_from(signal).and_then(|signal| killpg(Pid::from_raw(pid), signal));
        match sent {
            // Ended meanwhile: what was wanted.
            Ok(()) | Err(Errno::ESRCH) => self.tell(id, Event::Done),
            Err(error) => {
                self.tell(id, Event::Failed { error: format!("signal {signal} to {pid}: {error}") });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Running>> {
        self.shared.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reaps for ever. Looks first and takes second: a failed start is reaped by the standard library itself, under
    /// the lock.
    fn reap(&self) {
        loop {
            let ended = waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            let mut running = self.lock();
            match ended {
                Ok(status) => {
                    let Some(pid) = status.pid() else { continue };
                    let Ok(status) = waitpid(pid, Some(WaitPidFlag::WNOHANG)) else { continue };
                    if let Some(program) = running.remove(&pid.as_raw()) {
                        drop(running);
                        let id = program.id;
                        self.tell(id, Event::Exited(exit(program, status)));
                    }
                }
                Err(Errno::ECHILD) => {
                    while running.is_empty() {
                        running = self.shared.started.wait(running).unwrap_or_else(PoisonError::into_inner);
                    }
                }
                Err(_) => {}
            }
        }
    }
}

fn start(id: u64, program: &Program) -> Result<(i32, Running)> {
    let (name, args) = program.argv.split_first().context("no program named")?;
    let mut command = Command::new(name);
    command.args(args).process_group(0);
    if program.clear_env {
        let path = std::env::var_os("PATH");
        command.env_clear();
        command.envs(path.map(|path| ("PATH", path)));
    }
    command.envs(program.env.iter().map(|(key, value)| (key, value)));
    if let Some(dir) = &program.dir {
        command.current_dir(dir);
    }
    match &program.stdin {
        Some(bytes) => {
            let mut file = tempfile::tempfile().context("a file for the input")?;
            file.write_all(bytes)?;
            file.rewind()?;
            command.stdin(file);
        }
        None => {
            command.stdin(Stdio::null());
        }
    }
    // Files and not pipes: a program that leaves a daemon behind would keep a pipe open for ever.
    let captured = if let Some(log) = &program.log {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("opening {}", log.display()))?;
        command.stdout(file.try_clone()?).stderr(file);
        None
    } else {
        let (out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        command.stdout(out.try_clone()?).stderr(err.try_clone()?);
        Some((out, err))
    };
    let since = Instant::now();
    let child = command.spawn().with_context(|| format!("starting {name}"))?;
    Ok((i32::try_from(child.id())?, Running { id, since, captured }))
}

fn exit(program: Running, status: WaitStatus) -> Exit {
    let mut exit = Exit {
        micros: u64::try_from(program.since.elapsed().as_micros()).unwrap_or(u64::MAX),
        ..Exit::default()
    };
    match status {
        WaitStatus::Exited(_, code) => exit.code = Some(code),
        WaitStatus::Signaled(_, signal, _) => exit.signal = Some(signal as i32),
        _ => {}
    }
    if let Some((mut out, mut err)) = program.captured {
        exit.stdout = read_all(&mut out);
        exit.stderr = read_all(&mut err);
    }
    exit
}

fn read_all(file: &mut File) -> String {
    let mut bytes = Vec::new();
    match file.rewind().and_then(|()| file.read_to_end(&mut bytes)) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(output lost: {error})"),
    }
}
