//! Detects that a file of the database was removed or replaced while this process has it open.
//!
//! A file that is removed while it is open stays writable, and its content is lost when the process ends. So every write
//! compares the files at the paths with the opened ones (device and inode; three `stat` calls of about a microsecond each),
//! before its commit and again before it is acknowledged.
//!
//! Must stay true: no write is acknowledged after a file was removed or replaced. The error is logged once and is permanent
//! until the process ends, because later writes are in no file that a restart would open.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The database's file, its `-wal` and `-shm` files, and the identity that each had when it was first seen.
#[derive(Debug, Clone, Default)]
pub struct OpenFiles(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    files: Vec<(PathBuf, Option<Identity>)>,
    lost: Option<String>,
}

/// Identifies a file independently of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl OpenFiles {
    /// The files of the database at `path`, which is open.
    pub fn new(path: &Path) -> OpenFiles {
        let with_suffix = |suffix: &str| {
            let mut name = OsString::from(path);
            name.push(suffix);
            PathBuf::from(name)
        };
        let files = [path.to_owned(), with_suffix("-wal"), with_suffix("-shm")].map(|path| {
            // The identity of a file that does not exist yet is set when it is first seen.
            let identity = identity(&path).ok().flatten();
            (path, identity)
        });
        OpenFiles(Arc::new(Mutex::new(Inner { files: files.into(), lost: None })))
    }

    /// An error if a file was removed or replaced, with what to do.
    pub fn check(&self) -> Result<(), String> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lost) = &inner.lost {
            return Err(lost.clone());
        }
        let mut lost = None;
        for (path, known) in &mut inner.files {
            let now = identity(path).map_err(|e| format!("{} cannot be examined: {e}", path.display()))?;
            match (*known, now) {
                (None, now) => *known = now,
                (known, now) if known == now => {}
                (_, now) => {
                    let what = if now.is_none() { "removed" } else { "replaced" };
                    lost = Some(format!(
                        "{} was {what} while the server had it open. Nothing is written any more, and changes that are \
                         still only in the removed file are lost with this process. Stop the server, and restore the data \
                         directory from a backup with `pennon restore`.",
                        path.display()
                    ));
                    break;
                }
            }
        }
        let Some(text) = lost else { return Ok(()) };
        tracing::error!("{text}");
        inner.lost = Some(text.clone());
        Err(text)
    }

    /// Checks the files, runs `write`, and checks them again. An error of the second check wins over the result of `write`.
    pub fn run_checked<T>(&self, write: impl FnOnce() -> T) -> Result<T, String> {
        self.check()?;
        let result = write();
        self.check()?;
        Ok(result)
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> io::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt;
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(Identity { device: found.dev(), inode: found.ino() })),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Other systems do not let an open file be removed.
#[cfg(not(unix))]
fn identity(_path: &Path) -> io::Result<Option<Identity>> {
    Ok(None)
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_removed_or_replaced_file_is_a_permanent_error() {
        for suffix in ["", "-wal", "-shm"] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("db");
            std::fs::write(&path, "a").unwrap();
            let files = OpenFiles::new(&path);
            assert_eq!(files.check(), Ok(()));
            // SQLite creates these at the first write.
            for sidecar in ["db-wal", "db-shm"] {
                std::fs::write(directory.path().join(sidecar), "a").unwrap();
            }
            assert_eq!(files.run_checked(|| 7), Ok(7));
            let gone = directory.path().join(format!("db{suffix}"));
            let copy = directory.path().join("copy");
            std::fs::rename(&gone, &copy).unwrap();
            assert!(files.check().unwrap_err().contains("was removed"));
            std::fs::rename(&copy, &gone).unwrap();
            assert!(files.check().is_err(), "it was gone for a while");
            assert!(files.run_checked(|| panic!("nothing is written")).is_err());

            let files = OpenFiles::new(&path);
            std::fs::write(&copy, "b").unwrap();
            std::fs::rename(&copy, &gone).unwrap();
            assert!(files.check().unwrap_err().contains("was replaced"));
        }
    }

    #[test]
    fn a_write_during_which_the_file_is_removed_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        std::fs::write(&path, "a").unwrap();
        let files = OpenFiles::new(&path);
        assert!(files.run_checked(|| std::fs::remove_file(&path).unwrap()).is_err());
    }
}
