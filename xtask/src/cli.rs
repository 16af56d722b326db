//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{check, demo, generate, kernel, setup, test};

/// Developer commands of ovnkube-rs.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "Examples:\n  \
    cargo xtask demo                      two nodes, pods on both, who reaches whom\n  \
    cargo xtask demo --nodes 3 --keep     leave three nodes up and use kubectl\n  \
    cargo xtask demo --ip dual            IPv4 and IPv6\n  \
    cargo xtask test -- -p ovsdb          everything after -- goes to the test runner\n  \
    cargo xtask test kernel               the kernel's datapath, in a virtual machine\n  \
    cargo xtask check                     what a commit must pass besides the tests"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster on this machine, run pods on it and show that they reach each other
    Demo(Demo),
    /// Set up the machine, build, and run all tests
    Test(Test),
    /// Formatting, lints, docs, layering, file lengths, generated files
    Check,
    /// Run a benchmark and print its figures
    Bench(Bench),
    /// Write generated sources
    Gen(Gen),
    /// Install the programs that demo, test and bench need
    Setup,
}

/// `demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Number of nodes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub(crate) nodes: u8,
    /// Leave the cluster up until Ctrl-C and tell how to use kubectl with it
    #[arg(long)]
    pub(crate) keep: bool,
    /// Use the API server of this kubeconfig instead of the embedded one
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Address families of pods and nodes
    #[arg(long, value_enum, default_value_t = Ip::V4)]
    pub(crate) ip: Ip,
    /// Objects to apply
    #[arg(long, value_name = "FILE", default_value = "examples/first-steps.yaml")]
    pub(crate) objects: PathBuf,
    /// Build without optimisation: quicker to build, slower to run
    #[arg(long)]
    pub(crate) debug_build: bool,
    /// Build nothing: take the programs that are in this directory
    #[arg(long, value_name = "DIR", conflicts_with = "debug_build")]
    pub(crate) built: Option<PathBuf>,
    /// More flags for our binaries, as one string
    #[arg(long, value_name = "FLAGS", default_value = "")]
    pub(crate) extra: String,
}

/// Address families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ip {
    V4,
    V6,
    Dual,
}

/// `test`.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Only this suite, which is not part of the others
    #[arg(value_enum)]
    pub(crate) suite: Option<Suite>,
    /// Arguments for the test runner
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
}

/// Suites that need more than the other tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Demo and packet tests on the kernel's datapath, in a virtual machine
    Kernel,
}

/// `bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Which one; without a name they are listed
    pub(crate) name: Option<String>,
    /// Arguments for the benchmark
    #[arg(last = true)]
    pub(crate) args: Vec<String>,
}

/// `gen`.
#[derive(Debug, Args)]
pub(crate) struct Gen {
    /// Only compare with what is committed
    #[arg(long)]
    pub(crate) check: bool,
}

/// Runs the chosen command.
pub(crate) fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Demo(demo) => demo::run(&demo),
        Command::Test(test) if test.suite == Some(Suite::Kernel) => kernel::run(&test.args),
        Command::Test(test) => test::run(&test.args),
        Command::Check => check::run(),
        Command::Bench(bench) => test::bench(&bench),
        Command::Gen(gen_) => generate::run(gen_.check),
        Command::Setup => {
            let prefix = setup::run()?;
            setup::path_with_kubectl()?;
            println!("{} in {}", prefix.version()?, prefix.bin_dir().display());
            Ok(())
        }
    }
}
