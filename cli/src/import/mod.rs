//! History out of files into the event store: JSON lines (plain or gzip) and Parquet.
//!
//! A file is read twice: first it is checked to its end, then it is stored. So a file with a bad line stores nothing at
//! all, and the error names the line. What is stored goes straight into segments, chunk by chunk; an import that is
//! stopped halfway has stored whole chunks, and importing the file again adds the rest: events without a uuid get one
//! from the file's content and their line, so that each counts once. The same content counts once whether it is
//! compressed or not. The persons that a `person_id` column names come first, so that events are written under them.
//! Must stay true: memory is bounded by two chunks, and for Parquet with a `person_id` by the number of persons; an import
//! makes, merges or changes no person or group but those that its lines say.

mod chunk;
mod error;
mod line;
mod lines;
mod persons;
mod record;
mod rows;
mod source;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pennon_eventstore::{EventStore, PersonRecord};

pub use error::ImportError;
pub use lines::LINE_BYTES_MAX;

use chunk::{Chunk, of_persons};
use persons::Persons;
use source::Source;

/// Records that are read between two reports of progress.
const AT_ONCE: u64 = 50_000;

/// What an import is told beside the file.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The project of lines that name none.
    pub default_project: Option<u64>,
    /// Names of the group types of projects, where they are known; groups are compared with them.
    pub group_types: BTreeMap<u64, Vec<String>>,
}

/// What an import is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Reading the file to its end, to find mistakes.
    Checking,
    /// Storing.
    Storing,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// How much of the file has been read in this phase: bytes, or rows of a Parquet file.
    pub done: u64,
    /// Of how much.
    pub total: u64,
    /// Lines read in this phase.
    pub lines: u64,
}

/// What an import did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Lines of the file that are not blank, or rows.
    pub lines: u64,
    /// Events that are new.
    pub events: u64,
    /// Events that were there already.
    pub copies: u64,
    /// Persons.
    pub persons: u64,
    /// Groups.
    pub groups: u64,
    /// The projects that received something.
    pub projects: BTreeSet<u64>,
}

/// Imports the file at `path`. `now` is the arrival time of its events, in microseconds since the epoch; `progress` is
/// called many times.
pub async fn import_file(
    store: &EventStore,
    path: &Path,
    options: ImportOptions,
    now: i64,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, ImportError> {
    let (content, persons) = check(path, &options, progress).await?;
    let failed = |error: pennon_eventstore::EventStoreError| ImportError::of_file(path, error.to_string());
    let mut summary = Summary::default();
    for part in of_persons(persons, now).map_err(failed)? {
        summary.lines += part.records;
        part.store(store, &mut summary).await.map_err(failed)?;
    }
    let source = open(path, &options, Some(content)).await?;
    let (mut source, mut part) = next_chunk(source, now, path, 0, progress).await?;
    let mut read = 0;
    while part.records > 0 {
        summary.lines += part.records;
        read += part.records;
        let stored = async { part.store(store, &mut summary).await.map_err(failed) };
        // The next chunk is read while this one is stored.
        (_, (source, part)) = tokio::try_join!(stored, next_chunk(source, now, path, read, progress))?;
    }
    Ok(summary)
}

async fn open(
    path: &Path,
    options: &ImportOptions,
    content: Option<[u8; 32]>,
) -> Result<Source, ImportError> {
    let (at, options) = (path.to_owned(), options.clone());
    let opened = tokio::task::spawn_blocking(move || Source::open(&at, options, content)).await;
    let failed = |e: tokio::task::JoinError| ImportError::of_file(path, e.to_string());
    opened.map_err(failed)?.map_err(|error| error.in_file(path))
}

/// Persons of a file, by project.
type Named = Vec<(u64, PersonRecord)>;

/// Reads the file to its end. Returns the digest of its content, and the persons that its rows name.
async fn check(
    path: &Path,
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<([u8; 32], Named), ImportError> {
    let mut source = open(path, options, None).await?;
    let mut persons = Persons::default();
    let mut lines = 0;
    loop {
        let step = tokio::task::spawn_blocking(move || {
            let records = source.check(AT_ONCE, &mut persons)?;
            Ok::<_, ImportError>((source, persons, records))
        });
        let records;
        (source, persons, records) = done(step.await, path)?;
        lines += records;
        let position = source.position();
        progress(Progress { phase: Phase::Checking, done: position.done, total: position.total, lines });
        if records == 0 {
            let content = source.digest().map_err(|error| error.in_file(path))?;
            return Ok((content, persons.several()));
        }
    }
}

/// The next chunk of `source`, of which `lines` records were read before; without records at its end.
async fn next_chunk(
    mut source: Source,
    now: i64,
    path: &Path,
    lines: u64,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Source, Chunk), ImportError> {
    let mut chunk = Chunk::new(now);
    loop {
        let step = tokio::task::spawn_blocking(move || {
            let records = source.take(AT_ONCE, &mut chunk)?;
            Ok::<_, ImportError>((source, chunk, records))
        });
        let records;
        (source, chunk, records) = done(step.await, path)?;
        let position = source.position();
        let lines = lines + chunk.records;
        progress(Progress { phase: Phase::Storing, done: position.done, total: position.total, lines });
        if records == 0 {
            return Ok((source, chunk));
        }
    }
}

fn done<T>(
    step: Result<Result<T, ImportError>, tokio::task::JoinError>,
    path: &Path,
) -> Result<T, ImportError> {
    step.map_err(|e| ImportError::of_file(path, e.to_string()))?.map_err(|error| error.in_file(path))
}
