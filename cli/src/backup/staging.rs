//! Staging directories: a directory is built under a temporary name next to its destination, and renamed when it is complete.
//!
//! Must stay true: the rename happens once, after everything was synced to the disk; the leftovers of a killed process,
//! wherever it was killed, are removed by the next process with the same destination; a staging directory in use is not.
//!
//! The process that holds the lock in a directory owns it. A process that finds a directory acquires the lock before it removes
//! it, and creates a missing lock file: the owner was killed before it created one, or is about to. In the second case the
//! directory is removed while its owner starts to use it. The owner notices, because it cannot acquire the lock or the locked
//! file is gone, and starts again with another name. The lock file stays until the directory has its final name.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::path_error;
use crate::data::LOCK;

/// The suffix of the name of a staging directory, before a random id.
const UNFINISHED: &str = ".unfinished-";
/// The lock file of a staging directory. Not the name of a data directory's lock: this file is deleted from a directory that a
/// server may already use.
pub(super) const STAGING_LOCK: &str = "unfinished.lock";
/// How often a directory is created again because another process removed it before it was locked.
const ATTEMPTS_MAX: usize = 10;
/// The name, in the data directory, of the staging directory of hard links. It is never renamed.
pub(super) const LINKS: &str = "backup";

/// A staging directory. It is removed when this is dropped without [`Staging::finish`].
#[derive(Debug)]
pub(super) struct Staging {
    path: PathBuf,
    /// Whether it has its final name.
    is_finished: bool,
    /// Keeps other processes from removing it.
    _lock: File,
}

impl Staging {
    /// A new staging directory for the destination `place`; only its owner can read a `private` one.
    pub(super) fn new(place: &Path, private: bool) -> Result<Staging, String> {
        let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
        let (Some(parent), Some(name)) = (parent, place.file_name()) else {
            return Err(format!("{} is not a valid name for it", place.display()));
        };
        std::fs::create_dir_all(parent).map_err(path_error(parent, "made"))?;
        let prefix = format!("{}{UNFINISHED}", name.to_string_lossy());
        remove_leftovers(parent, &prefix);
        for _ in 0..ATTEMPTS_MAX {
            let path = parent.join(format!("{prefix}{}", uuid::Uuid::new_v4()));
            create_directory(&path, private).map_err(path_error(&path, "made"))?;
            if let Some(lock) = lock_new_directory(&path).map_err(path_error(&path, "locked"))? {
                return Ok(Staging { path, is_finished: false, _lock: lock });
            }
        }
        Err(format!("others keep removing {prefix}* in {}; try again", parent.display()))
    }

    /// The temporary path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes all content but the lock.
    pub(super) fn clear(&self) -> Result<(), String> {
        let failed = path_error(&self.path, "cleared");
        for entry in std::fs::read_dir(&self.path).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            if entry.file_name() == STAGING_LOCK {
                continue;
            }
            let is_directory = entry.file_type().map_err(&failed)?.is_dir();
            let path = entry.path();
            if is_directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
                .map_err(&failed)?;
        }
        Ok(())
    }

    /// Syncs the directory and renames it to `place`, which must be an empty directory or not exist.
    pub(super) fn finish(mut self, place: &Path) -> Result<(), String> {
        sync_all(&self.path).map_err(path_error(&self.path, "written"))?;
        rename_durably(&self.path, place)?;
        self.is_finished = true;
        // Under its final name no process removes it.
        let lock = place.join(STAGING_LOCK);
        std::fs::remove_file(&lock).map_err(path_error(&lock, "removed"))?;
        sync_directory(place).map_err(path_error(place, "written"))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_finished {
            // On an error the next process with the same destination removes it.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Renames `path`, which was synced, to `place`, and syncs the parent directory.
pub(super) fn rename_durably(path: &Path, place: &Path) -> Result<(), String> {
    std::fs::rename(path, place).map_err(|e| {
        format!("{} cannot be made ({e}); name a place in it that is not there yet", place.display())
    })?;
    match place.parent() {
        Some(parent) => sync_directory(parent).map_err(path_error(parent, "written")),
        None => Ok(()),
    }
}

/// Syncs a directory and all below it.
fn sync_all(directory: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(&entry.path())?;
        } else {
            File::open(entry.path())?.sync_all()?;
        }
    }
    sync_directory(directory)
}

/// Syncs the entries of a directory, on systems that support it.
fn sync_directory(directory: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

/// Creates a directory; only its owner can read a `private` one.
fn create_directory(path: &Path, private: bool) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    if private {
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    }
    #[cfg(not(unix))]
    let _ = private;
    builder.create(path)
}

/// Locks a directory that was just created; `None` if another process removed it as a leftover.
fn lock_new_directory(directory: &Path) -> std::io::Result<Option<File>> {
    let path = directory.join(STAGING_LOCK);
    match lock(&path, true) {
        // If the directory was removed in between, the locked file is that of the removed directory.
        Ok(Some(file)) if is_same_file(&file, &path) => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether `file` is still the one at `path`.
fn is_same_file(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        file.metadata().map(id).ok() == path.metadata().map(id).ok()
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

/// Acquires the lock at `path`; `None` if another process has it.
fn lock(path: &Path, create: bool) -> std::io::Result<Option<File>> {
    let file = OpenOptions::new().create(create).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Whether a process uses `directory` as a data directory.
pub(super) fn is_locked(directory: &Path) -> bool {
    matches!(lock(&directory.join(LOCK), false), Ok(None))
}

/// Removes the links that killed backups left in the data directory, which keep the disk space of removed objects in use.
pub(crate) fn remove_unfinished(data: &Path) {
    remove_leftovers(data, &format!("{LINKS}{UNFINISHED}"));
}

/// Removes the staging directories of killed processes.
fn remove_leftovers(parent: &Path, prefix: &str) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if let Ok(Some(_lock)) = lock(&path.join(STAGING_LOCK), true) {
            // A leftover that cannot be removed is harmless.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_directory_is_renamed_when_complete_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("thing");
        drop(Staging::new(&place, true).unwrap());
        assert!(names(directory.path()).is_empty());
        let staging = Staging::new(&place, true).unwrap();
        std::fs::create_dir(staging.path().join("inner")).unwrap();
        std::fs::write(staging.path().join("inner/file"), "1").unwrap();
        assert!(!place.exists());
        staging.finish(&place).unwrap();
        assert_eq!(
            (names(directory.path()), names(&place)),
            (vec!["thing".to_owned()], vec!["inner".to_owned()])
        );
    }

    #[test]
    fn leftovers_of_killed_processes_are_removed_and_directories_in_use_stay() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("thing");
        let left = |name: &str| directory.path().join(format!("thing.unfinished-{name}"));
        // Killed before it created the lock file, before it acquired the lock, while it wrote.
        let files: [(&str, &[&str]); 3] =
            [("1", &[]), ("2", &[STAGING_LOCK]), ("3", &[STAGING_LOCK, "content"])];
        for (name, files) in files {
            std::fs::create_dir(left(name)).unwrap();
            files.iter().for_each(|file| std::fs::write(left(name).join(file), "").unwrap());
        }
        std::fs::write(left("4"), "a file of the user").unwrap();
        let other = Staging::new(&place, false).unwrap();
        let own = Staging::new(&place, false).unwrap();
        for (name, _) in files {
            assert!(!left(name).exists(), "{name}");
        }
        assert!(left("4").exists());
        assert!(other.path().exists() && own.path().exists());
        std::fs::write(own.path().join("file"), "1").unwrap();
        own.clear().unwrap();
        assert_eq!(names(own.path()), [STAGING_LOCK]);
    }

    #[test]
    fn removal_of_a_directory_before_it_is_locked_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let made = directory.path().join("thing.unfinished-1");
        create_directory(&made, true).unwrap();
        remove_leftovers(directory.path(), "thing.unfinished-");
        assert!(!made.exists() && lock_new_directory(&made).unwrap().is_none());
        // The other process has just acquired the lock.
        create_directory(&made, true).unwrap();
        let held = lock_new_directory(&made).unwrap().unwrap();
        assert!(lock_new_directory(&made).unwrap().is_none());
        remove_leftovers(directory.path(), "thing.unfinished-");
        assert!(made.exists());
        drop(held);
        remove_leftovers(directory.path(), "thing.unfinished-");
        assert!(!made.exists());
    }

    #[test]
    fn concurrent_processes_with_one_destination_do_not_remove_each_others_directories() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("thing");
        let make = || {
            for _ in 0..50 {
                let staging = Staging::new(&place, false).unwrap();
                std::fs::write(staging.path().join("file"), "1").unwrap();
                assert_eq!(std::fs::read_to_string(staging.path().join("file")).unwrap(), "1");
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(make);
            }
        });
        assert!(names(directory.path()).is_empty());
    }
}
