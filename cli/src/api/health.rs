//! `/_health`: whether the server can store what it acknowledges.
//!
//! Must stay true: it returns 503, with the problem and what to do, while the database or the events directory was removed
//! or replaced, or a file cannot be written in the data directory; it recovers by itself when there is disk space again; a
//! problem is logged when it begins and when it ends, not at each request.

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

/// The size of the probe file: a disk without this much space counts as full.
const PROBE_BYTES: usize = 1 << 20;
/// The file that is written as a probe, in the data directory and in the events directory.
const PROBE: &str = "health.probe";

/// The health check. Empty, and always healthy, in a server without a data directory.
#[derive(Debug, Clone, Default)]
pub struct Health(Option<Arc<LocalCheck>>);

struct LocalCheck {
    embedded: Embedded,
    directory: PathBuf,
    /// The events directory, held open so that its inode number is not reused.
    events: File,
    /// The problems of the last check. Locked during a check, so that concurrent requests do not probe at the same time.
    problems: Mutex<Vec<String>>,
}

impl std::fmt::Debug for LocalCheck {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LocalCheck").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Health {
    /// The check of a server with the database `embedded` in `directory`.
    pub fn new(directory: &DataDirectory, embedded: &Embedded) -> Result<Health, String> {
        let path = directory.path().join(EVENTS);
        let events = File::open(&path).map_err(|e| format!("{} cannot be opened: {e}", path.display()))?;
        let (embedded, directory) = (embedded.clone(), directory.path().to_owned());
        Ok(Health(Some(Arc::new(LocalCheck { embedded, directory, events, problems: Mutex::default() }))))
    }

    /// The response of `/_health`.
    pub async fn response(self) -> Response {
        let Some(check) = self.0 else { return "ok".into_response() };
        // Writing blocks its thread.
        let problems = tokio::task::spawn_blocking(move || check.run()).await;
        match problems.unwrap_or_else(|e| vec![format!("the check failed: {e}")]) {
            problems if problems.is_empty() => "ok".into_response(),
            problems => {
                let body = json!({"status": "unavailable", "problems": problems});
                (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
            }
        }
    }
}

impl LocalCheck {
    /// The current problems.
    fn run(&self) -> Vec<String> {
        let mut previous = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        let database = self.embedded.check_files();
        let events_path = self.directory.join(EVENTS);
        let is_same_directory = is_same(&self.events, &events_path);
        let problems: Vec<String> = match (database, is_same_directory) {
            // `check_files` has logged it.
            (Err(lost), _) => return vec![lost],
            (Ok(()), false) => vec![format!(
                "{} was removed or replaced while the server had it open: events that were compacted or imported cannot be \
                 read. Put the directory back as it was, or stop the server and restore the data directory from a backup \
                 with `pennon restore`.",
                events_path.display()
            )],
            (Ok(()), true) => [self.directory.as_path(), &events_path]
                .into_iter()
                .filter_map(|directory| Some(unwritable_message(directory, &probe(directory).err()?)))
                .collect(),
        };
        if *previous != problems {
            for text in problems.iter().filter(|text| !previous.contains(text)) {
                tracing::error!("{text}");
            }
            if problems.is_empty() {
                tracing::warn!("/_health finds no problem any more");
            }
            previous.clone_from(&problems);
        }
        problems
    }
}

fn unwritable_message(directory: &Path, error: &io::Error) -> String {
    let next = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "Free disk space; the server recovers without a restart"
        }
        _ => "Make the directory writable for the server's user; the server recovers without a restart",
    };
    format!("{} cannot be written: {error}. {next}.", directory.display())
}

/// Writes a file, syncs it and removes it.
fn probe(directory: &Path) -> io::Result<()> {
    let path = directory.join(PROBE);
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0; PROBE_BYTES])?;
        file.sync_all()
    });
    // Also after an error: a partial file takes disk space.
    let removed = match std::fs::remove_file(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    written.and(removed)
}

/// Whether the directory at `path` is the open one.
#[cfg(unix)]
fn is_same(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (open.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(current)) => (open.dev(), open.ino()) == (current.dev(), current.ino()),
        _ => false,
    }
}

/// Other systems have no inode numbers: only checks that the directory exists.
#[cfg(not(unix))]
fn is_same(_open: &File, path: &Path) -> bool {
    path.is_dir()
}
