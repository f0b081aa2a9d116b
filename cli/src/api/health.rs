//! `/_health`: whether the server can store what it acknowledges.
//!
//! Must stay true: it returns 503, with the problem and what to do, while the database, the lock file, the events directory or
//! the files in it were removed or replaced, or a file cannot be written in the data directory; it recovers by itself when
//! there is disk space again; a problem is logged when it begins and when it ends, not at each request. Compaction calls
//! [`Health::find_lost_files`] before each run, because it would move events into a directory that is not the installation's.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pennon_eventstore::installation_marker;
use serde_json::json;
use uuid::Uuid;

use crate::data::{DataDirectory, EVENTS, LOCK};
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
    /// The lock file and the events directory, held open so that their inode numbers are not reused.
    lock: File,
    events: File,
    /// The file that marks the events as those of this installation.
    marker: PathBuf,
    /// The problems of the last check. Locked during a check, so that concurrent requests do not probe at the same time.
    problems: Mutex<Vec<String>>,
}

impl std::fmt::Debug for LocalCheck {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LocalCheck").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Health {
    /// The check of a server that has locked `directory` and opened the database `embedded` and the events of `installation`
    /// in it.
    pub fn new(directory: &DataDirectory, embedded: &Embedded, installation: Uuid) -> Result<Health, String> {
        let open = |name: &str| {
            let path = directory.path().join(name);
            File::open(&path).map_err(|e| format!("{} cannot be opened: {e}", path.display()))
        };
        Ok(Health(Some(Arc::new(LocalCheck {
            embedded: embedded.clone(),
            directory: directory.path().to_owned(),
            lock: open(LOCK)?,
            events: open(EVENTS)?,
            marker: directory.path().join(EVENTS).join(installation_marker(installation)),
            problems: Mutex::default(),
        }))))
    }

    /// The problem, if files of the installation were removed or replaced while this server has them open.
    pub async fn find_lost_files(&self) -> Option<String> {
        let check = self.0.clone()?;
        // File systems may block.
        let lost = tokio::task::spawn_blocking(move || check.find_lost_files()).await;
        lost.unwrap_or_else(|e| Some(format!("the check failed: {e}")))
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
        if let Err(lost) = self.embedded.check_files() {
            // `check_files` has logged it.
            return vec![lost];
        }
        let problems: Vec<String> = match self.find_lost_lock_or_events() {
            Some(lost) => vec![lost],
            None => [self.directory.as_path(), &self.directory.join(EVENTS)]
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

    fn find_lost_files(&self) -> Option<String> {
        self.embedded.check_files().err().or_else(|| self.find_lost_lock_or_events())
    }

    fn find_lost_lock_or_events(&self) -> Option<String> {
        let (lock, events) = (self.directory.join(LOCK), self.directory.join(EVENTS));
        if !is_same(&self.lock, &lock) {
            return Some(format!(
                "{} was removed or replaced while the server had it locked: another server or command can open the database \
                 now, and would lose changes of this one. Stop every process that uses the directory, and start the server \
                 again.",
                lock.display()
            ));
        }
        let (lost, what) = if !is_same(&self.events, &events) {
            (events, "directory")
        } else if !self.marker.exists() {
            (self.marker.clone(), "files of the events directory")
        } else {
            return None;
        };
        Some(format!(
            "{} was removed or replaced while the server had it open: events that were compacted or imported cannot be read. \
             Put the {what} back as before, or stop the server and restore the data directory from a backup with `pennon \
             restore`.",
            lost.display()
        ))
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

/// Whether the file or directory at `path` is the open one.
#[cfg(unix)]
fn is_same(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (open.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(current)) => (open.dev(), open.ino()) == (current.dev(), current.ino()),
        _ => false,
    }
}

/// Other systems have no inode numbers: only checks that it exists.
#[cfg(not(unix))]
fn is_same(_open: &File, path: &Path) -> bool {
    path.exists()
}
