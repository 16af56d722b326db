//! Developer commands: `cargo xtask --help`.

mod check;
mod cli;
mod demo;
mod generate;
mod kernel;
mod layering;
mod progress;
mod setup;
mod test;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
