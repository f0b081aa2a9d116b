//! Creates a data directory from a backup.
//!
//! Must stay true: nothing is overwritten; the directory gets its final name only after all digests of the backup and all
//! checksums of the objects were verified.

use std::path::{Path, PathBuf};

use super::contents::{Contents, FORMAT};
use super::objects::create_parent;
use super::staging::{Staging, is_locked};
use super::{CONTENTS, ProgressCallback, pack, path_error, snapshot, verify_objects};
use crate::data::{DataDirectory, PAYLOAD_KEY};
use crate::embedded;

/// A restored data directory.
#[derive(Debug, Clone)]
pub struct RestoredBackup {
    /// The data directory.
    pub place: PathBuf,
    /// The contents of the backup.
    pub contents: Contents,
}

/// Creates the data directory `data`, which must be empty or not exist, from the backup at `from`.
pub async fn restore(
    from: &Path,
    data: &Path,
    progress: ProgressCallback<'_>,
) -> Result<RestoredBackup, String> {
    let place = std::path::absolute(data).map_err(path_error(data, "made"))?;
    require_empty(&place)?;
    let restore_error = |problem: String| format!("{} cannot be restored: {problem}", from.display());
    let staging = Staging::new(&place, false)?;
    let contents = copy_backup(from, staging.path(), progress).map_err(restore_error)?;
    let (mut done, total) = (0, contents.bytes());
    contents
        .verify_files(staging.path(), &mut |bytes| {
            done += bytes;
            progress("comparing", done, total);
        })
        .map_err(restore_error)?;
    // SQLite and the event store open only verified bytes.
    snapshot::finalize(&staging.path().join(embedded::FILE)).map_err(restore_error)?;
    verify_objects(staging.path(), progress).await.map_err(restore_error)?;
    snapshot::finalize(&staging.path().join(embedded::FILE)).map_err(restore_error)?;
    DataDirectory::at(staging.path())?;
    require_empty(&place)?;
    staging.finish(&place)?;
    Ok(RestoredBackup { place, contents })
}

fn require_empty(place: &Path) -> Result<(), String> {
    if is_locked(place) {
        return Err(format!("{} is in use by another process; name a new directory", place.display()));
    }
    match std::fs::read_dir(place).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{} is not empty; name a new directory", place.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(path_error(place, "made")(e)),
    }
}

/// Copies the files of the backup at `from` into the directory `to`.
fn copy_backup(from: &Path, to: &Path, progress: ProgressCallback<'_>) -> Result<Contents, String> {
    let is_archive = std::fs::metadata(from).map_err(path_error(from, "read"))?.is_file();
    let contents = if is_archive {
        progress("unpacking", 0, 1);
        let contents = pack::unpack(from, to)?;
        std::fs::remove_file(to.join(CONTENTS)).map_err(path_error(to, "written"))?;
        contents
    } else {
        require_regular_file(from, CONTENTS)?;
        let contents = Contents::read(from)?;
        for (done, file) in contents.files.iter().enumerate() {
            require_regular_file(from, &file.path)?;
            let (from, to) = (from.join(&file.path), to.join(&file.path));
            create_parent(&to).map_err(path_error(&to, "made"))?;
            std::fs::copy(&from, &to).map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => format!("{} is missing", file.path),
                _ => path_error(&to, "written")(e),
            })?;
            progress("copying", done as u64 + 1, contents.files.len() as u64);
        }
        contents
    };
    debug_assert_eq!(contents.format, FORMAT);
    restrict_to_owner(&to.join(PAYLOAD_KEY))?;
    Ok(contents)
}

/// An error if something other than a regular file is at `path` in `directory`, or if a symbolic link leads there: the backup would be
/// read from elsewhere. A missing file is found by those who open it.
fn require_regular_file(directory: &Path, path: &str) -> Result<(), String> {
    let mut at = directory.to_owned();
    for part in Path::new(path).components() {
        at.push(part);
        if at.symlink_metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
            return Err(format!("{path} is not a regular file"));
        }
    }
    match at.is_dir() {
        true => Err(format!("{path} is not a regular file")),
        false => Ok(()),
    }
}

/// Restricts `path` to its owner, if it exists.
fn restrict_to_owner(path: &Path) -> Result<(), String> {
    #[cfg(unix)]
    if path.exists() {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path, mode).map_err(path_error(path, "written"))?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::backup::{BackupFile, hash_file};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    const TABLES: &str = "dynamodb.sqlite";
    const OBJECT: &str = "events/project=1/events/a.parquet";

    /// A backup of two files in a new directory `name`.
    fn backup(directory: &Path, name: &str) -> PathBuf {
        let at = directory.join(name);
        let files = [TABLES, OBJECT].map(|file| {
            create_parent(&at.join(file)).unwrap();
            std::fs::write(at.join(file), file).unwrap();
            let (sha256, bytes) = hash_file(&at.join(file)).unwrap();
            BackupFile { path: file.to_owned(), bytes, sha256 }
        });
        Contents::new(chrono::DateTime::UNIX_EPOCH, files.to_vec()).write(&at).unwrap();
        at
    }

    /// A symbolic link in place of `path`, to the same content elsewhere: digests would match.
    fn replace_by_link(at: &Path, path: &str, elsewhere: &Path) {
        std::fs::rename(at.join(path), elsewhere).unwrap();
        symlink(elsewhere, at.join(path)).unwrap();
    }

    #[test]
    fn links_and_special_files_in_a_backup_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let copy = |name: &str| {
            let to = root.join(format!("{name} copy"));
            std::fs::create_dir(&to).unwrap();
            copy_backup(&root.join(name), &to, &mut |_, _, _| {})
        };
        backup(root, "whole");
        assert_eq!(copy("whole").unwrap().files.len(), 2);
        for (name, path) in [
            ("table", TABLES),
            ("object", OBJECT),
            ("folder", "events/project=1"),
            ("root", "events"),
            ("list", CONTENTS),
        ] {
            replace_by_link(&backup(root, name), path, &root.join(format!("{name} elsewhere")));
            let error = copy(name).unwrap_err();
            assert!(error.contains("is not a regular file"), "{name}: {error}");
        }
        let at = backup(root, "socket");
        std::fs::remove_file(at.join(TABLES)).unwrap();
        let _socket = UnixListener::bind(at.join(TABLES)).unwrap();
        assert!(copy("socket").unwrap_err().contains("is not a regular file"));
        let at = backup(root, "directory");
        std::fs::remove_file(at.join(OBJECT)).unwrap();
        std::fs::create_dir(at.join(OBJECT)).unwrap();
        assert!(copy("directory").unwrap_err().contains("is not a regular file"));
    }
}
