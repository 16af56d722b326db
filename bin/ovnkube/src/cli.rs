//! Sub-commands. What starts with a flag is the daemon and does not come here.

use crate::{build, daemon, output, policy};
use clap::{Parser, Subcommand, ValueEnum};
use config::report::{self, Format, Shell};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "ovnkube",
    about = "OVN-Kubernetes. Without a sub-command, flags run the daemon: see ovnkube --help."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Network policies explained: who may talk to whom, which rule decides, what a change would do.
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Print the version.
    Version,
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: ShellName,
    },
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print the value of every setting and where it came from.
    Show {
        /// Format.
        #[arg(short, long, value_enum, default_value_t = FormatName::Text)]
        output: FormatName,
        /// Leave out settings that have their default.
        #[arg(long)]
        changed: bool,
        /// Flags of the daemon, to see what it would make of them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
        flags: Vec<String>,
    },
    /// Print the reference of all settings, in Markdown.
    Reference,
}

#[derive(Clone, Copy, ValueEnum)]
enum FormatName {
    Text,
    Json,
    Yaml,
}

#[derive(Clone, Copy, ValueEnum)]
enum ShellName {
    Bash,
    Zsh,
    Fish,
}

/// Runs the sub-command of this process' arguments; clap prints its own errors and help.
pub(crate) fn run() -> ExitCode {
    match Cli::parse().command {
        Command::Version => output::print(&build::version()),
        Command::Completion { shell } => output::print(&report::completion(match shell {
            ShellName::Bash => Shell::Bash,
            ShellName::Zsh => Shell::Zsh,
            ShellName::Fish => Shell::Fish,
        })),
        Command::Policy(command) => policy::run(command),
        Command::Config(ConfigCommand::Reference) => output::print(&report::reference()),
        Command::Config(ConfigCommand::Show { output, changed, flags }) => show(output, changed, &flags),
    }
}

fn show(format: FormatName, changed: bool, flags: &[String]) -> ExitCode {
    let (config, warnings) = match daemon::load(flags) {
        Ok(loaded) => loaded,
        Err(error) => return output::fail(daemon::USAGE, &error.to_string()),
    };
    for warning in warnings {
        output::fail(0, &format!("warning: {warning}"));
    }
    let format = match format {
        FormatName::Text => Format::Text,
        FormatName::Json => Format::Json,
        FormatName::Yaml => Format::Yaml,
    };
    output::print(&report::show(&config, format, changed))
}
