//! `pennon backup` and `pennon restore`: tables and objects of one moment, while the server goes on serving and writing.
//!
//! A backup is a directory, or the same directory packed as one file:
//!
//! | what | content |
//! |---|---|
//! | `backup.json` | format number, release, moment, and each file with its size and its SHA-256 ([`contents`]) |
//! | `dynamodb.sqlite` | the tables, as one read transaction saw them |
//! | `events/` | the objects that these tables name, and the results that were kept |
//! | `payload.key` | the key of secret payloads, only where it was asked for |
//!
//! The tables come first ([`snapshot`]); the objects that they name are never changed, and stay for ten minutes after others
//! have taken their place, so there is time to hold on to them by hard links ([`objects`]). Where one has gone
//! nevertheless, everything begins anew.
//!
//! Must stay true: what was acknowledged before a backup began is in it, and of what comes later a transaction is in it
//! whole or not at all; a backup bears its name only when all of it lies on the disk and was compared with its checksums;
//! what a restore gives its name to has been compared with them again. Neither changes the installation that it reads, and
//! neither writes over anything.

mod contents;
mod objects;
mod pack;
mod restore;
mod snapshot;
mod staging;
mod take;

use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::data::open_events;
use crate::embedded::Embedded;

pub use contents::{Contents, FORMAT, Listed};
pub use restore::{Restored, restore};
pub(crate) use staging::clear;
pub use take::{How, Taken, take};

/// The file that says what a backup holds.
pub const CONTENTS: &str = "backup.json";
/// Ending of the names of backups that are one file.
pub const PACKED: &str = "tar";

/// How far the work has come: what is done, and how many of how many bytes.
pub type Progress<'a> = &'a mut (dyn FnMut(&'static str, u64, u64) + Send);

/// Error text for a file or directory.
fn at(path: &Path, what: &str) -> impl Fn(std::io::Error) -> String {
    let text = format!("{} cannot be {what}", path.display());
    move |error| format!("{text}: {error}")
}

/// SHA-256 of a file, in hexadecimal digits, and its size.
fn digest(path: &Path) -> std::io::Result<(String, u64)> {
    let mut file = std::fs::File::open(path)?;
    let (mut digest, mut size) = (Sha256::new(), 0);
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((hex(&digest.finalize()), size)),
            read => {
                digest.update(&piece[..read]);
                size += read as u64;
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares all objects in `directory` that its tables name with their checksums. Returns how many there are.
async fn compare(directory: &Path, progress: Progress<'_>) -> Result<usize, String> {
    let embedded = Embedded::open(directory).await.map_err(|e| e.to_string())?;
    let url = format!("file://{}", directory.join(crate::data::EVENTS).display());
    let events = open_events(&embedded.store(None), &url)?;
    // A copy is the same installation at the moment that its tables are of.
    events.mark_copy().await.map_err(|e| e.to_string())?;
    let mut objects = 0;
    for project in events.projects().await.map_err(|e| e.to_string())? {
        let mut show = |done: pennon_eventstore::CheckProgress| {
            progress("comparing", done.objects as u64, done.of as u64);
        };
        let checked = events.check(project, false, &mut show).await.map_err(|e| e.to_string())?;
        if let Some(finding) = checked.damaged.iter().flat_map(|found| &found.findings).next() {
            return Err(format!("{} is damaged: {}", finding.object, finding.what));
        }
        objects += checked.objects;
    }
    Ok(objects)
}
