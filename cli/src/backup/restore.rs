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
        let contents = Contents::read(from)?;
        for (done, file) in contents.files.iter().enumerate() {
            let (from, to) = (from.join(&file.path), to.join(&file.path));
            if from.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
                return Err(format!("{} is not a regular file", file.path));
            }
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
