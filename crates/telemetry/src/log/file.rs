//! A log file that is rotated by size; old ones go by number and age.
//!
//! `ovnkube.log` becomes `ovnkube-2026-11-29T20-27-01.123.log`, as the reference names them, so that its leftovers are
//! counted too.

use crate::clock::Civil;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// When to rotate and what to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Largest size of the file in bytes.
    pub max_bytes: u64,
    /// Rotated files to keep; 0 keeps all.
    pub max_backups: usize,
    /// Age at which a rotated file goes; zero keeps it.
    pub max_age: Duration,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { max_bytes: 100 << 20, max_backups: 5, max_age: Duration::from_secs(5 * 86_400) }
    }
}

pub(crate) struct RotatedFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
    /// When the path was last compared with the open file.
    checked: SystemTime,
}

impl RotatedFile {
    pub(crate) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            fs::create_dir_all(dir)?;
        }
        let file = append(path)?;
        let size = file.metadata()?.len();
        let log = Self { path: path.to_owned(), rotation, file, size, checked: SystemTime::UNIX_EPOCH };
        log.prune(SystemTime::now());
        Ok(log)
    }

    pub(crate) fn write(&mut self, line: &[u8], now: SystemTime) -> io::Result<()> {
        self.follow(now)?;
        if self.size > 0 && self.size + line.len() as u64 > self.rotation.max_bytes {
            // Where renaming fails the file grows; losing lines would be worse.
            let _ = self.rotate(now);
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    /// Somebody may have moved or removed the file (logrotate, an operator): once a second, look and open it anew.
    fn follow(&mut self, now: SystemTime) -> io::Result<()> {
        if now.duration_since(self.checked).is_ok_and(|d| d < Duration::from_secs(1)) {
            return Ok(());
        }
        self.checked = now;
        let ours = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => self.size = there.len(),
            Ok(_) | Err(_) => {
                self.file = append(&self.path)?;
                self.size = self.file.metadata()?.len();
            }
        }
        Ok(())
    }

    fn rotate(&mut self, now: SystemTime) -> io::Result<()> {
        fs::rename(&self.path, self.backup_path(now))?;
        self.file = append(&self.path)?;
        self.size = self.file.metadata()?.len();
        self.prune(now);
        Ok(())
    }

    fn parts(&self) -> (String, String) {
        let part = |p: Option<&std::ffi::OsStr>| p.map(|s| s.to_string_lossy().into_owned());
        let stem = part(self.path.file_stem()).unwrap_or_default();
        let extension = part(self.path.extension()).map_or(String::new(), |e| format!(".{e}"));
        (stem, extension)
    }

    fn backup_path(&self, now: SystemTime) -> PathBuf {
        let (stem, extension) = self.parts();
        let c = Civil::from(now);
        let stamp = format!(
            "{:04}-{:02}-{:02}T{:02}-{:02}-{:02}.{:03}",
            c.year,
            c.month,
            c.day,
            c.hour,
            c.minute,
            c.second,
            c.micros / 1000
        );
        let mut path = self.path.with_file_name(format!("{stem}-{stamp}{extension}"));
        // Several rotations within a millisecond must not overwrite each other.
        for n in 1.. {
            if !path.exists() {
                break;
            }
            path = self.path.with_file_name(format!("{stem}-{stamp}-{n:03}{extension}"));
        }
        path
    }

    /// Rotated files, newest first.
    fn backups(&self) -> Vec<PathBuf> {
        let (stem, extension) = self.parts();
        let dir = self.path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let is_backup = |name: &str| {
            let middle = name.strip_prefix(&format!("{stem}-"));
            // The reference compresses its own.
            let middle =
                middle.and_then(|n| n.strip_suffix(".gz").unwrap_or(n).strip_suffix(extension.as_str()));
            middle.is_some_and(|m| m.len() >= 19 && m.as_bytes()[4] == b'-' && m.as_bytes()[10] == b'T')
        };
        let mut found: Vec<PathBuf> = fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|e| e.file_name().to_str().is_some_and(is_backup))
            .map(|e| e.path())
            .collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found
    }

    fn prune(&self, now: SystemTime) {
        for (i, path) in self.backups().into_iter().enumerate() {
            let too_many = self.rotation.max_backups > 0 && i >= self.rotation.max_backups;
            let age =
                fs::metadata(&path).and_then(|m| m.modified()).ok().and_then(|m| now.duration_since(m).ok());
            let too_old = !self.rotation.max_age.is_zero() && age.is_some_and(|a| a > self.rotation.max_age);
            if too_many || too_old {
                // What cannot be removed now is tried at the next rotation.
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().create(true).append(true).mode(0o644).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn rotates_and_prunes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/ovnkube.log");
        let rotation = Rotation { max_bytes: 20, max_backups: 2, max_age: Duration::ZERO };
        let mut log = RotatedFile::open(&path, rotation).unwrap();
        let foreign = path.with_file_name("ovnkube-cluster-manager.log");
        fs::write(&foreign, "other").unwrap();
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_798_761_599);
        for i in 0..8 {
            log.write(format!("line number {i}\n").as_bytes(), start + Duration::from_millis(i)).unwrap();
        }
        assert_eq!(
            names(path.parent().unwrap()),
            [
                "ovnkube-2026-12-31T23-59-59.006.log",
                "ovnkube-2026-12-31T23-59-59.007.log",
                "ovnkube-cluster-manager.log",
                "ovnkube.log"
            ]
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "line number 7\n");
        // It goes on where it stopped, and a line larger than the limit is written whole.
        let mut log = RotatedFile::open(&path, rotation).unwrap();
        log.write(&[b'x'; 50], start + Duration::from_secs(9)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 50);
        // Old ones go by age.
        let rotation = Rotation { max_age: Duration::from_secs(1), ..rotation };
        let log = RotatedFile::open(&path, rotation).unwrap();
        log.prune(SystemTime::now() + Duration::from_secs(60));
        assert_eq!(names(path.parent().unwrap()), ["ovnkube-cluster-manager.log", "ovnkube.log"]);
    }

    #[test]
    fn rotations_in_one_instant_keep_every_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        let rotation = Rotation { max_bytes: 1, max_backups: 0, max_age: Duration::ZERO };
        let mut log = RotatedFile::open(&path, rotation).unwrap();
        (0..5).for_each(|i| log.write(format!("{i}").as_bytes(), SystemTime::UNIX_EPOCH).unwrap());
        let mut all: Vec<String> =
            names(dir.path()).iter().map(|n| fs::read_to_string(dir.path().join(n)).unwrap()).collect();
        all.sort();
        assert_eq!(all.concat(), "01234");
    }

    #[test]
    fn follows_a_file_that_was_moved_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l.log");
        let mut log = RotatedFile::open(&path, Rotation::default()).unwrap();
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        log.write(b"a", at(10)).unwrap();
        fs::rename(&path, dir.path().join("moved")).unwrap();
        log.write(b"b", at(12)).unwrap();
        fs::remove_file(&path).unwrap();
        log.write(b"c", at(14)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "c");
        assert_eq!(fs::read_to_string(dir.path().join("moved")).unwrap(), "a");
    }
}
