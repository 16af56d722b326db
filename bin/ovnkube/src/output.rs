//! Writing to the terminal.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
};

/// Prints to standard output. A reader that went away (`ovnkube --help | head`) is no error.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    ExitCode::SUCCESS
}

/// Says what is wrong on standard error.
pub(crate) fn fail(code: u8, text: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "ovnkube: {text}");
    ExitCode::from(code)
}

/// `ovnkube --help`, with colours only where a person reads it and wants them.
pub(crate) fn help() -> ExitCode {
    let terminal = std::io::stdout().is_terminal();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    print(&config::report::help(columns.unwrap_or(100), terminal && !plain))
}
