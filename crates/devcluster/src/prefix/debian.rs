//! A prefix of Debian packages, downloaded by apt against a package list of its own and unpacked with dpkg.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use super::{OLDEST_OVN, PROGRAMS, Prefix, parse_version, which};

/// The release whose packages are taken: the first Debian with an OVN that is new enough.
const RELEASE: &str = "trixie";
/// Variable that names a mirror; without it the one of the system's own apt sources is taken.
const MIRROR_VARIABLE: &str = "OVNKUBE_DEBIAN_MIRROR";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// What the programs are in; their libraries are found by following dependencies.
const PACKAGES: [&str; 5] =
    ["ovn-central", "ovn-host", "ovn-common", "openvswitch-switch", "openvswitch-common"];
/// Name of a prefix that is being made.
const UNFINISHED: &str = "making-";
const SCHEMAS: [&str; 3] = [
    "usr/share/ovn/ovn-nb.ovsschema",
    "usr/share/ovn/ovn-sb.ovsschema",
    "usr/share/openvswitch/vswitch.ovsschema",
];

/// Whether apt and dpkg are here to make a prefix with.
pub fn have() -> bool {
    which("apt-get").is_some() && which("dpkg").is_some()
}

/// The newest prefix made earlier.
pub(super) fn newest(cache: &Path) -> Option<Prefix> {
    let mut found: Vec<PathBuf> = fs::read_dir(cache)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ovn-")))
        .collect();
    found.sort();
    found.iter().rev().find_map(|dir| Prefix::at(&dir.join("bin")).ok())
}

/// Downloads, unpacks and wraps. The directory appears under its final name only when it is whole.
pub(super) fn make(cache: &Path, progress: &dyn Fn(&str)) -> Result<Prefix> {
    ensure!(
        have(),
        "OVN is missing or too old, and this system has no apt to get it with; install OVN 24.03 or newer"
    );
    fs::create_dir_all(cache).with_context(|| format!("making {}", cache.display()))?;
    // One maker at a time; who waited finds the work done.
    let lock = fs::File::create(cache.join("lock"))?;
    lock.lock()?;
    if let Some(made) = newest(cache) {
        return Ok(made);
    }
    sweep(cache);
    let work = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(cache)?;
    let apt = Apt::new(work.path())?;
    progress("OVN: reading package lists");
    apt.run("apt-get", &["update", "-q"])?;
    let packages = closure(&apt)?;
    progress(&format!("OVN: downloading {} packages", packages.len()));
    let debs = work.path().join("debs");
    fs::create_dir_all(&debs)?;
    let mut download = vec!["download", "-q"];
    download.extend(packages.iter().map(String::as_str));
    apt.run_in(&debs, "apt-get", &download)?;
    progress("OVN: unpacking");
    let tree = work.path().join("prefix");
    let root = tree.join("root");
    fs::create_dir_all(&root)?;
    for entry in fs::read_dir(&debs)? {
        let deb = entry?.path();
        let status = Command::new("dpkg").arg("-x").args([&deb, &root]).status()?;
        ensure!(status.success(), "dpkg -x {} failed: {status}", deb.display());
    }
    let version = deb_version(&debs)?;
    let home = cache.join(format!("ovn-{version}"));
    wrap(&tree, &home)?;
    if home.exists() {
        // Not a whole one, or it had been found.
        fs::remove_dir_all(&home).with_context(|| format!("removing a broken {}", home.display()))?;
    }
    fs::rename(&tree, &home).with_context(|| format!("moving the prefix to {}", home.display()))?;
    let prefix = Prefix::at(&home.join("bin"))?;
    progress(&format!("OVN: {} in {}", prefix.version()?, home.display()));
    Ok(prefix)
}

/// Removes what an interrupted maker left.
fn sweep(cache: &Path) {
    let Ok(entries) = fs::read_dir(cache) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Version of the ovn-common package among the downloads, without what a file name should not hold.
fn deb_version(debs: &Path) -> Result<String> {
    for entry in fs::read_dir(debs)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(rest) = name.strip_prefix("ovn-common_") {
            let version = rest.split('_').next().unwrap_or(rest);
            return Ok(version.replace("%3a", "-").replace(':', "-"));
        }
    }
    bail!("apt-get download brought no ovn-common")
}

/// The packages and all they depend on, as far as shared libraries go.
fn closure(apt: &Apt) -> Result<Vec<String>> {
    let mut args = vec![
        "depends",
        "--recurse",
        "--no-recommends",
        "--no-suggests",
        "--no-conflicts",
        "--no-breaks",
        "--no-replaces",
        "--no-enhances",
    ];
    args.extend(PACKAGES);
    let output = apt.run("apt-cache", &args)?;
    let mut packages: Vec<String> = output
        .lines()
        .filter(|line| !line.starts_with([' ', '<']) && !line.trim().is_empty())
        .map(|line| line.trim().split(':').next().unwrap_or_default().to_owned())
        .filter(|name| PACKAGES.contains(&name.as_str()) || is_library(name))
        .collect();
    packages.sort();
    packages.dedup();
    ensure!(packages.iter().any(|name| name == "libc6"), "apt-cache depends names no libc6: {output}");
    Ok(packages)
}

/// Programs of other packages (python3, perl, kmod …) are for the init scripts, which nobody runs here.
fn is_library(name: &str) -> bool {
    name.starts_with("lib") && !name.contains("perl") && !name.contains("python")
}

/// Writes `bin/<program>` scripts that start the programs through the prefix's loader, and collects the schemas.
fn wrap(tree: &Path, home: &Path) -> Result<()> {
    let root = tree.join("root");
    let loader = loader(&root)?;
    let libraries: Vec<String> = library_dirs(&root)?
        .iter()
        .filter_map(|dir| dir.strip_prefix(&root).ok())
        .map(|dir| home.join("root").join(dir).display().to_string())
        .collect();
    let bin = tree.join("bin");
    fs::create_dir_all(&bin)?;
    for program in PROGRAMS {
        let real = ["usr/bin", "usr/sbin", "usr/lib/openvswitch-switch"]
            .iter()
            .map(|dir| Path::new(dir).join(program))
            .find(|path| root.join(path).exists())
            .with_context(|| format!("the packages hold no {program}"))?;
        let script = format!(
            "#!/bin/sh\nexec '{}' --library-path '{}' '{}' \"$@\"\n",
            home.join("root").join(&loader).display(),
            libraries.join(":"),
            home.join("root").join(real).display(),
        );
        let path = bin.join(program);
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let schemas = tree.join("schemas");
    fs::create_dir_all(&schemas)?;
    for schema in SCHEMAS {
        let from = root.join(schema);
        let name = from.file_name().context("a schema without a name")?;
        fs::copy(&from, schemas.join(name)).with_context(|| format!("the packages hold no {schema}"))?;
    }
    Ok(())
}

/// The dynamic loader of the unpacked C library, relative to the root.
fn loader(root: &Path) -> Result<PathBuf> {
    for dir in ["usr/lib64", "usr/lib", "lib64", "lib"] {
        let Ok(entries) = fs::read_dir(root.join(dir)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("ld-linux") {
                // lib64/ld-linux… is an absolute or relative link into the library directory; resolve it inside the root.
                for lib in library_dirs(root)? {
                    let candidate = lib.join(&name);
                    if candidate.exists() {
                        return Ok(candidate.strip_prefix(root)?.to_path_buf());
                    }
                }
                return Ok(Path::new(dir).join(name));
            }
        }
    }
    bail!("the unpacked libc6 has no ld-linux")
}

/// Directories of the unpacked tree that hold shared libraries.
fn library_dirs(root: &Path) -> Result<Vec<PathBuf>> {
    let mut dirs = Vec::new();
    for base in ["usr/lib", "lib"] {
        let base = root.join(base);
        let Ok(entries) = fs::read_dir(&base) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() && entry.file_name().to_string_lossy().contains("-linux-gnu") {
                dirs.push(path);
            }
        }
        dirs.push(base);
    }
    Ok(dirs)
}

/// Whether the system's own release has an OVN that is new enough: its packages are taken then. They are unpacked like
/// the others, not installed, so that no service starts on this machine.
fn system_is_new_enough() -> bool {
    let output = Command::new("apt-cache").args(["policy", "ovn-central"]).env("LC_ALL", "C").output();
    let Ok(output) = output else { return false };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let candidate = text.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
    candidate
        .and_then(|version| parse_version(&format!("ovn-northd {version}")))
        .is_some_and(|version| version >= OLDEST_OVN)
}

/// The Debian mirror to take packages from.
fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var(MIRROR_VARIABLE) {
        return Ok(mirror);
    }
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"])
        .output()
        .context("starting apt-get")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.lines().map(|line| line.trim_end_matches('/')).find(|line| line.ends_with("/debian"));
    found.map(str::to_owned).with_context(|| {
        format!("the system's apt sources name no Debian mirror; set {MIRROR_VARIABLE} to one, or install OVN 24.03 or newer")
    })
}

/// Downloads one package, which needs nothing the system lacks, and unpacks it into `<work>/root`.
pub(super) fn unpack(work: &Path, package: &str) -> Result<()> {
    ensure!(
        have(),
        "{package} is missing or too old, and this system has no apt to get it with; please install it"
    );
    let apt = Apt::new(work)?;
    apt.run("apt-get", &["update", "-q"])?;
    let debs = work.join("debs");
    fs::create_dir_all(&debs)?;
    apt.run_in(&debs, "apt-get", &["download", "-q", package])?;
    for entry in fs::read_dir(&debs)? {
        let deb = entry?.path();
        let status = Command::new("dpkg").arg("-x").arg(&deb).arg(work.join("root")).status()?;
        ensure!(status.success(), "dpkg -x {} failed: {status}", deb.display());
    }
    Ok(())
}

/// apt with lists, cache and sources of its own, so that the system's are neither read nor changed.
struct Apt {
    options: Vec<String>,
}

// === impl Apt ===

impl Apt {
    fn new(work: &Path) -> Result<Self> {
        let dir = work.join("apt");
        for sub in ["lists/partial", "cache/archives/partial", "parts"] {
            fs::create_dir_all(dir.join(sub))?;
        }
        fs::write(dir.join("status"), "")?;
        let mut options = Vec::new();
        if !system_is_new_enough() {
            let mirror = mirror()?;
            ensure!(
                Path::new(KEYRING).exists(),
                "{KEYRING} is missing, so Debian's packages cannot be verified; install debian-archive-keyring"
            );
            fs::write(
                dir.join("sources.list"),
                format!("deb [signed-by={KEYRING}] {mirror} {RELEASE} main\n"),
            )?;
            options.push(format!("Dir::Etc::sourcelist={}", dir.join("sources.list").display()));
            options.push(format!("Dir::Etc::sourceparts={}", dir.join("parts").display()));
        }
        // apt's downloader runs as its own user by default, which cannot write into root's home.
        options.extend([
            format!("Dir::State::lists={}", dir.join("lists").display()),
            format!("Dir::State::status={}", dir.join("status").display()),
            format!("Dir::Cache={}", dir.join("cache").display()),
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::Retries=3".to_owned(),
        ]);
        Ok(Self { options: options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect() })
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        self.run_in(Path::new("/"), program, args)
    }

    fn run_in(&self, dir: &Path, program: &str, args: &[&str]) -> Result<String> {
        let output = Command::new(program)
            .args(&self.options)
            .args(args)
            .current_dir(dir)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C")
            .output()
            .with_context(|| format!("starting {program}"))?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{program} {} failed: {}\n{}",
            args.first().unwrap_or(&""),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(stdout)
    }
}
