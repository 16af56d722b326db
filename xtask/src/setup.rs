//! `setup`: the programs that demo, test and bench need.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use devcluster::prefix::{Prefix, kubectl_dir, which};

use crate::progress;

/// A program and the Debian package that brings it.
const PROGRAMS: [(&str, &str); 11] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("ethtool", "ethtool"),
    ("ping", "iputils-ping"),
    ("tcpdump", "tcpdump"),
    ("conntrack", "conntrack"),
    ("busybox", "busybox-static"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("openssl", "openssl"),
    ("sysctl", "procps"),
];
const KEYRING: (&str, &str) = ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring");

/// Installs what is missing; quick and silent when nothing is.
pub(crate) fn run() -> Result<Prefix> {
    ensure!(
        nix::unistd::Uid::effective().is_root(),
        "nodes are network namespaces, which only root can make; run this as root (sudo -E cargo xtask …)"
    );
    let mut missing = missing(&PROGRAMS);
    if which("apt-get").is_some() && !Path::new(KEYRING.0).exists() {
        missing.push(KEYRING.1);
    }
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        install(&missing)?;
    }
    Prefix::find_or_make(&|line| progress::line(line))
}

/// Installs the packages of those programs that are missing.
pub(crate) fn install_missing(programs: &[(&str, &'static str)]) -> Result<()> {
    let missing = missing(programs);
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

fn missing(programs: &[(&str, &'static str)]) -> Vec<&'static str> {
    let absent = programs.iter().filter(|(program, _)| which(program).is_none());
    absent.map(|(_, package)| *package).collect()
}

/// `PATH` with a kubectl in it that is new enough.
pub(crate) fn path_with_kubectl() -> Result<String> {
    let dir = kubectl_dir(&|line| progress::line(line))?.display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    if path.split(':').any(|known| known == dir) { Ok(path) } else { Ok(format!("{dir}:{path}")) }
}

fn install(packages: &[&str]) -> Result<()> {
    if which("apt-get").is_none() {
        bail!("please install {}; this system has no apt-get to do it with", packages.join(", "));
    }
    progress::line(&format!("installing {}", packages.join(", ")));
    apt(&["update", "-q"])?;
    let mut args = vec!["install", "-q", "-y", "--no-install-recommends"];
    args.extend(packages);
    apt(&args)
}

fn apt(args: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("starting apt-get")?;
    ensure!(
        output.status.success(),
        "apt-get {} failed: {}\n{}",
        args.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
