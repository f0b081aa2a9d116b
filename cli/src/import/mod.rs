//! History out of files into the event store: JSON lines (plain or gzip) and Parquet.
//!
//! A file is read twice: first it is checked to its end, then it is stored. So a file with a bad line stores nothing at
//! all, and the error names the line. What is stored goes straight into segments, chunk by chunk; an import that is
//! stopped halfway has stored whole chunks, and importing the file again adds the rest: events without a uuid get one
//! from the file's content and their line, so that each counts once. The same content counts once whether it is
//! compressed or not. Must stay true: memory is bounded by two chunks, and for Parquet with a `person_id` by the number
//! of persons; an import makes, merges or changes no person or group but those that its lines say.

mod error;
mod line;
mod lines;
mod record;
mod rows;
mod source;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pennon_eventstore::{Event, EventStore, GroupRecord, PersonRecord};

pub use error::ImportError;
pub use lines::LINE_BYTES_MAX;

use record::Record;
use source::Source;

/// Most events of a chunk.
const CHUNK_EVENTS: usize = 150_000;
/// Most bytes of text of a chunk.
const CHUNK_BYTES: usize = 40 << 20;
/// Lines that are checked between two reports of progress.
const CHECKED_AT_ONCE: usize = 50_000;

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
    let content = check(path, &options, progress).await?;
    let mut source = open(path, &options, Some(content)).await?;
    let mut summary = Summary::default();
    let mut part;
    (source, part) = next_chunk(source, path).await?;
    while part.records > 0 {
        let position = source.position();
        summary.lines += part.records;
        let stored = part.store(store, now, &mut summary);
        let stored = async { stored.await.map_err(|error| ImportError::of_file(path, error.to_string())) };
        // The next chunk is read while this one is stored.
        (_, (source, part)) = tokio::try_join!(stored, next_chunk(source, path))?;
        progress(Progress {
            phase: Phase::Storing,
            done: position.done,
            total: position.total,
            lines: summary.lines,
        });
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

/// Reads the file to its end. Returns the digest of its content.
async fn check(
    path: &Path,
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<[u8; 32], ImportError> {
    let mut source = open(path, options, None).await?;
    let mut lines = 0;
    loop {
        let step = tokio::task::spawn_blocking(move || {
            let mut records = 0;
            while records < CHECKED_AT_ONCE && source.next()?.is_some() {
                records += 1;
            }
            Ok::<_, ImportError>((source, records))
        });
        let step = step.await.map_err(|e| ImportError::of_file(path, e.to_string()))?;
        let records;
        (source, records) = step.map_err(|error| error.in_file(path))?;
        lines += records as u64;
        let position = source.position();
        progress(Progress { phase: Phase::Checking, done: position.done, total: position.total, lines });
        if records == 0 {
            return source.digest().map_err(|error| error.in_file(path));
        }
    }
}

/// A part of a file, by project.
#[derive(Debug, Default)]
struct Chunk {
    records: u64,
    events: BTreeMap<u64, Vec<(u64, Event)>>,
    persons: BTreeMap<u64, Vec<PersonRecord>>,
    groups: BTreeMap<u64, Vec<GroupRecord>>,
}

async fn next_chunk(source: Source, path: &Path) -> Result<(Source, Chunk), ImportError> {
    let read = tokio::task::spawn_blocking(move || chunk(source)).await;
    read.map_err(|e| ImportError::of_file(path, e.to_string()))?.map_err(|error| error.in_file(path))
}

/// The next chunk of `source`; without records at its end.
fn chunk(mut source: Source) -> Result<(Source, Chunk), ImportError> {
    let mut chunk = Chunk::default();
    let (mut count, mut bytes) = (0, 0);
    while count < CHUNK_EVENTS && bytes < CHUNK_BYTES {
        let Some(next) = source.next()? else { break };
        count += 1;
        bytes += next.bytes;
        chunk.records += 1;
        match next.record {
            Record::Event(event) => chunk.events.entry(next.project).or_default().push((next.line, event)),
            Record::Person(person) => chunk.persons.entry(next.project).or_default().push(person),
            Record::Group(group) => chunk.groups.entry(next.project).or_default().push(group),
        }
    }
    Ok((source, chunk))
}

impl Chunk {
    async fn store(
        self,
        store: &EventStore,
        now: i64,
        summary: &mut Summary,
    ) -> Result<(), pennon_eventstore::EventStoreError> {
        for (project, groups) in self.groups {
            summary.groups += groups.len() as u64;
            summary.projects.insert(project);
            store.add_groups(project, groups, now).await?;
        }
        for (project, persons) in self.persons {
            summary.persons += persons.len() as u64;
            summary.projects.insert(project);
            store.add_persons(project, persons, now).await?;
        }
        for (project, events) in self.events {
            let ingested = store.ingest(project, events, now).await?;
            summary.events += ingested.stored;
            summary.copies += ingested.copies;
            summary.projects.insert(project);
        }
        Ok(())
    }
}
