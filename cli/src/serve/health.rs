//! `/_health`: whether the server can keep what it acknowledges.
//!
//! Must stay true: it answers 503 and names what is wrong and what to do while the database or the directory of the events
//! was removed or replaced, or a file cannot be written in the data directory; it recovers by itself when there is room
//! again; what is wrong is logged when it begins and when it ends, and not at each request.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::data::{DataDirectory, EVENTS};
use crate::embedded::Embedded;

/// Bytes that must be writable: a disk that has no room for them is full.
const PROBE_BYTES: usize = 1 << 20;
/// The file that is written to find out, in the data directory and in that of the events.
const PROBE: &str = "health.probe";

/// What `/_health` looks at; nothing in a server without a data directory.
#[derive(Debug, Clone, Default)]
pub struct Health(Option<Arc<Local>>);

struct Local {
    embedded: Embedded,
    directory: PathBuf,
    /// The directory of the events, held open, so that no other directory gets its number.
    events: File,
    /// What was wrong when it was last looked at. Held while looking, so that requests do not probe side by side.
    wrong: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Local {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Local").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Health {
    /// Of a server whose database is `embedded`, in `directory`.
    pub fn of(directory: &DataDirectory, embedded: &Embedded) -> Result<Health, String> {
        let path = directory.path().join(EVENTS);
        let events = File::open(&path).map_err(|e| format!("{} cannot be opened: {e}", path.display()))?;
        let (embedded, directory) = (embedded.clone(), directory.path().to_owned());
        Ok(Health(Some(Arc::new(Local { embedded, directory, events, wrong: Mutex::default() }))))
    }

    /// The answer of `/_health`.
    pub async fn answer(self) -> Response {
        let Some(local) = self.0 else { return "ok".into_response() };
        // Writing blocks its thread.
        let wrong = tokio::task::spawn_blocking(move || local.look()).await;
        match wrong.unwrap_or_else(|e| vec![format!("the check failed: {e}")]) {
            wrong if wrong.is_empty() => "ok".into_response(),
            wrong => {
                let body = json!({"status": "unavailable", "problems": wrong});
                (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
            }
        }
    }
}

impl Local {
    /// What is wrong.
    fn look(&self) -> Vec<String> {
        let mut before = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let database = self.embedded.check_files();
        let events_path = self.directory.join(EVENTS);
        let events = is_same(&self.events, &events_path);
        let wrong: Vec<String> = match (database, events) {
            // It is logged where it is noticed.
            (Err(lost), _) => return vec![lost],
            (Ok(()), false) => vec![format!(
                "{} was removed or replaced while the server had it open: events that were compacted or imported cannot be \
                 read. Put the directory back as it was, or stop the server and restore the data directory from a backup \
                 with `pennon restore`.",
                events_path.display()
            )],
            (Ok(()), true) => [self.directory.as_path(), &events_path]
                .into_iter()
                .filter_map(|directory| Some(unwritable(directory, &probe(directory).err()?)))
                .collect(),
        };
        if *before != wrong {
            for text in wrong.iter().filter(|text| !before.contains(text)) {
                tracing::error!("{text}");
            }
            if wrong.is_empty() {
                tracing::warn!("/_health finds no problem any more");
            }
            before.clone_from(&wrong);
        }
        wrong
    }
}

fn unwritable(directory: &Path, error: &io::Error) -> String {
    let next = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "Make room on the disk; the server goes on by itself when there is some"
        }
        _ => "Make the directory writable for the server's user; the server goes on by itself then",
    };
    format!("{} cannot be written: {error}. {next}.", directory.display())
}

/// Writes a file to the disk and removes it.
fn probe(directory: &Path) -> io::Result<()> {
    let path = directory.join(PROBE);
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0; PROBE_BYTES])?;
        file.sync_all()
    });
    // Also after an error: what was written of it takes room.
    let removed = match std::fs::remove_file(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    written.and(removed)
}

/// Whether the directory at `path` is the one that is open.
#[cfg(unix)]
fn is_same(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (open.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(found)) => (open.dev(), open.ino()) == (found.dev(), found.ino()),
        _ => false,
    }
}

/// Elsewhere files have no such numbers: a directory is there or not.
#[cfg(not(unix))]
fn is_same(_open: &File, path: &Path) -> bool {
    path.is_dir()
}
