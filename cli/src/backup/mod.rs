//! `pennon backup` and `pennon restore`: consistent online backups of tables and objects.
//!
//! A backup is a directory, or the same directory as one tar file:
//!
//! | file | content |
//! |---|---|
//! | `backup.json` | format number, release, time, and each file with its size and SHA-256 ([`contents`]) |
//! | `dynamodb.sqlite` | the tables, from one read transaction |
//! | `events/` | the objects that these tables reference, and cached results |
//! | `payload.key` | the key of secret payloads, only with `--with-payload-key` |
//!
//! The tables are copied first ([`snapshot`]). The objects that they reference are immutable, and are removed 10 minutes after
//! they were replaced, which leaves time to hard-link them ([`objects`]). If one is missing nevertheless, the backup
//! restarts, at most 3 times.
//!
//! Must stay true: writes that were acknowledged before a backup began are in it, and a later transaction is in it completely
//! or not at all; a backup gets its final name only when all of it is on the disk and its checksums were verified; a
//! restored directory gets its name after they were verified again. Neither command changes the installation that it
//! reads, and neither overwrites anything.

mod contents;
mod create;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod objects;
mod pack;
mod restore;
mod snapshot;
mod staging;

use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::data::open_events;
use crate::embedded::Embedded;

pub use contents::{BackupFile, Contents, FORMAT};
pub use create::{BackupOptions, CompletedBackup, create};
pub use restore::{RestoredBackup, restore};
pub(crate) use staging::remove_unfinished;

/// The file that lists the contents of a backup.
pub const CONTENTS: &str = "backup.json";
/// Extension of backups that are one file.
pub const ARCHIVE_EXTENSION: &str = "tar";

/// A progress callback: the current step, the work that is done, and the total, in bytes or files.
pub type ProgressCallback<'a> = &'a mut (dyn FnMut(&'static str, u64, u64) + Send);

/// An error message for `path`: it cannot be `action` (a past participle).
fn path_error(path: &Path, action: &str) -> impl Fn(std::io::Error) -> String {
    let text = format!("{} cannot be {action}", path.display());
    move |error| format!("{text}: {error}")
}

/// The SHA-256 of a file, in hexadecimal digits, and its size.
fn hash_file(path: &Path) -> std::io::Result<(String, u64)> {
    let mut file = std::fs::File::open(path)?;
    let (mut digest, mut size) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((hex(&digest.finalize()), size)),
            read => {
                digest.update(&buffer[..read]);
                size += read as u64;
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Verifies the checksums of all objects in `directory` that its tables reference. Returns the number of objects.
async fn verify_objects(directory: &Path, progress: ProgressCallback<'_>) -> Result<usize, String> {
    let embedded = Embedded::open(directory).await.map_err(|e| e.to_string())?;
    let url = format!("file://{}", directory.join(crate::data::EVENTS).display());
    let events = open_events(&embedded.store(None), &url)?;
    // A copy has the installation's id, and the state of its tables.
    events.mark_copy().await.map_err(|e| e.to_string())?;
    let mut objects = 0;
    for project in events.projects().await.map_err(|e| e.to_string())? {
        let mut show = |done: pennon_eventstore::CheckProgress| {
            progress("comparing", done.objects as u64, done.of as u64);
        };
        let checked = events.check(project, false, &mut show).await.map_err(|e| e.to_string())?;
        if let Some(finding) = checked.damaged.iter().flat_map(|damage| &damage.findings).next() {
            return Err(format!("{} is damaged: {}", finding.object, finding.what));
        }
        objects += checked.objects;
    }
    Ok(objects)
}
