//! Directories that are being made: under a name that nobody takes for a finished one, beside the place where they will lie.
//!
//! Must stay true: the final name is given once, to something that lies on the disk with all that it holds; what a process
//! left behind that was killed, wherever that was, is removed by the next one that makes the same thing, and what another
//! one is making is not.
//!
//! Who holds the lock in a directory owns it, and whoever finds a directory takes the lock before anything else, also where
//! there is no lock file yet: its process was killed before it made one, or has not come so far. In the second case the
//! directory is removed under its maker, which notices, because it cannot take the lock or finds the locked file gone, and
//! begins again under another name. The lock file stays until the directory has its final name.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::at;
use crate::data::LOCK;

/// What stands behind the name of something that is being made.
const UNFINISHED: &str = ".unfinished-";
/// The file whose lock says that somebody is at it. Not that of a data directory: this one is removed from what a server may
/// have begun to use.
pub(super) const STAGING_LOCK: &str = "unfinished.lock";
/// How often a directory is made anew that others removed before it was locked.
const TRIES: usize = 10;
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
        for _ in 0..TRIES {
            let path = parent.join(format!("{prefix}{}", uuid::Uuid::new_v4()));
            make_directory(&path, private).map_err(at(&path, "made"))?;
            if let Some(lock) = lock_own(&path).map_err(at(&path, "locked"))? {
                return Ok(Staging { path, is_named: false, _lock: lock });
            }
        }
        Err(format!("others keep removing {prefix}* in {}; try again", parent.display()))
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

    /// Puts it with all that it holds at `place`, where nothing is, or an empty directory.
    pub(super) fn finish(mut self, place: &Path) -> Result<(), String> {
        sync_all(&self.path).map_err(at(&self.path, "written"))?;
        give_name(&self.path, place)?;
        self.is_named = true;
        // Under its final name it is nobody's to clear.
        let lock = place.join(STAGING_LOCK);
        std::fs::remove_file(&lock).map_err(at(&lock, "removed"))?;
        sync_directory(place).map_err(at(place, "written"))
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

/// Makes a directory, for the owner alone where it is `private`.
fn make_directory(path: &Path, private: bool) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    if private {
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    }
    #[cfg(not(unix))]
    let _ = private;
    builder.create(path)
}

/// The lock of a directory that was just made; none where another process took it for a leftover.
fn lock_own(directory: &Path) -> std::io::Result<Option<File>> {
    let path = directory.join(STAGING_LOCK);
    match lock(&path, true) {
        // Where it was removed in between, what is locked is the file of a directory that is gone.
        Ok(Some(file)) if is_at(&file, &path) => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether `file` still is the one at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let id = |found: std::fs::Metadata| (found.dev(), found.ino());
        file.metadata().map(id).ok() == path.metadata().map(id).ok()
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
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

/// Whether somebody has `directory` as a data directory.
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
        let path = entry.path();
        // Releases before locked another file.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || is_locked(&path) {
            continue;
        }
        if let Ok(Some(_lock)) = lock(&path.join(STAGING_LOCK), true) {
            // It does no harm where it stays.
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
    fn what_a_killed_process_left_goes_wherever_it_was_killed_and_what_another_one_makes_stays() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("thing");
        let left = |name: &str| directory.path().join(format!("thing.unfinished-{name}"));
        // Before it made the lock file, before it took the lock, while it wrote, and as the release before did.
        let files: [(&str, &[&str]); 4] = [
            ("1", &[]),
            ("2", &[STAGING_LOCK]),
            ("3", &[STAGING_LOCK, "content"]),
            ("4", &[LOCK, "content"]),
        ];
        for (name, files) in files {
            std::fs::create_dir(left(name)).unwrap();
            files.iter().for_each(|file| std::fs::write(left(name).join(file), "").unwrap());
        }
        let before = left("5");
        std::fs::create_dir(&before).unwrap();
        let _held = lock(&before.join(LOCK), true).unwrap().unwrap();
        std::fs::write(left("6"), "a file of the user").unwrap();
        let other = Staging::of(&place, false).unwrap();
        let own = Staging::of(&place, false).unwrap();
        for (name, _) in files {
            assert!(!left(name).exists(), "{name}");
        }
        assert!(before.exists() && left("6").exists());
        assert!(other.path().exists() && own.path().exists());
        std::fs::write(own.path().join("file"), "1").unwrap();
        own.clear().unwrap();
        assert_eq!(names(own.path()), [STAGING_LOCK]);
    }

    #[test]
    fn a_directory_that_is_removed_before_it_is_locked_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let made = directory.path().join("thing.unfinished-1");
        make_directory(&made, true).unwrap();
        remove_left_over(directory.path(), "thing.unfinished-");
        assert!(!made.exists() && lock_own(&made).unwrap().is_none());
        // The other one has just taken the lock.
        make_directory(&made, true).unwrap();
        let held = lock_own(&made).unwrap().unwrap();
        assert!(lock_own(&made).unwrap().is_none());
        remove_left_over(directory.path(), "thing.unfinished-");
        assert!(made.exists());
        drop(held);
        remove_left_over(directory.path(), "thing.unfinished-");
        assert!(!made.exists());
    }

    #[test]
    fn many_that_make_the_same_thing_at_once_remove_none_of_each_others() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("thing");
        let make = || {
            for _ in 0..50 {
                let staging = Staging::of(&place, false).unwrap();
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
