//! `ovnkube`: cluster manager, network controller and node agent in one program, and its command line.

mod build;
mod cli;
mod daemon;
mod observe;
mod output;
mod pidfile;
mod pods;
mod policy;
mod run;
mod settings;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = Vec::new();
    for arg in std::env::args_os().skip(1) {
        match arg.into_string() {
            Ok(arg) => args.push(arg),
            Err(arg) => return output::fail(daemon::USAGE, &format!("argument {arg:?} is not UTF-8")),
        }
    }
    let asks = |words: [&str; 3]| args.iter().any(|a| words.contains(&a.as_str()));
    match args.first() {
        // Flags alone are the daemon's, read as the reference reads them.
        Some(first) if first.starts_with('-') => {
            if asks(["--help", "-help", "-h"]) {
                output::help()
            } else if asks(["--version", "-version", "-v"]) {
                output::print(&build::version())
            } else {
                daemon::start(&args)
            }
        }
        Some(_) => cli::run(),
        None => output::fail(
            daemon::USAGE,
            "no role is given; name one, for example --init-node NODE (see ovnkube --help)",
        ),
    }
}
