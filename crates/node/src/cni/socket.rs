//! The server's socket: only root may reach it.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use tokio::net::UnixListener;

/// Makes the directory (0700, root) and listens on the socket (0600) in it.
pub(crate) fn listen(dir: &Path) -> io::Result<(UnixListener, PathBuf)> {
    secure(dir)?;
    let path = dir.join(::cni::SOCKET_NAME);
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok((listener, path))
}

/// Takes a directory that is as it must be; anything else in its place is removed and made anew.
fn secure(dir: &Path) -> io::Result<()> {
    match fs::symlink_metadata(dir) {
        Ok(meta) if meta.is_dir() && meta.uid() == 0 && meta.mode() & 0o777 == 0o700 => return Ok(()),
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(dir)?,
        Ok(_) => fs::remove_file(dir)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // The process's umask may have taken bits away or a parent default added some.
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    let meta = fs::symlink_metadata(dir)?;
    if meta.uid() == 0 && meta.mode() & 0o777 == 0o700 {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{} must be owned by root with mode 0700, but has owner {} and mode {:o}",
        dir.display(),
        meta.uid(),
        meta.mode() & 0o777
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_others_may_enter_is_made_anew() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("cni");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.join("planted"), "").unwrap();
        let (_listener, path) = listen(&dir).unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(!dir.join("planted").exists());
        // The next start takes over the socket's name.
        listen(&dir).unwrap();
    }
}
