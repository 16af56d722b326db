//! The direction of dependencies between crates, and what pure crates may not know.

use std::{collections::BTreeSet, process::Command};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::check::root;

/// Crates without I/O: what they may depend on, whole. A dependency that is optional is behind a feature for drivers.
const PURE: [(&str, &[&str]); 10] = [
    ("net", &[]),
    ("kapi", &["net"]),
    ("policy", &["kapi", "net"]),
    ("ovsdb", &[]),
    ("ovn", &["net", "ovsdb"]),
    ("service", &["kapi", "net"]),
    ("world", &["kapi", "net", "policy", "service"]),
    ("compile", &["kapi", "net", "ovn", "ovsdb", "policy", "service", "world"]),
    ("cni", &["kapi", "net"]),
    ("config", &["net"]),
];
/// What any pure crate may use from outside the workspace: data, text and errors.
const PURE_OUTSIDE: [&str; 7] = ["base64", "ipnet", "serde", "serde_json", "sha1", "sha2", "thiserror"];

/// Crates with I/O and processes: which of ours they may depend on.
const OTHERS: [(&str, &[&str]); 14] = [
    ("host", &["net"]),
    ("kube-io", &["kapi", "net"]),
    ("telemetry", &[]),
    (
        "controller",
        &["compile", "kapi", "kube-io", "net", "ovn", "ovsdb", "policy", "service", "telemetry", "world"],
    ),
    ("cluster-manager", &["kapi", "kube-io", "net", "telemetry", "world"]),
    ("node", &["cni", "host", "kapi", "kube-io", "net", "ovn", "ovsdb", "service", "telemetry"]),
    ("devapi", &[]),
    ("scenario", &["kapi", "net", "ovn", "ovsdb"]),
    ("policy-model", &[]),
    ("diagnose", &["kapi", "net", "ovn", "policy"]),
    ("devcluster", &["devapi", "kapi", "net"]),
    ("ovn-k8s-cni-overlay", &["cni", "host", "net", "ovsdb"]),
    (
        "ovnkube",
        &[
            "cluster-manager",
            "cni",
            "compile",
            "config",
            "controller",
            "diagnose",
            "host",
            "kapi",
            "kube-io",
            "net",
            "node",
            "ovn",
            "ovsdb",
            "policy",
            "service",
            "telemetry",
            "world",
        ],
    ),
    ("xtask", &["devapi", "devcluster", "kapi", "net", "ovn", "ovsdb"]),
];

/// Only these may know the Kubernetes client library.
const KUBE: [&str; 5] = ["kube-io", "devcluster", "xtask", "cluster-manager", "devapi"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// None is an ordinary one; tests and build scripts are free.
    kind: Option<String>,
    optional: bool,
}

/// Fails with a line for every dependency that points the wrong way.
pub(crate) fn check() -> Result<()> {
    let wrong = violations(&metadata()?);
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("\n{}", wrong.join("\n"))
}

fn metadata() -> Result<Metadata> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root()?)
        .output()
        .context("starting cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("reading cargo metadata")
}

fn violations(metadata: &Metadata) -> Vec<String> {
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let pure = PURE.iter().find(|(pure, _)| *pure == name).map(|(_, allowed)| *allowed);
        let other = OTHERS.iter().find(|(other, _)| *other == name).map(|(_, allowed)| *allowed);
        let Some(allowed) = pure.or(other) else {
            wrong.push(format!("{name}: a new crate; say in xtask/src/layering.rs what it may depend on"));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| dependency.kind.is_none()) {
            let on = dependency.name.as_str();
            if ours.contains(on) {
                if !allowed.contains(&on) {
                    wrong.push(format!("{name} may not depend on {on}"));
                }
            } else if pure.is_some() && !dependency.optional && !PURE_OUTSIDE.contains(&on) {
                wrong.push(format!("{name} is pure and may not depend on {on}"));
            } else if matches!(on, "kube" | "k8s-openapi") && !KUBE.contains(&name) {
                wrong.push(format!("{name} may not know {on}; kube-io hides it"));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_point_inward() -> Result<()> {
        check()
    }

    #[test]
    fn a_wrong_direction_is_seen() -> Result<()> {
        let metadata: Metadata = serde_json::from_str(
            r#"{"packages": [
                {"name": "net", "dependencies": [{"name": "tokio", "kind": null, "optional": false},
                                                 {"name": "kapi", "kind": null, "optional": false},
                                                 {"name": "proptest", "kind": "dev", "optional": false}]},
                {"name": "kapi", "dependencies": [{"name": "net", "kind": null, "optional": false}]},
                {"name": "novel", "dependencies": []}]}"#,
        )?;
        let wrong = violations(&metadata);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].contains("net is pure and may not depend on tokio"));
        assert!(wrong[1].contains("net may not depend on kapi"));
        assert!(wrong[2].starts_with("novel: a new crate"));
        Ok(())
    }
}
