//! Creates a backup of a local installation, while its server runs or without one.
//!
//! Must stay true: the tables are copied before the objects that they reference are listed; an incomplete backup is an error
//! and leaves nothing.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use super::contents::{BackupFile, Contents};
use super::objects::{CopyError, CopyMode, ReferencedObjects, link_objects};
use super::staging::{STAGING_LOCK, Staging, rename_durably};
use super::{ARCHIVE_EXTENSION, ProgressCallback, hash_file, pack, path_error, snapshot, verify_objects};
use crate::data::{EVENTS, LOCK, PAYLOAD_KEY, no_installation_message, open_events};
use crate::embedded::{self, Embedded, preflight, write_mark};

/// How often a backup restarts because an object was removed meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// Options of a backup.
#[derive(Debug, Clone)]
pub struct BackupOptions {
    /// The data directory.
    pub data: PathBuf,
    /// The directory to create, or the file if it ends in `.tar`.
    pub out: PathBuf,
    /// Whether the objects are hard links instead of copies.
    pub link: bool,
    /// Whether the backup includes the key of secret payloads.
    pub payload_key: bool,
}

/// A complete backup.
#[derive(Debug, Clone)]
pub struct CompletedBackup {
    /// Its path.
    pub place: PathBuf,
    /// Its contents.
    pub contents: Contents,
}

/// Creates a backup.
pub async fn create(
    options: &BackupOptions,
    progress: ProgressCallback<'_>,
) -> Result<CompletedBackup, String> {
    let has_database =
        std::fs::metadata(options.data.join(embedded::FILE)).is_ok_and(|database| database.len() > 0);
    if !has_database {
        return Err(no_installation_message(&options.data));
    }
    let data = options.data.canonicalize().map_err(path_error(&options.data, "read"))?;
    let place = std::path::absolute(&options.out).map_err(path_error(&options.out, "made"))?;
    require_absent(&place)?;
    let is_archive = place.extension().is_some_and(|extension| extension == ARCHIVE_EXTENSION);
    if is_archive && options.link {
        return Err("--link makes a directory of hard links; a file cannot hold any".to_owned());
    }
    let mode = match (is_archive, options.link) {
        (true, _) => CopyMode::LinkIfPossible,
        (false, true) => CopyMode::Link,
        (false, false) => CopyMode::Bytes,
    };
    let staging = Staging::new(&place, true)?;
    let taken_at = copy_snapshot(&data, &staging, mode, progress).await?;
    if options.payload_key {
        let key = data.join(PAYLOAD_KEY);
        std::fs::copy(&key, staging.path().join(PAYLOAD_KEY)).map_err(path_error(&key, "copied"))?;
    }
    verify_objects(staging.path(), progress).await?;
    snapshot::finalize(&staging.path().join(embedded::FILE))?;
    let contents = Contents::new(taken_at, list_files(staging.path(), progress)?);
    contents.write(staging.path())?;
    require_absent(&place)?;
    if is_archive {
        let file = staging.path().join("packed");
        pack::pack(&contents, staging.path(), &file, progress)?;
        rename_durably(&file, &place)?;
    } else {
        staging.finish(&place)?;
    }
    Ok(CompletedBackup { place, contents })
}

fn require_absent(place: &Path) -> Result<(), String> {
    match place.symlink_metadata() {
        Ok(_) => Err(format!("{} is there already; a backup writes over nothing", place.display())),
        Err(_) => Ok(()),
    }
}

/// Copies a consistent snapshot of tables and objects. Returns a time: all writes acknowledged before it are included.
async fn copy_snapshot(
    data: &Path,
    staging: &Staging,
    mode: CopyMode,
    progress: ProgressCallback<'_>,
) -> Result<DateTime<Utc>, String> {
    let tables = staging.path().join(embedded::FILE);
    let mut missing_object = String::new();
    for _ in 0..ATTEMPTS_MAX {
        staging.clear()?;
        let started_at = Utc::now();
        progress("copying", 0, 1);
        let mark = write_mark::read(data);
        snapshot::copy(&data.join(embedded::FILE), &tables)?;
        if let Some(missing) = write_mark::missing_writes(mark, preflight::stored_write_count(&tables)?) {
            let problem =
                format!("{missing} acknowledged writes are missing in it, so a backup would miss them too");
            return Err(preflight::damage_message(&data.join(embedded::FILE), &problem));
        }
        let objects = list_objects(data, staging.path()).await?;
        let copied = link_objects(data, &objects)
            .and_then(|linked| linked.copy(&staging.path().join(EVENTS), mode, progress));
        match copied {
            Ok(()) => return Ok(started_at),
            Err(CopyError::ObjectMissing(name)) => missing_object = name,
            Err(CopyError::Failed(message)) => return Err(message),
        }
    }
    Err(format!(
        "the tables name {missing_object}, which does not exist; `pennon check` lists the damage and how to repair it"
    ))
}

/// The objects of the data directory `data` that the tables in `tables` reference.
async fn list_objects(data: &Path, tables: &Path) -> Result<ReferencedObjects, String> {
    let embedded = Embedded::open(tables).await.map_err(|e| e.to_string())?;
    let url = format!("file://{}", data.join(EVENTS).display());
    let events = open_events(&embedded.store(None), &url)?;
    let mut needed = Vec::new();
    for project in events.projects().await.map_err(|e| e.to_string())? {
        needed.extend(events.list_live_objects(project).await.map_err(|e| e.to_string())?);
    }
    let results = events.list_result_objects().await.map_err(|e| e.to_string())?;
    Ok(ReferencedObjects { needed, results })
}

/// All files below `directory` with their digests, sorted by path.
fn list_files(directory: &Path, progress: ProgressCallback<'_>) -> Result<Vec<BackupFile>, String> {
    let mut paths = Vec::new();
    collect_paths(directory, "", &mut paths).map_err(path_error(directory, "read"))?;
    paths.sort_unstable();
    let total = paths.len() as u64;
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let file = directory.join(&path);
        let (sha256, bytes) = hash_file(&file).map_err(path_error(&file, "read"))?;
        files.push(BackupFile { path, bytes, sha256 });
        progress("listing", files.len() as u64, total);
    }
    Ok(files)
}

fn collect_paths(directory: &Path, prefix: &str, paths: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            collect_paths(&entry.path(), &format!("{prefix}{name}/"), paths)?;
        } else if !(prefix.is_empty() && (name == LOCK || name == STAGING_LOCK)) {
            paths.push(format!("{prefix}{name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/formats/1/backup");

    /// An installation, and one of the objects that its tables reference.
    async fn installation(directory: &Path) -> (PathBuf, PathBuf) {
        let data = directory.join("data");
        super::super::restore(Path::new(FIXTURE), &data, &mut |_, _, _| {}).await.unwrap();
        let segments = std::fs::read_dir(data.join("events/project=1/events")).unwrap();
        let mut paths = segments.map(|entry| entry.unwrap().path());
        let object = paths.find(|path| path.extension().is_some_and(|ending| ending == "persons")).unwrap();
        (data, object)
    }

    #[tokio::test]
    async fn a_backup_restarts_when_an_object_is_missing_and_fails_after_3_attempts() {
        let directory = tempfile::tempdir().unwrap();
        let (data, object) = installation(directory.path()).await;
        let moved = directory.path().join("away");
        // The object is back in the attempt with this number.
        for (back_in, is_created) in [(1, true), (2, true), (ATTEMPTS_MAX, true), (ATTEMPTS_MAX + 1, false)] {
            let out = directory.path().join(format!("backup {back_in}"));
            let options =
                BackupOptions { data: data.clone(), out: out.clone(), link: false, payload_key: false };
            std::fs::rename(&object, &moved).unwrap();
            let mut attempts = 0;
            let mut progress = |_: &'static str, done: u64, _: u64| {
                if done == 0 && !object.exists() {
                    attempts += 1;
                    if attempts == back_in {
                        std::fs::rename(&moved, &object).unwrap();
                    }
                }
            };
            let result = create(&options, &mut progress).await;
            assert_eq!((result.is_ok(), out.exists()), (is_created, is_created), "{result:?}");
            assert_eq!(attempts, back_in.min(ATTEMPTS_MAX));
            if let Err(error) = result {
                assert!(error.contains(".persons") && error.contains("pennon check"), "{error}");
            }
            assert_eq!(object.exists(), is_created);
        }
    }
}
