//! `test kernel`: the demo and the packet tests in a virtual machine with Debian's kernel, on the kernel's datapath.
//!
//! The machine's own root file system is shared read-only with the virtual machine, below an overlay in its memory, so
//! what was built here runs there. qemu emulates the processor; no KVM is needed.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use devcluster::{DATAPATH_VARIABLE, binaries, prefix};
use serde_json::Value;

use crate::{check, progress, setup, test};

/// Programs and the packages that bring them.
const PROGRAMS: [(&str, &str); 4] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("cpio", "cpio"),
    ("modprobe", "kmod"),
    ("busybox", "busybox-static"),
];
/// What the tests need of the kernel; dependencies are added.
const MODULES: [&str; 27] = [
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "overlay",
    "openvswitch",
    "geneve",
    "veth",
    "tun",
    "bridge",
    "dummy",
    "vrf",
    "sctp",
    "nf_tables",
    "nf_conntrack",
    "nft_ct",
    "nft_chain_nat",
    "nft_nat",
    "nft_masq",
    "nft_redir",
    "nft_fib_inet",
    "nft_fib_ipv4",
    "nft_fib_ipv6",
    "sch_htb",
    "sch_ingress",
    "cls_u32",
    "act_police",
    "cls_matchall",
];
/// The tests of crate devcluster that run there: programs, and which of their tests make the short form.
const TESTS: [(&str, &str); 2] =
    [("packets", "all_pairs_over_both"), ("gateway", "both_families_in_both_modes")];
/// Begins the line that tells how it ended.
const VERDICT: &str = "KERNEL-TEST-RESULT ";
/// Memory of the virtual machine, MB.
const MEMORY: u32 = 4096;

/// Runs the demo and the short form of the packet tests, or with `args` what these say to the test programs (an
/// emulated processor takes a quarter of an hour for all of them); fails if one of them does.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let prefix = setup::run()?;
    setup::install_missing(&PROGRAMS)?;
    progress::line("building");
    let bins = test::build(false)?;
    let tests = test_programs()?;
    let home = prefix::cache_dir()?.join("kernel");
    fs::create_dir_all(&home)?;
    let kernel = kernel(&home)?;
    let work = tempfile::tempdir_in(&home)?;
    let script = script(&bins, prefix.bin_dir(), &tests, args)?;
    let initramfs = initramfs(work.path(), &kernel, &script)?;
    progress::line("starting the virtual machine");
    boot(&kernel, &initramfs)
}

/// The unpacked kernel package and its version.
struct Kernel {
    root: PathBuf,
    version: String,
}

fn kernel(home: &Path) -> Result<Kernel> {
    let root = home.join("root");
    if !root.join("boot").is_dir() {
        progress::line("downloading Debian's kernel");
        let depends = output("apt-cache", &["depends", "linux-image-amd64"])?;
        let package = depends
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: linux-image"))
            .map(|rest| format!("linux-image{rest}"))
            .context("apt knows no linux-image-amd64; run apt-get update on a Debian or Ubuntu system")?;
        let work = tempfile::tempdir_in(home)?;
        let status = Command::new("apt-get")
            .args(["download", "-q", "-o", "APT::Sandbox::User=root", &package])
            .current_dir(work.path())
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "apt-get download {package} failed: {status}");
        for entry in fs::read_dir(work.path())? {
            let status =
                Command::new("dpkg").arg("-x").arg(entry?.path()).arg(work.path().join("tree")).status()?;
            ensure!(status.success(), "dpkg -x failed: {status}");
        }
        fs::rename(work.path().join("tree"), &root).context("moving the kernel into the cache")?;
    }
    let modules =
        fs::read_dir(root.join("lib/modules"))?.flatten().next().context("the kernel has no modules")?;
    let version = modules.file_name().to_string_lossy().into_owned();
    output("depmod", &["-b", &root.display().to_string(), &version])?;
    Ok(Kernel { root, version })
}

/// The test programs, each with its short form.
fn test_programs() -> Result<Vec<(PathBuf, &'static str)>> {
    let mut args = vec!["test", "--no-run", "-p", "devcluster", "--message-format", "json"];
    args.extend(TESTS.iter().flat_map(|(test, _)| ["--test", test]));
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let text = output(&cargo, &args)?;
    let mut found = Vec::new();
    for line in text.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let name = message.pointer("/target/name").and_then(Value::as_str).unwrap_or_default();
        let short = TESTS.iter().find(|(test, _)| *test == name).map(|(_, short)| *short);
        if let (Some(short), Some(path)) = (short, message["executable"].as_str()) {
            found.push((PathBuf::from(path), short));
        }
    }
    ensure!(found.len() == TESTS.len(), "cargo built {} of {} test programs", found.len(), TESTS.len());
    Ok(found)
}

/// What runs in the virtual machine, under bash.
fn script(bins: &Path, ovn: &Path, tests: &[(PathBuf, &str)], args: &[String]) -> Result<String> {
    let mut lines = vec![
        "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root".to_owned(),
        format!("export {DATAPATH_VARIABLE}=kernel {}={}", prefix::BIN_DIR_VARIABLE, ovn.display()),
        format!("export {}={}", binaries::BIN_DIR_VARIABLE, bins.display()),
        "mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; ip link set lo up; result=0".to_owned(),
        format!("cd {}", check::root()?.display()),
    ];
    let run = |what: String| format!("echo \"== {what}\"; {what} || result=1");
    // Not this program's own path: it may just have been built anew.
    let me = bins.join("xtask");
    lines.push(run(format!("{} demo --built {}", me.display(), bins.display())));
    lines.extend(tests.iter().map(|(test, short)| {
        let which = if args.is_empty() { (*short).to_owned() } else { args.join(" ") };
        run(format!("{} --test-threads=1 {which}", test.display()))
    }));
    lines.push(format!("echo {VERDICT}$result"));
    Ok(lines.join("\n") + "\n")
}

/// Loads modules, mounts the shared root below an overlay, runs the script in it, and powers off.
const INIT: &str = r#"#!/bin/busybox sh
bb=/bin/busybox
$bb mkdir -p /proc /sys /dev /shared /memory /new
$bb mount -t proc proc /proc; $bb mount -t sysfs sysfs /sys; $bb mount -t devtmpfs dev /dev
while read -r module; do $bb insmod "/modules/$module"; done </modules.list
$bb mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro root /shared
$bb mount -t tmpfs memory /memory; $bb mkdir /memory/upper /memory/work
$bb mount -t overlay -o lowerdir=/shared,upperdir=/memory/upper,workdir=/memory/work overlay /new
for dir in proc sys dev; do $bb mkdir -p /new/$dir; $bb mount --bind /$dir /new/$dir; done
for dir in run tmp; do $bb mount -t tmpfs $dir /new/$dir; done
$bb cp /script /new/run/script
$bb chroot /new /bin/bash /run/script 2>&1
$bb poweroff -f
"#;

fn initramfs(work: &Path, kernel: &Kernel, script: &str) -> Result<PathBuf> {
    let tree = work.join("tree");
    for dir in ["bin", "modules"] {
        fs::create_dir_all(tree.join(dir))?;
    }
    let busybox = prefix::which("busybox").context("there is no busybox")?;
    fs::copy(busybox, tree.join("bin/busybox"))?;
    let mut order: Vec<String> = Vec::new();
    for module in MODULES {
        let root = kernel.root.display().to_string();
        let list = output("modprobe", &["-S", &kernel.version, "-d", &root, "--show-depends", module])?;
        for path in list.lines().filter_map(|line| line.strip_prefix("insmod ")?.split_whitespace().next()) {
            let path = Path::new(path);
            let name = path.file_name().context("a module without a name")?.to_string_lossy().into_owned();
            if !order.contains(&name) {
                fs::copy(path, tree.join("modules").join(&name))?;
                order.push(name);
            }
        }
    }
    fs::write(tree.join("modules.list"), order.join("\n") + "\n")?;
    fs::write(tree.join("script"), script)?;
    fs::write(tree.join("init"), INIT)?;
    output("chmod", &["755", &tree.join("init").display().to_string()])?;
    let image = work.join("initramfs");
    let pack = format!(
        "cd '{}' && find . | cpio -o -H newc --quiet | gzip -1 >'{}'",
        tree.display(),
        image.display()
    );
    output("sh", &["-c", &pack])?;
    Ok(image)
}

fn boot(kernel: &Kernel, initramfs: &Path) -> Result<()> {
    let image = kernel.root.join("boot").join(format!("vmlinuz-{}", kernel.version));
    let mut machine = Command::new("qemu-system-x86_64")
        .args(["-accel", "tcg,thread=multi", "-smp", "2", "-m", &MEMORY.to_string()])
        .args(["-nographic", "-no-reboot", "-net", "none"])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"])
        .args(["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"])
        .args(["-device", "virtio-9p-pci,fsdev=root,mount_tag=root"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting qemu-system-x86_64")?;
    let console = machine.stdout.take().context("no console")?;
    let mut verdict = None;
    for line in BufReader::new(console).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).trim_end().to_owned();
        if let Some(result) = line.strip_prefix(VERDICT) {
            verdict = Some(result == "0");
        }
        println!("{line}");
    }
    machine.wait()?;
    match verdict {
        Some(true) => Ok(()),
        Some(false) => bail!("tests on the kernel datapath failed"),
        None => bail!("the virtual machine ended before the tests did"),
    }
}

fn output(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output().with_context(|| format!("starting {program}"))?;
    ensure!(
        output.status.success(),
        "{program} {} failed: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
