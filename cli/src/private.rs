//! Permissions of data files: only the user who runs the product has access (directories 0700, files 0600).
//!
//! Must stay true: the umask is set before the first file is created, so that it applies to every file of this process,
//! those of SQLite and of the object store included. Files that an earlier release left readable for others are restricted by
//! the next process that acquires the directory's lock.

use std::path::Path;

/// Restricts new files and directories of this process to its user.
pub fn set_umask() {
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// Restricts the data directory `root`, recursively, to its owner. An error (a file system without modes, another owner) is
/// only logged.
pub fn restrict(root: &Path) {
    #[cfg(unix)]
    if let Err((path, error)) = unix::restrict_entries(root).and_then(|()| unix::set_mode(root, 0o700)) {
        tracing::warn!(
            path = %path.display(), %error,
            "other users of this machine may read the data directory: it cannot be restricted; run chmod -R go= on it"
        );
    }
    #[cfg(not(unix))]
    let _ = root;
}

#[cfg(unix)]
mod unix {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    type ModeError = (PathBuf, std::io::Error);

    /// Restricts the entries of `directory`, recursively. A directory gets its mode after its entries, so one with the right
    /// mode is complete, and is not walked again at each start.
    pub fn restrict_entries(directory: &Path) -> Result<(), ModeError> {
        let failed = |e| (directory.to_owned(), e);
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(failed)?);
            if kind.is_dir() {
                if mode(&path)? != Some(0o700) {
                    restrict_entries(&path)?;
                    set_mode(&path, 0o700)?;
                }
            } else if kind.is_file() {
                set_mode(&path, 0o600)?;
            }
        }
        Ok(())
    }

    /// Sets the mode of `path`, unless it has that mode or no longer exists.
    pub fn set_mode(path: &Path, required: u32) -> Result<(), ModeError> {
        if mode(path)?.is_none_or(|mode| mode == required) {
            return Ok(());
        }
        std::fs::set_permissions(path, Permissions::from_mode(required))
            .or_else(|e| ignore_not_found(path, e).map(|_| ()))
    }

    fn mode(path: &Path) -> Result<Option<u32>, ModeError> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(metadata.permissions().mode() & 0o777)),
            Err(e) => ignore_not_found(path, e),
        }
    }

    /// Ignores the error of a file that no longer exists.
    fn ignore_not_found(path: &Path, error: std::io::Error) -> Result<Option<u32>, ModeError> {
        if error.kind() == std::io::ErrorKind::NotFound { Ok(None) } else { Err((path.to_owned(), error)) }
    }
}
