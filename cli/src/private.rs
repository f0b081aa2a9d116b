//! What the product writes is for the user who runs it alone: directories 0700, files 0600.
//!
//! Must stay true: the mask is set before the first file is made, so that it holds for every file that this process writes,
//! those of SQLite and of the object store included. What an earlier release left readable for others is restricted by
//! the next process that takes the directory's lock.

use std::path::Path;

/// Lets nobody but this user into files and directories that this process makes from now on.
pub fn set_umask() {
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// Restricts the data directory `root` and all in it to their owner. What cannot be restricted (a file system without modes,
/// another owner) is logged and changes nothing else.
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

    type Failed = (PathBuf, std::io::Error);

    /// Restricts what lies in `directory`. A directory gets its mode after its entries have theirs, so one that has it already
    /// was done before, and is not walked again at each start.
    pub fn restrict_entries(directory: &Path) -> Result<(), Failed> {
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

    /// Sets the mode of what is at `path`, if that is another one, and if it is still there.
    pub fn set_mode(path: &Path, wanted: u32) -> Result<(), Failed> {
        if mode(path)?.is_none_or(|mode| mode == wanted) {
            return Ok(());
        }
        std::fs::set_permissions(path, Permissions::from_mode(wanted))
            .or_else(|e| absent(path, e).map(|_| ()))
    }

    fn mode(path: &Path) -> Result<Option<u32>, Failed> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(metadata.permissions().mode() & 0o777)),
            Err(e) => absent(path, e),
        }
    }

    /// A file that is gone needs no mode.
    fn absent(path: &Path, error: std::io::Error) -> Result<Option<u32>, Failed> {
        if error.kind() == std::io::ErrorKind::NotFound { Ok(None) } else { Err((path.to_owned(), error)) }
    }
}
