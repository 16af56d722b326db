//! A node's view of the file system: the machine's, with the directories of OVS, OVN, CNI and our agent private.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use devcluster::wire::{Layout, PRIVATE};
use nix::mount::{MsFlags, mount};

/// Trees that get a writable layer of the node's own, so that mount points can be made in them unseen.
const LAYERED: [&str; 3] = ["/etc", "/var/lib", "/opt"];

/// Makes the mounts; the caller's mount namespace is its own already.
pub(crate) fn make(layout: &Layout) -> Result<()> {
    // The machine's sysfs shows the machine's interfaces.
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>).context("mounting /sys")?;
    for tree in LAYERED {
        layer(layout, Path::new(tree))?;
    }
    let run = layout.outside(Path::new("/run"));
    for sub in ["netns", "lock", "ovn", "openvswitch", "ovn-kubernetes"] {
        fs::create_dir_all(run.join(sub)).with_context(|| format!("making {}", run.join(sub).display()))?;
    }
    for dir in PRIVATE {
        bind(layout, Path::new(dir))?;
    }
    if !Path::new("/var/run").is_symlink() {
        bind_from(&run, Path::new("/var/run"))?;
    }
    for log in ["ovn", "openvswitch", "ovn-kubernetes"] {
        fs::create_dir_all(Path::new("/var/log").join(log))?;
    }
    fs::write("/proc/sys/kernel/hostname", &layout.name).context("setting the host name")?;
    // What kubelet's preflight asks of every node.
    for family in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        let file = Path::new("/proc/sys/net").join(family);
        // A machine without IPv6 has no such file.
        if file.exists() {
            fs::write(&file, "1").with_context(|| format!("writing {}", file.display()))?;
        }
    }
    Ok(())
}

fn layer(layout: &Layout, tree: &Path) -> Result<()> {
    if !tree.is_dir() {
        return fs::create_dir_all(tree).with_context(|| format!("making {}", tree.display()));
    }
    let name = tree.display().to_string().trim_start_matches('/').replace('/', "-");
    let upper = layout.dir.join("layers").join(&name).join("upper");
    let work = layout.dir.join("layers").join(&name).join("work");
    for dir in [&upper, &work] {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    let options =
        format!("lowerdir={},upperdir={},workdir={}", tree.display(), upper.display(), work.display());
    mount(Some("overlay"), tree, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .with_context(|| format!("mounting a layer over {}", tree.display()))
}

fn bind(layout: &Layout, dir: &Path) -> Result<()> {
    let source = layout.outside(dir);
    fs::create_dir_all(&source).with_context(|| format!("making {}", source.display()))?;
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    bind_from(&source, dir)
}

fn bind_from(source: &PathBuf, dir: &Path) -> Result<()> {
    mount(Some(source), dir, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(|| format!("mounting {} on {}", source.display(), dir.display()))
}
