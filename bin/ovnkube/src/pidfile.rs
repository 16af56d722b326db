//! The file with our process id.

use anyhow::Context;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Removes the file when dropped, if it is still ours.
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file in one step, so that a reader never sees half of it. A live other instance only gives a warning: the
    /// start scripts rely on the file being replaced.
    pub(crate) fn write(path: &Path) -> anyhow::Result<Self> {
        let pid = std::process::id();
        if let Some(other) = read(path).filter(|other| *other != pid)
            && fs::read_to_string(format!("/proc/{other}/comm")).is_ok_and(|comm| comm.starts_with("ovnkube"))
        {
            tracing::warn!(other, file = %path.display(), "another ovnkube runs with this pid file");
        }
        let write = || -> io::Result<()> {
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir)?;
            }
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{pid}"));
            fs::write(&name, format!("{pid}\n"))?;
            fs::rename(&name, path).inspect_err(|_| drop(fs::remove_file(&name)))
        };
        write()
            .with_context(|| format!("cannot write the pid file {}; correct --pidfile", path.display()))?;
        Ok(Self(path.to_owned()))
    }
}

fn read(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // A successor may have replaced it already.
        if read(&self.0) == Some(std::process::id()) {
            let _ = fs::remove_file(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/ovnkube.pid");
        let file = PidFile::write(&path).unwrap();
        assert_eq!(read(&path), Some(std::process::id()));
        drop(file);
        assert!(!path.exists());

        let file = PidFile::write(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        drop(file);
        assert_eq!(read(&path), Some(1));
        // Junk and stale files are replaced.
        fs::write(&path, "junk").unwrap();
        let _file = PidFile::write(&path).unwrap();
        assert_eq!(read(&path), Some(std::process::id()));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(PidFile::write(Path::new("/proc/none/x")).is_err());
    }
}
