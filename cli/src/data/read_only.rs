//! A data directory that cannot be written: a backup on another disk, a snapshot, a read-only mount.
//!
//! SQLite writes into the directory of a database even to read it, and the WAL of a killed server has to be recovered into
//! the file. So the database and its WAL are copied into a private temporary directory, which is removed with the
//! command, and opened there. The copy needs as much disk space as the two files. The events are read in place.
//!
//! Must stay true: no file of the directory is created, changed or removed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use super::{DataDirectory, EVENTS, LOCK, OpenStore};
use crate::embedded::preflight::{Thoroughness, check_database};
use crate::embedded::{self, Embedded, write_mark};

/// Whether the directory at `path` exists and cannot be written. File modes count for the superuser too, although they do not
/// prevent root from writing.
pub(super) fn is_read_only(path: &Path) -> bool {
    let Ok(directory) = std::fs::metadata(path) else { return false };
    if directory.permissions().readonly() {
        return true;
    }
    let files = [LOCK, embedded::FILE];
    files.iter().any(|name| {
        let path = path.join(name);
        let has_no_writer = std::fs::metadata(&path).is_ok_and(|file| file.permissions().readonly());
        let error = OpenOptions::new().write(true).open(&path).err().map(|e| e.kind());
        has_no_writer || matches!(error, Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem))
    }) || !can_create_files(path)
}

/// Whether files can be created in the directory at `path`. Creates a temporary file only if there is no lock file.
fn can_create_files(path: &Path) -> bool {
    // The caller has opened an existing lock file for writing. Without one, the command would create it anyway.
    if path.join(LOCK).exists() {
        return true;
    }
    !matches!(
        tempfile::Builder::new().prefix(".pennon").tempfile_in(path).err().map(|e| e.kind()),
        Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
    )
}

/// Opens a copy of the database in `directory`, or the tables of the server that has the directory open.
pub(super) async fn open(directory: &Path) -> Result<OpenStore, String> {
    // A server may be able to write here although this process is not. The shared lock keeps one from starting, and so from
    // changing the files while they are copied.
    let lock = File::open(directory.join(LOCK)).ok();
    match lock.as_ref().map(File::try_lock_shared) {
        Some(Err(TryLockError::WouldBlock)) => {
            let directory =
                DataDirectory { path: directory.to_owned(), is_read_only: true, is_for_reading: true };
            let info = directory.server().ok_or_else(|| directory.no_announcement_message())?;
            embedded::check_endpoint(&info.dynamodb, &info.access_key_id)
                .await
                .map_err(|reason| directory.unreachable_message(&info, &reason))?;
            return Ok(OpenStore::through_server(info));
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
    check_database(copy.path(), &directory.join(EVENTS), Thoroughness::Quick)?;
    let embedded = Embedded::open(copy.path()).await.map_err(|e| e.to_string())?;
    let store = embedded.store(None);
    Ok(OpenStore { store, server: None, is_copy: true, embedded: None, _lock: None, _copy: Some(copy) })
}
