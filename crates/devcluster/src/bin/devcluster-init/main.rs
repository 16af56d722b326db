//! First process of a node: makes the node's mounts, then starts, signals and reaps programs as told on its
//! standard input (see `devcluster::wire`). Everything else about a node is decided by the builder.

mod children;
mod janitor;
mod mounts;

use std::{
    io::{BufRead, stdin},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use devcluster::wire::{Call, Event, Layout, Request};

use children::Children;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["node", layout] => node(layout),
        ["janitor", dir] => janitor::run(Path::new(dir)),
        _ => Err(anyhow::anyhow!("this program is started by a development cluster, not by hand")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("devcluster-init: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn node(layout: &str) -> Result<()> {
    let layout: Layout = serde_json::from_str(layout).context("reading the layout")?;
    // As an ordinary process the end of this one would end nothing.
    if std::process::id() != 1 {
        bail!("not the first process of a PID namespace");
    }
    mounts::make(&layout)?;
    let children = Children::start();
    children.tell(0, Event::Ready);
    for line in stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?).context("reading a request")?;
        match request.call {
            Call::Spawn(program) => children.spawn(request.id, &program),
            Call::Signal { pid, signal } => children.signal(request.id, pid, signal),
        }
    }
    // The builder is gone. Returning ends this process, and with it the namespace.
    Ok(())
}
