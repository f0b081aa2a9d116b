//! Whether the database's files are still the ones that this process has open.
//!
//! A file that is removed while it is open stays writable, and what is written to it is lost with the process. So every
//! write compares the files at the paths with those that were opened (device and inode, three `stat` calls of about a
//! microsecond each), before its commit and again before it is acknowledged.
//!
//! Must stay true: no write is acknowledged after a file was removed or replaced; that is logged once, and lasts until the
//! process ends, because what was written since is in no file that a next start would find.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The database's file and what SQLite keeps beside it, and which files they were when they were first seen.
#[derive(Debug, Clone, Default)]
pub struct OpenFiles(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    files: Vec<(PathBuf, Option<Identity>)>,
    lost: Option<String>,
}

/// Which file it is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl OpenFiles {
    /// The files of the database at `path`, which is open.
    pub fn of(path: &Path) -> OpenFiles {
        let beside = |suffix: &str| {
            let mut name = OsString::from(path);
            name.push(suffix);
            PathBuf::from(name)
        };
        let files = [path.to_owned(), beside("-wal"), beside("-shm")].map(|path| {
            // A file that is not there yet is taken from when it is first seen.
            let identity = identity(&path).ok().flatten();
            (path, identity)
        });
        OpenFiles(Arc::new(Mutex::new(Inner { files: files.into(), lost: None })))
    }

    /// What is wrong, if a file was removed or replaced, and what to do.
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

    /// Makes a write, unless a file is lost; an error if one was lost meanwhile, whatever became of the write.
    pub fn guarding<T>(&self, write: impl FnOnce() -> T) -> Result<T, String> {
        self.check()?;
        let written = write();
        self.check()?;
        Ok(written)
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
    fn a_file_that_was_removed_or_replaced_is_noticed_and_stays_lost() {
        for suffix in ["", "-wal", "-shm"] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("db");
            std::fs::write(&path, "a").unwrap();
            let files = OpenFiles::of(&path);
            assert_eq!(files.check(), Ok(()));
            // SQLite makes these at the first write.
            for beside in ["db-wal", "db-shm"] {
                std::fs::write(directory.path().join(beside), "a").unwrap();
            }
            assert_eq!(files.guarding(|| 7), Ok(7));
            let gone = directory.path().join(format!("db{suffix}"));
            let copy = directory.path().join("copy");
            std::fs::rename(&gone, &copy).unwrap();
            assert!(files.check().unwrap_err().contains("was removed"));
            std::fs::rename(&copy, &gone).unwrap();
            assert!(files.check().is_err(), "it was gone for a while");
            assert!(files.guarding(|| panic!("nothing is written")).is_err());

            let files = OpenFiles::of(&path);
            std::fs::write(&copy, "b").unwrap();
            std::fs::rename(&copy, &gone).unwrap();
            assert!(files.check().unwrap_err().contains("was replaced"));
        }
    }

    #[test]
    fn a_write_during_which_the_file_goes_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        std::fs::write(&path, "a").unwrap();
        let files = OpenFiles::of(&path);
        assert!(files.guarding(|| std::fs::remove_file(&path).unwrap()).is_err());
    }
}
