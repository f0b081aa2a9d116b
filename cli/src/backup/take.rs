//! Taking a backup of a local installation, beside its server or without one.
//!
//! Must stay true: the tables are copied before anybody asks which objects they name; a backup that cannot be whole is
//! none.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use super::contents::{Contents, Listed};
use super::objects::{Copying, Missed, Named, hold};
use super::staging::{STAGING_LOCK, Staging, give_name};
use super::{PACKED, Progress, at, compare, digest, pack, snapshot};
use crate::data::{EVENTS, LOCK, PAYLOAD_KEY, no_installation, open_events};
use crate::embedded::{self, Embedded, preflight, write_mark};

/// How often everything begins anew because an object has gone.
const TRIES: usize = 3;

/// What is to be done.
#[derive(Debug, Clone)]
pub struct How {
    /// The data directory.
    pub data: PathBuf,
    /// The directory, or the file ending in `.tar`, that is to be made.
    pub out: PathBuf,
    /// Objects are hard links.
    pub link: bool,
    /// The key of secret payloads is to be in it.
    pub payload_key: bool,
}

/// A backup.
#[derive(Debug, Clone)]
pub struct Taken {
    /// Where it lies.
    pub place: PathBuf,
    /// What it holds.
    pub contents: Contents,
}

/// Takes a backup.
pub async fn take(how: &How, progress: Progress<'_>) -> Result<Taken, String> {
    let has_database =
        std::fs::metadata(how.data.join(embedded::FILE)).is_ok_and(|database| database.len() > 0);
    if !has_database {
        return Err(no_installation(&how.data));
    }
    let data = how.data.canonicalize().map_err(at(&how.data, "read"))?;
    let place = std::path::absolute(&how.out).map_err(at(&how.out, "made"))?;
    require_nothing(&place)?;
    let is_packed = place.extension().is_some_and(|ending| ending == PACKED);
    if is_packed && how.link {
        return Err("--link makes a directory of hard links; a file cannot hold any".to_owned());
    }
    let copying = match (is_packed, how.link) {
        (true, _) => Copying::LinkIfPossible,
        (false, true) => Copying::Link,
        (false, false) => Copying::Bytes,
    };
    let staging = Staging::of(&place, true)?;
    let taken_at = copy_all(&data, &staging, copying, progress).await?;
    if how.payload_key {
        let key = data.join(PAYLOAD_KEY);
        std::fs::copy(&key, staging.path().join(PAYLOAD_KEY)).map_err(at(&key, "copied"))?;
    }
    compare(staging.path(), progress).await?;
    snapshot::settle(&staging.path().join(embedded::FILE))?;
    let contents = Contents::of(taken_at, listed(staging.path(), progress)?);
    contents.write(staging.path())?;
    require_nothing(&place)?;
    if is_packed {
        let file = staging.path().join("packed");
        pack::pack(&contents, staging.path(), &file, progress)?;
        give_name(&file, &place)?;
    } else {
        staging.finish(&place)?;
    }
    Ok(Taken { place, contents })
}

fn require_nothing(place: &Path) -> Result<(), String> {
    match place.symlink_metadata() {
        Ok(_) => Err(format!("{} is there already; a backup writes over nothing", place.display())),
        Err(_) => Ok(()),
    }
}

/// Copies tables and objects of one moment. Returns a moment before which all that was acknowledged is among them.
async fn copy_all(
    data: &Path,
    staging: &Staging,
    copying: Copying,
    progress: Progress<'_>,
) -> Result<DateTime<Utc>, String> {
    let tables = staging.path().join(embedded::FILE);
    let mut gone = String::new();
    for _ in 0..TRIES {
        staging.clear()?;
        let began = Utc::now();
        progress("copying", 0, 1);
        let mark = write_mark::read(data);
        snapshot::copy(&data.join(embedded::FILE), &tables)?;
        if let Some(missing) = write_mark::missing(mark, preflight::writes_in(&tables)?) {
            let what =
                format!("{missing} acknowledged writes are missing in it, so a backup would miss them too");
            return Err(preflight::sentence(&data.join(embedded::FILE), &what));
        }
        let named = named(data, staging.path()).await?;
        let copied =
            hold(data, &named).and_then(|held| held.copy(&staging.path().join(EVENTS), copying, progress));
        match copied {
            Ok(()) => return Ok(began),
            Err(Missed::Gone(name)) => gone = name,
            Err(Missed::Failed(what)) => return Err(what),
        }
    }
    Err(format!(
        "the tables name {gone}, which is not there; `pennon check` says what is damaged, and what can be done"
    ))
}

/// The objects that the tables in `tables` name, of those of the data directory `data`.
async fn named(data: &Path, tables: &Path) -> Result<Named, String> {
    let embedded = Embedded::open(tables).await.map_err(|e| e.to_string())?;
    let url = format!("file://{}", data.join(EVENTS).display());
    let events = open_events(&embedded.store(None), &url)?;
    let mut needed = Vec::new();
    for project in events.projects().await.map_err(|e| e.to_string())? {
        needed.extend(events.named_objects(project).await.map_err(|e| e.to_string())?);
    }
    let results = events.named_results().await.map_err(|e| e.to_string())?;
    Ok(Named { needed, results })
}

/// All files below `directory` with their digests, in order of their paths.
fn listed(directory: &Path, progress: Progress<'_>) -> Result<Vec<Listed>, String> {
    let mut paths = Vec::new();
    collect(directory, "", &mut paths).map_err(at(directory, "read"))?;
    paths.sort_unstable();
    let total = paths.len() as u64;
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let (sha256, bytes) = digest(&directory.join(&path)).map_err(at(&directory.join(&path), "read"))?;
        files.push(Listed { path, bytes, sha256 });
        progress("listing", files.len() as u64, total);
    }
    Ok(files)
}

fn collect(directory: &Path, prefix: &str, paths: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{prefix}{name}/"), paths)?;
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

    /// An installation, and one of the objects that its tables name.
    async fn installation(directory: &Path) -> (PathBuf, PathBuf) {
        let data = directory.join("data");
        super::super::restore(Path::new(FIXTURE), &data, &mut |_, _, _| {}).await.unwrap();
        let segments = std::fs::read_dir(data.join("events/project=1/events")).unwrap();
        let mut paths = segments.map(|entry| entry.unwrap().path());
        let object = paths.find(|path| path.extension().is_some_and(|ending| ending == "persons")).unwrap();
        (data, object)
    }

    #[tokio::test]
    async fn a_backup_that_misses_an_object_begins_anew_and_gives_up_where_it_stays_away() {
        let directory = tempfile::tempdir().unwrap();
        let (data, object) = installation(directory.path()).await;
        let away = directory.path().join("away");
        // In the try with this number the object is there.
        for (back_in, is_taken) in [(1, true), (2, true), (TRIES, true), (TRIES + 1, false)] {
            let out = directory.path().join(format!("backup {back_in}"));
            let how = How { data: data.clone(), out: out.clone(), link: false, payload_key: false };
            std::fs::rename(&object, &away).unwrap();
            let mut tries = 0;
            let mut begins = |_: &'static str, done: u64, _: u64| {
                if done == 0 && !object.exists() {
                    tries += 1;
                    if tries == back_in {
                        std::fs::rename(&away, &object).unwrap();
                    }
                }
            };
            let taken = take(&how, &mut begins).await;
            assert_eq!((taken.is_ok(), out.exists()), (is_taken, is_taken), "{taken:?}");
            assert_eq!(tries, back_in.min(TRIES));
            if let Err(said) = taken {
                assert!(said.contains(".persons") && said.contains("pennon check"), "{said}");
            }
            assert_eq!(object.exists(), is_taken);
        }
    }
}
