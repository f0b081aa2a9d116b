//! Making a data directory of a backup.
//!
//! Must stay true: nothing is written where something is; a directory gets its name only when all of it was compared, with
//! the digests of the backup and with the checksums of the objects.

use std::path::{Path, PathBuf};

use super::contents::{Contents, FORMAT};
use super::objects::make_parent;
use super::staging::{Staging, is_locked};
use super::{CONTENTS, Progress, at, compare, pack, snapshot};
use crate::data::{DataDirectory, PAYLOAD_KEY};
use crate::embedded;

/// What was restored.
#[derive(Debug, Clone)]
pub struct Restored {
    /// The data directory.
    pub place: PathBuf,
    /// What the backup held.
    pub contents: Contents,
}

/// Makes the data directory `data`, which is not there or empty, of the backup at `from`.
pub async fn restore(from: &Path, data: &Path, progress: Progress<'_>) -> Result<Restored, String> {
    let place = std::path::absolute(data).map_err(at(data, "made"))?;
    require_empty(&place)?;
    let told = |what: String| format!("{} cannot be restored: {what}", from.display());
    let staging = Staging::of(&place, false)?;
    let contents = copy(from, staging.path(), progress).map_err(told)?;
    let (mut done, total) = (0, contents.bytes());
    contents
        .compare(staging.path(), &mut |bytes| {
            done += bytes;
            progress("comparing", done, total);
        })
        .map_err(told)?;
    // What SQLite and the store make of it: only bytes that were compared are opened.
    snapshot::settle(&staging.path().join(embedded::FILE)).map_err(told)?;
    compare(staging.path(), progress).await.map_err(told)?;
    snapshot::settle(&staging.path().join(embedded::FILE)).map_err(told)?;
    DataDirectory::at(staging.path())?;
    require_empty(&place)?;
    staging.finish(&place)?;
    Ok(Restored { place, contents })
}

fn require_empty(place: &Path) -> Result<(), String> {
    if is_locked(place) {
        return Err(format!("{} is in use by another process; name a new directory", place.display()));
    }
    match std::fs::read_dir(place).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{} is not empty; name a new directory", place.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(at(place, "made")(e)),
    }
}

/// Copies the files of the backup at `from` into the directory `to`.
fn copy(from: &Path, to: &Path, progress: Progress<'_>) -> Result<Contents, String> {
    let is_packed = std::fs::metadata(from).map_err(at(from, "read"))?.is_file();
    let contents = if is_packed {
        progress("unpacking", 0, 1);
        let contents = pack::unpack(from, to)?;
        std::fs::remove_file(to.join(CONTENTS)).map_err(at(to, "written"))?;
        contents
    } else {
        let contents = Contents::read(from)?;
        for (done, file) in contents.files.iter().enumerate() {
            let (from, to) = (from.join(&file.path), to.join(&file.path));
            if from.symlink_metadata().is_ok_and(|found| !found.is_file()) {
                return Err(format!("{} is no plain file", file.path));
            }
            make_parent(&to).map_err(at(&to, "made"))?;
            std::fs::copy(&from, &to).map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => format!("{} is missing", file.path),
                _ => at(&to, "written")(e),
            })?;
            progress("copying", done as u64 + 1, contents.files.len() as u64);
        }
        contents
    };
    debug_assert_eq!(contents.format, FORMAT);
    for_its_owner(&to.join(PAYLOAD_KEY))?;
    Ok(contents)
}

/// Lets only the owner read `path`, where it is there.
fn for_its_owner(path: &Path) -> Result<(), String> {
    #[cfg(unix)]
    if path.exists() {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path, mode).map_err(at(path, "written"))?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}
