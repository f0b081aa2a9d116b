//! Directories that are being made: under a name that nobody takes for a finished one, beside the place where they will lie.
//!
//! Must stay true: the final name is given once, to something that lies on the disk with all that it holds; what a process
//! left behind that was killed is removed by the next one that makes the same thing, and what another one is making is not.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use super::at;
use crate::data::LOCK;

/// What stands behind the name of something that is being made.
const UNFINISHED: &str = ".unfinished-";
/// The name of the links in a data directory; nothing ever gets it.
pub(super) const HELD: &str = "backup";

/// A directory that is being made.
#[derive(Debug)]
pub(super) struct Staging {
    path: PathBuf,
    /// Whether it has got its name.
    is_named: bool,
    /// Tells others that somebody is at it.
    _lock: File,
}

impl Staging {
    /// A new directory for what will lie at `place`; for the owner's eyes where it is `private`.
    pub(super) fn of(place: &Path, private: bool) -> Result<Staging, String> {
        let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
        let (Some(parent), Some(name)) = (parent, place.file_name()) else {
            return Err(format!("{} is no name for it", place.display()));
        };
        std::fs::create_dir_all(parent).map_err(at(parent, "made"))?;
        let prefix = format!("{}{UNFINISHED}", name.to_string_lossy());
        remove_left_over(parent, &prefix);
        let path = parent.join(format!("{prefix}{}", uuid::Uuid::new_v4()));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        if private {
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        }
        #[cfg(not(unix))]
        let _ = private;
        builder.create(&path).map_err(at(&path, "made"))?;
        let locked = lock(&path.join(LOCK), true);
        let Some(lock) = locked.map_err(at(&path, "locked"))? else {
            return Err(format!("{} is locked by another process", path.display()));
        };
        Ok(Staging { path, is_named: false, _lock: lock })
    }

    /// Where it lies meanwhile.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes all that it holds.
    pub(super) fn clear(&self) -> Result<(), String> {
        let failed = at(&self.path, "cleared");
        for entry in std::fs::read_dir(&self.path).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            if entry.file_name() == LOCK {
                continue;
            }
            let is_directory = entry.file_type().map_err(&failed)?.is_dir();
            let path = entry.path();
            if is_directory { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
                .map_err(&failed)?;
        }
        Ok(())
    }

    /// Puts it with all that it holds at `place`, where nothing is, or an empty directory.
    pub(super) fn finish(mut self, place: &Path) -> Result<(), String> {
        let lock = self.path.join(LOCK);
        std::fs::remove_file(&lock).map_err(at(&lock, "removed"))?;
        sync_all(&self.path).map_err(at(&self.path, "written"))?;
        give_name(&self.path, place)?;
        self.is_named = true;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_named {
            // What cannot be removed now is by the next process that makes the same thing.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Renames `path`, which lies on the disk, to `place`, and waits until that lies on the disk too.
pub(super) fn give_name(path: &Path, place: &Path) -> Result<(), String> {
    std::fs::rename(path, place).map_err(|e| {
        format!("{} cannot be made ({e}); name a place in it that is not there yet", place.display())
    })?;
    match place.parent() {
        Some(parent) => sync_directory(parent).map_err(at(parent, "written")),
        None => Ok(()),
    }
}

/// Waits until a directory and all below it lie on the disk.
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

/// Waits until the names in a directory lie on the disk, where the system knows how.
fn sync_directory(directory: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

/// The lock at `path`, unless somebody has it.
fn lock(path: &Path, create: bool) -> std::io::Result<Option<File>> {
    let file = OpenOptions::new().create(create).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Whether somebody has the lock of `directory`.
pub(super) fn is_locked(directory: &Path) -> bool {
    matches!(lock(&directory.join(LOCK), false), Ok(None))
}

/// Removes what backups that were killed have left in the data directory: links, which keep the room of removed objects.
pub(crate) fn clear(data: &Path) {
    remove_left_over(data, &format!("{HELD}{UNFINISHED}"));
}

/// Removes directories of processes that were killed.
fn remove_left_over(parent: &Path, prefix: &str) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)) {
        if let Ok(Some(_lock)) = lock(&entry.path().join(LOCK), false) {
            // It does no harm where it stays.
            let _ = std::fs::remove_dir_all(entry.path());
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
    fn a_thing_has_its_name_when_it_is_whole_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("thing");
        drop(Staging::of(&place, true).unwrap());
        assert!(names(directory.path()).is_empty());
        let staging = Staging::of(&place, true).unwrap();
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
    fn what_a_killed_process_left_goes_and_what_another_one_makes_stays() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("thing");
        let left = directory.path().join("thing.unfinished-1");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join(LOCK), "").unwrap();
        let other = Staging::of(&place, false).unwrap();
        let own = Staging::of(&place, false).unwrap();
        assert!(!left.exists() && other.path().exists() && own.path().exists());
        std::fs::write(own.path().join("file"), "1").unwrap();
        own.clear().unwrap();
        assert_eq!(names(own.path()), [LOCK]);
    }
}
