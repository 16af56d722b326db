//! Developer commands: `cargo xtask --help`.

mod check;
mod cli;
mod demo;
mod generate;
mod layering;
mod progress;
mod setup;
mod test;

use clap::Parser;

fn main() -> anyhow::Result<()> {
    cli::run(cli::Cli::parse())
}
