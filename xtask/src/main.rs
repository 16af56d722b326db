//! Developer commands: `cargo xtask --help`.

mod cli;
mod progress;
mod setup;

use clap::Parser;

fn main() -> anyhow::Result<()> {
    cli::run(cli::Cli::parse())
}
