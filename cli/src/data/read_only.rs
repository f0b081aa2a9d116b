//! A data directory that cannot be written: a backup on another disk, a snapshot, a read-only mount.
//!
//! SQLite writes beside a database even to read it, and a WAL that a killed server left has to be recovered into the
//! file. So the database and its WAL are copied into a private temporary directory, which is removed with the command, and
//! opened there. The copy takes as much room as the two files; the events are read where they lie.
//!
//! Must stay true: no file of the directory is made, changed or removed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use super::{DataDirectory, EVENTS, LOCK, OpenStore};
use crate::embedded::preflight::{Thoroughness, examine};
use crate::embedded::{self, Embedded, write_mark};

/// Whether the directory at `path` is there and cannot be written. The modes count for the superuser too, whom they do
/// not keep from writing.
pub(super) fn is_read_only(path: &Path) -> bool {
    let Ok(directory) = std::fs::metadata(path) else { return false };
    if directory.permissions().readonly() {
        return true;
    }
    let files = [LOCK, embedded::FILE];
    files.iter().any(|name| {
        let path = path.join(name);
        let has_no_writer = std::fs::metadata(&path).is_ok_and(|file| file.permissions().readonly());
        let refused = OpenOptions::new().write(true).open(&path).err().map(|e| e.kind());
        has_no_writer || matches!(refused, Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem))
    }) || !can_create_files(path)
}

/// Whether files can be made in the directory at `path`, as far as that shows without making one.
fn can_create_files(path: &Path) -> bool {
    // A lock that is there shows it, as it was opened for writing; without one there is a file to be made anyway.
    if path.join(LOCK).exists() {
        return true;
    }
    !matches!(
        tempfile::Builder::new().prefix(".pennon").tempfile_in(path).err().map(|e| e.kind()),
        Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
    )
}

/// A store on a copy of the database in `directory`, or that of the server that has the directory open.
pub(super) async fn open(directory: &Path) -> Result<OpenStore, String> {
    // A server may write to what this process may not. Its lock keeps the files from changing while they are copied.
    let lock = File::open(directory.join(LOCK)).ok();
    match lock.as_ref().map(File::try_lock_shared) {
        Some(Err(TryLockError::WouldBlock)) => {
            let directory =
                DataDirectory { path: directory.to_owned(), is_read_only: true, is_to_read: true };
            let info = directory.server().ok_or_else(|| directory.no_announcement())?;
            embedded::reach(&info.dynamodb, &info.access_key_id)
                .await
                .map_err(|why| directory.unreachable(&info, &why))?;
            return Ok(OpenStore::of_server(info));
        }
        Some(Err(TryLockError::Error(e))) if e.kind() != ErrorKind::Unsupported => {
            return Err(format!("{} cannot be locked: {e}", directory.join(LOCK).display()));
        }
        _ => {}
    }
    let copy = tempfile::Builder::new().prefix("pennon-").tempdir();
    let copy =
        copy.map_err(|e| format!("no temporary directory can be made for a copy of the database: {e}"))?;
    let log = format!("{}-wal", embedded::FILE);
    for name in [embedded::FILE, &log, write_mark::MARK] {
        let (from, to) = (directory.join(name), copy.path().join(name));
        match File::open(&from).and_then(|mut from| std::io::copy(&mut from, &mut File::create(&to)?)) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => {
                return Err(format!(
                    "{} cannot be copied to {}: {e}; the environment variable TMPDIR names another place for the copy",
                    from.display(),
                    to.display()
                ));
            }
        }
    }
    drop(lock);
    examine(copy.path(), &directory.join(EVENTS), Thoroughness::Quick)?;
    let embedded = Embedded::open(copy.path()).await.map_err(|e| e.to_string())?;
    let store = embedded.store(None);
    Ok(OpenStore { store, server: None, is_copy: true, own: None, _lock: None, _copy: Some(copy) })
}
