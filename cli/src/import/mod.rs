//! History out of files into the event store.
//!
//! [`formats`] reads records out of a file, [`mappings`] turn each into events, persons and groups, [`people`] folds what is said
//! of persons and groups bit by bit, [`source`] is both together, [`report`] says what was done.
//!
//! A file is read twice: first it is checked to its end, then it is stored. So a file with a bad line stores nothing at
//! all, and the error names the line. What is stored goes straight into segments, chunk by chunk; an import that is
//! stopped halfway has stored whole chunks, and importing the file again adds the rest: events without a uuid get one
//! from the file's content and their line, so that each counts once. The same content counts once whether it is
//! compressed or not. Persons that are folded come first, so that events are written under them.
//! Must stay true: memory is bounded by two chunks and [`PEOPLE_BYTES_MAX`]; an import makes, merges or changes no person or
//! group but those that its records say; nothing of a record is left out that [`Summary::ignored`] does not count.

mod chunk;
mod detect;
mod error;
mod formats;
mod known;
mod mappings;
mod people;
mod record;
mod report;
mod source;
mod time;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use pennon_eventstore::{EventStore, EventStoreError};

pub use error::ImportError;
pub use formats::LINE_BYTES_MAX;
pub use mappings::Vendor;
pub use mappings::native::FieldRule;
pub use people::PEOPLE_BYTES_MAX;
pub use report::{SourceDescription, Summary};
pub use time::TimeForm;

use chunk::{Chunk, of_people};
use people::{FoldedPeople, People};
use source::{Counts, KnownContent, Source};

/// Records that are read between two reports of progress.
const AT_ONCE: u64 = 50_000;
/// Records that a dry run shows.
const SAMPLES: usize = 3;

/// What an import is told beside the file.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The project of lines that name none.
    pub default_project: Option<u64>,
    /// Names of the group types of projects, where they are known; groups are compared with them.
    pub group_types: BTreeMap<u64, Vec<String>>,
    /// Whose export the file is; recognised by its content where left out.
    pub from: Option<Vendor>,
    /// Names of the file for fields of an event.
    pub map: Vec<FieldRule>,
    /// What is done with fields that are unknown. Where left out, Parquet columns are properties, all else is refused.
    pub extra: Option<ExtraFields>,
    /// The group type of groups whose vendor knows no types.
    pub group_type: Option<String>,
}

/// What is done with fields of a record that are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExtraFields {
    /// The file is refused.
    Refuse,
    /// They become properties.
    Properties,
    /// They are left out, and counted.
    Ignore,
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

/// A file that has been read to its end.
struct CheckedFile {
    known: KnownContent,
    people: FoldedPeople,
    summary: Summary,
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
    let CheckedFile { known, mut people, summary } = check(path, &options, progress).await?;
    let failed = |error: EventStoreError| ImportError::of_file(path, error.to_string());
    let mut summary = Summary { events: 0, persons: 0, groups: 0, ..summary };
    known::lay_over_stored(store, &mut people).await.map_err(failed)?;
    for part in of_people(people, now).map_err(failed)? {
        part.store(store, &mut summary).await.map_err(failed)?;
    }
    let source = open(path, &options, Some(known), false).await?;
    let mut read = 0;
    let (mut source, mut part) = next_chunk(source, now, path, read, progress).await?;
    while part.records > 0 {
        read += part.records;
        let stored = async { part.store(store, &mut summary).await.map_err(failed) };
        // The next chunk is read while this one is stored.
        (_, (source, part)) = tokio::try_join!(stored, next_chunk(source, now, path, read, progress))?;
    }
    Ok(summary)
}

/// Reads the file at `path` to its end as an import does, and stores nothing. The summary has samples.
pub async fn dry_run_file(
    path: &Path,
    options: ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, ImportError> {
    let CheckedFile { known, people, mut summary } = check(path, &options, progress).await?;
    summary.is_dry_run = true;
    summary.persons += people.persons.len() as u64;
    summary.groups += people.groups.len() as u64;
    let mut source = open(path, &options, Some(known), true).await?;
    let unit = source.unit();
    let step = tokio::task::spawn_blocking(move || {
        let mut samples = Vec::new();
        while samples.len() < SAMPLES
            && let Some((number, mapped)) = source.next()?
        {
            samples.push(report::sample(unit, number, &mapped));
        }
        Ok::<_, ImportError>(samples)
    });
    summary.samples = done(step.await, path)?;
    Ok(summary)
}

async fn open(
    path: &Path,
    options: &ImportOptions,
    known: Option<KnownContent>,
    by_record: bool,
) -> Result<Source, ImportError> {
    let (at, options) = (path.to_owned(), options.clone());
    let opened = tokio::task::spawn_blocking(move || Source::open(&at, options, known, by_record)).await;
    done(opened, path)
}

/// Reads the file to its end.
async fn check(
    path: &Path,
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckedFile, ImportError> {
    let mut source = open(path, options, None, false).await?;
    let mut people = People::default();
    let mut counts = Counts::default();
    loop {
        let step = tokio::task::spawn_blocking(move || {
            let records = source.check(AT_ONCE, &mut people, &mut counts)?;
            Ok::<_, ImportError>((source, people, counts, records))
        });
        let records;
        (source, people, counts, records) = done(step.await, path)?;
        let (read, total) = source.position();
        progress(Progress { phase: Phase::Checking, done: read, total, lines: counts.lines });
        if records == 0 {
            break;
        }
    }
    let known = source.known().map_err(|error| error.in_file(path))?;
    let people = people.fold();
    let Counts { lines, events, persons, groups, mut ignored } = counts;
    if people.unusable_merges > 0 {
        ignored
            .insert("merges with an id that stands for no user, such as `anonymous`", people.unusable_merges);
    }
    let summary = Summary {
        lines,
        events,
        persons,
        groups,
        merges: people.merges,
        refused_merges: people.refused_merges,
        ignored,
        source: source.description(),
        ..Summary::default()
    };
    Ok(CheckedFile { known, people, summary })
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
        let (read, total) = source.position();
        let lines = lines + chunk.records;
        progress(Progress { phase: Phase::Storing, done: read, total, lines });
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
