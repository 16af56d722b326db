//! `check`: what a commit must pass besides the tests.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{generate, layering, progress};

/// Longest source file, in lines, generated ones aside.
const LONGEST: usize = 700;

/// Runs every check, whatever the others say, and names those that failed.
pub(crate) fn run() -> Result<()> {
    type Check = (&'static str, fn() -> Result<()>);
    let checks: [Check; 6] = [
        ("formatting", || cargo(&["fmt", "--all", "--check"], &[])),
        ("layering", layering::check),
        ("file lengths", lengths),
        ("generated files", || generate::run(true)),
        ("lints", || {
            cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], &[])
        }),
        ("docs", || {
            cargo(&["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings")])
        }),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        progress::line(name);
        if let Err(error) = check() {
            progress::line(&format!("{name}: {error:#}"));
            failed.push(name);
        }
    }
    if failed.is_empty() {
        progress::line("all checks passed");
        return Ok(());
    }
    bail!("failed: {}", failed.join(", "))
}

/// The directory of the workspace.
pub(crate) fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_path_buf).context("xtask has no parent directory")
}

/// Runs cargo in the workspace.
pub(crate) fn cargo(args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(args)
        .envs(env.iter().copied())
        .current_dir(root()?)
        .status()
        .context("starting cargo")?;
    if !status.success() {
        bail!("cargo {} failed: {status}", args.join(" "));
    }
    Ok(())
}

fn lengths() -> Result<()> {
    let long = too_long(&root()?)?;
    if long.is_empty() {
        return Ok(());
    }
    bail!("more than {LONGEST} lines, one idea a file: {}", long.join(", "))
}

fn too_long(root: &Path) -> Result<Vec<String>> {
    let mut long = Vec::new();
    let mut dirs: Vec<PathBuf> = ["crates", "bin", "xtask"].iter().map(|dir| root.join(dir)).collect();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path)?;
                let generated = text.lines().take(3).any(|line| line.contains("@generated"));
                let count = text.lines().count();
                if count > LONGEST && !generated {
                    long.push(format!("{} ({count})", path.strip_prefix(root).unwrap_or(&path).display()));
                }
            }
        }
    }
    long.sort();
    Ok(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_source_file_is_too_long() -> Result<()> {
        assert_eq!(too_long(&root()?)?, Vec::<String>::new());
        Ok(())
    }
}
