//! Network namespaces: opening, making and entering them, always on a thread of our own.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    thread,
    time::Duration,
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
    sys::statfs::{FsType, fstatfs},
};

use crate::{Error, Handle, Result};

const NSFS_MAGIC: libc::c_long = 0x6e73_6673;
const THREAD_NETNS: &str = "/proc/thread-self/ns/net";

/// An open network namespace. The namespace lives at least as long as this value.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
}

// === impl NetNs ===

impl NetNs {
    /// Opens the namespace bound at `path` (`CNI_NETNS`, `/var/run/netns/…`, `/proc/PID/ns/net`).
    /// [`Error::NotNetns`] if the path is something else, e.g. the empty file a reboot leaves.
    pub fn open(path: impl AsRef<Path>) -> Result<NetNs> {
        let path = path.as_ref();
        let file = File::open(path)
            .map_err(|e| Error::io(format_args!("open network namespace {}", path.display()), e))?;
        let fs = fstatfs(&file).map_err(|e| Error::kernel(format_args!("statfs {}", path.display()), e))?;
        if fs.filesystem_type() != FsType(NSFS_MAGIC) {
            return Err(Error::NotNetns(path.display().to_string()));
        }
        Ok(NetNs { fd: file.into() })
    }

    /// The calling thread's namespace.
    pub fn current() -> Result<NetNs> {
        NetNs::open(THREAD_NETNS)
    }

    /// A fresh namespace without a name; it goes away with the last descriptor and socket in it.
    pub fn unnamed() -> Result<NetNs> {
        on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| Error::kernel("create network namespace", e))?;
            NetNs::current()
        })?
    }

    /// A fresh namespace bound at `path`, which must not exist; undo with [`NetNs::unbind`].
    pub fn bound(path: impl AsRef<Path>) -> Result<NetNs> {
        let path = path.as_ref();
        File::create_new(path).map_err(|e| Error::io(format_args!("create {}", path.display()), e))?;
        let made = on_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| Error::kernel("create network namespace", e))?;
            mount(Some(THREAD_NETNS), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .map_err(|e| Error::kernel(format_args!("bind namespace to {}", path.display()), e))?;
            NetNs::current()
        })
        .and_then(|r| r);
        if made.is_err() {
            let _ = fs::remove_file(path);
        }
        made
    }

    /// Unmounts and removes what [`NetNs::bound`] made. Already gone is success.
    pub fn unbind(path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let _ = umount2(path, MntFlags::MNT_DETACH);
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format_args!("remove {}", path.display()), e))
            }
            _ => Ok(()),
        }
    }

    /// Runs `f` inside the namespace on a thread made for it, and returns its result.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        on_thread(|| {
            setns(&self.fd, CloneFlags::CLONE_NEWNET)
                .map_err(|e| Error::kernel("enter network namespace", e))?;
            Ok(f())
        })?
    }

    /// A netlink socket of this namespace.
    pub fn handle(&self) -> Result<Handle> {
        self.run(Handle::open)?
    }

    /// When the namespace was bound to a path or first opened, since the epoch. Stays the same while a runtime
    /// keeps it bound, so of two sandboxes of one pod it tells which is the newer.
    pub fn since(&self) -> Result<Duration> {
        let meta = self.metadata()?;
        let seconds = u64::try_from(meta.ctime()).unwrap_or(0);
        Ok(Duration::new(seconds, u32::try_from(meta.ctime_nsec()).unwrap_or(0)))
    }

    /// Identity of the namespace (its inode): equal values are the same namespace.
    pub fn inode(&self) -> Result<u64> {
        Ok(self.metadata()?.ino())
    }

    fn metadata(&self) -> Result<fs::Metadata> {
        let fd = self.fd.try_clone().map_err(|e| Error::io("duplicate namespace descriptor", e))?;
        File::from(fd).metadata().map_err(|e| Error::io("stat namespace", e))
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Runs `f` on a fresh OS thread: its namespace changes die with it.
fn on_thread<T: Send>(f: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        thread::Builder::new()
            .name("netns".into())
            .stack_size(256 * 1024)
            .spawn_scoped(scope, f)
            .map_err(|e| Error::io("start namespace thread", e))?
            .join()
            .map_err(|_| Error::Protocol("the namespace thread panicked"))
    })
}
