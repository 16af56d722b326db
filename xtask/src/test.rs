//! `test` and `bench`: set up, build what the tests start, run.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};
use devcluster::{binaries, prefix};

use crate::{check, cli, progress, setup};

/// The programs that demo and benches start.
const PACKAGES: [&str; 6] = ["-p", "devcluster", "-p", "ovnkube", "-p", "ovn-k8s-cni-overlay"];

/// Sets up, builds and runs all tests; `args` go to the runner.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let prefix = setup::run()?;
    progress::line("building");
    let bins = build(false)?;
    let has_nextest = Command::new("cargo")
        .args(["nextest", "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    let mut line: Vec<&str> = if has_nextest { vec!["nextest", "run"] } else { vec!["test"] };
    if args.is_empty() {
        line.push("--workspace");
    }
    line.extend(args.iter().map(String::as_str));
    if !has_nextest {
        // Without nextest's groups: nodes with real OVN must not all start at once.
        line.extend(["--", "--test-threads=1"]);
    }
    progress::line(&format!("cargo {}", line.join(" ")));
    let (ovn, bins) = (prefix.bin_dir().display().to_string(), bins.display().to_string());
    let path = setup::path_with_kubectl()?;
    let variables =
        [(prefix::BIN_DIR_VARIABLE, &*ovn), (binaries::BIN_DIR_VARIABLE, &*bins), ("PATH", &*path)];
    check::cargo(&line, &variables)?;
    if has_nextest && args.is_empty() {
        // nextest leaves the examples in the documentation out.
        check::cargo(&["test", "--workspace", "--doc", "--quiet"], &[])?;
    }
    Ok(())
}

/// Runs a benchmark: a `harness = false` bench target of that name, in release mode.
pub(crate) fn bench(bench: &cli::Bench) -> Result<()> {
    let known = benches()?;
    let Some(name) = &bench.name else {
        if known.is_empty() {
            println!("there are no benchmarks");
        }
        for (name, package) in known {
            println!("{name} ({package})");
        }
        return Ok(());
    };
    let Some((_, package)) = known.iter().find(|(known, _)| known == name) else {
        let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        bail!("no benchmark {name}; there are: {}", names.join(", "));
    };
    let prefix = setup::run()?;
    progress::line("building");
    let bins = build(true)?;
    let mut line = vec!["bench", "-p", package, "--bench", name, "--"];
    line.extend(bench.args.iter().map(String::as_str));
    let (ovn, bins) = (prefix.bin_dir().display().to_string(), bins.display().to_string());
    check::cargo(&line, &[(prefix::BIN_DIR_VARIABLE, &ovn), (binaries::BIN_DIR_VARIABLE, &bins)])
}

/// Bench targets of the workspace with their packages.
fn benches() -> Result<Vec<(String, String)>> {
    let metadata = cargo_json(&["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            let is_bench = target["kind"].as_array().into_iter().flatten().any(|kind| kind == "bench");
            if let (true, Some(name), Some(package)) =
                (is_bench, target["name"].as_str(), package["name"].as_str())
            {
                found.push((name.to_owned(), package.to_owned()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Builds our programs and tells the directory they are in.
pub(crate) fn build(release: bool) -> Result<PathBuf> {
    let mut args = vec!["build", "--bins"];
    if release {
        args.push("--release");
        args.extend(PACKAGES);
    } else {
        // As the tests are built: with other features of the dependencies everything would be compiled twice.
        args.push("--workspace");
    }
    check::cargo(&args, &[])?;
    let metadata: serde_json::Value =
        serde_json::from_str(&cargo_json(&["metadata", "--no-deps", "--format-version", "1"])?)?;
    let target = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(target).join(if release { "release" } else { "debug" }))
}

fn cargo_json(args: &[&str]) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output =
        Command::new(cargo).args(args).current_dir(check::root()?).output().context("starting cargo")?;
    if !output.status.success() {
        bail!("cargo {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
