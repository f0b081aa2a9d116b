//! Imports files of historical events, persons and groups into the event store.
//!
//! [`formats`] reads records from a file; [`mappings`] turns each into events, persons and groups; [`people`] folds partial
//! updates of persons and groups; [`source`] combines the three; [`report`] describes the result.
//!
//! A file is read twice: the first pass validates all of it, the second stores it. So a file with an invalid line stores
//! nothing, and the error names the line. Events are written directly into segments, chunk by chunk. An interrupted import
//! has stored whole chunks, and importing the file again adds the rest: [`checkpoint`] records its progress, and an event
//! without a uuid gets one derived from the digest of the content and its line, so that it is deduplicated. The digest is of
//! the decompressed content. Folded persons are stored first, so that events are stored with their final persons.
//!
//! Must stay true: memory is bounded by two chunks and [`PEOPLE_BYTES_MAX`]; an import creates, merges or changes only the
//! persons and groups of its records; every field that is dropped is counted in [`Summary::ignored`].

mod checkpoint;
mod chunk;
mod detect;
mod error;
mod formats;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod mappings;
mod people;
mod record;
mod report;
mod source;
mod stored_properties;
mod time;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use pennon_core::store::{StoreError, Table};
use pennon_eventstore::{EventStore, EventStoreError};

pub use error::ImportError;
pub use formats::LINE_BYTES_MAX;
pub use mappings::Vendor;
pub use mappings::native::FieldRule;
pub use people::PEOPLE_BYTES_MAX;
pub use report::{SourceDescription, Summary};
pub use time::TimeFormat;

use checkpoint::Checkpoints;
use chunk::{Chunk, chunks_of_people};
use people::{FoldedPeople, PeopleBuilder};
use source::{ContentInfo, FirstPassCounts, ImportSource};

/// Records that are read between two progress reports.
const RECORDS_PER_STEP: u64 = 50_000;
/// Records that a dry run shows.
const SAMPLES: usize = 3;

/// Options of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The project of records without one.
    pub default_project: Option<u64>,
    /// The declared group types of projects, which groups must match.
    pub group_types: BTreeMap<u64, Vec<String>>,
    /// The vendor whose export the file is; by default detected from its content.
    pub from: Option<Vendor>,
    /// Columns or keys of the file for fields of an event.
    pub map: Vec<FieldRule>,
    /// The handling of unknown fields; by default Parquet columns become properties, and others are rejected.
    pub extra: Option<ExtraFields>,
    /// The group type of groups whose vendor has no group types.
    pub group_type: Option<String>,
    /// The table in which an import stores how far it came; without it an interrupted import begins again.
    pub checkpoints: Option<Table>,
}

/// How unknown fields of a record are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExtraFields {
    /// The file is rejected.
    Refuse,
    /// They become properties.
    Properties,
    /// They are dropped, and counted.
    Ignore,
}

/// The current phase of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportPhase {
    /// Validating the whole file.
    Checking,
    /// Reading over the records that an interrupted import has stored.
    Skipping,
    /// Storing the persons and groups that were folded from the file.
    StoringPeople,
    /// Storing the other records.
    Storing,
}

/// The progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportProgress {
    /// The current phase.
    pub phase: ImportPhase,
    /// How much of the file was read in this phase: bytes, or rows of a Parquet file. Of persons and groups, steps: each is
    /// first merged with its stored properties and then stored.
    pub done: u64,
    /// The size of the file, or the number of steps, in the same unit.
    pub total: u64,
    /// Records read in this phase; 0 while persons and groups are stored.
    pub lines: u64,
}

/// The result of the first pass.
struct CheckedFile {
    content_info: ContentInfo,
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
    progress: &mut dyn FnMut(ImportProgress),
) -> Result<Summary, ImportError> {
    let CheckedFile { content_info, people, summary } = check(path, &options, progress).await?;
    let failed = |error: EventStoreError| ImportError::for_file(path, error.to_string());
    let not_noted = |error: StoreError| failed(error.into());
    let opened = Checkpoints::open(store, &options, &content_info.digest).await;
    let (mut checkpoints, interrupted) = opened.map_err(failed)?;
    let mut summary = Summary { events: 0, persons: 0, groups: 0, ..summary };
    let mut source = open(path, &options, Some(content_info), false).await?;
    let mut read = 0;
    if let Some(interrupted) = interrupted {
        read = interrupted.records;
        source = skip(source, read, now, path, progress).await?;
        interrupted.add_to(&mut summary);
    } else {
        store_people(store, people, now, &mut summary, progress).await.map_err(failed)?;
    }
    let (mut source, mut chunk) = next_chunk(source, now, path, read, progress).await?;
    while chunk.records > 0 {
        if read > 0 || summary.persons + summary.groups > 0 {
            checkpoints.store(read, &summary, now).await.map_err(not_noted)?;
        }
        read += chunk.records;
        let stored = async { chunk.store(store, &mut summary).await.map_err(failed) };
        // The next chunk is read while this one is stored.
        (_, (source, chunk)) = tokio::try_join!(stored, next_chunk(source, now, path, read, progress))?;
    }
    checkpoints.remove().await.map_err(not_noted)?;
    Ok(summary)
}

/// Merges the folded persons and groups of a file with the stored ones, and stores them.
async fn store_people(
    store: &EventStore,
    mut people: FoldedPeople,
    now: i64,
    summary: &mut Summary,
    progress: &mut dyn FnMut(ImportProgress),
) -> Result<(), EventStoreError> {
    let count = (people.persons.len() + people.groups.len()) as u64;
    let mut steps = |done| {
        if count > 0 {
            progress(ImportProgress { phase: ImportPhase::StoringPeople, done, total: count * 2, lines: 0 });
        }
    };
    stored_properties::merge_with_stored(store, &mut people, &mut steps).await?;
    for chunk in chunks_of_people(people, now)? {
        chunk.store(store, summary).await?;
        steps(count + summary.persons + summary.groups);
    }
    Ok(())
}

/// Reads over the first `records` records of `source`, which are stored already.
async fn skip(
    mut source: ImportSource,
    records: u64,
    now: i64,
    path: &Path,
    progress: &mut dyn FnMut(ImportProgress),
) -> Result<ImportSource, ImportError> {
    let mut skipped = 0;
    while skipped < records {
        let step = tokio::task::spawn_blocking(move || {
            let read = source.read_into(&mut Chunk::new(now), RECORDS_PER_STEP.min(records - skipped))?;
            Ok::<_, ImportError>((source, read))
        });
        let read;
        (source, read) = step_result(step.await, path)?;
        if read == 0 {
            return Err(ImportError::for_file(
                path,
                "the file has changed since it was validated".to_owned(),
            ));
        }
        skipped += read;
        let (done, total) = source.position();
        progress(ImportProgress { phase: ImportPhase::Skipping, done, total, lines: skipped });
    }
    Ok(source)
}

/// Validates the file at `path` as an import does, and stores nothing. The summary has samples of records.
pub async fn dry_run_file(
    path: &Path,
    options: ImportOptions,
    progress: &mut dyn FnMut(ImportProgress),
) -> Result<Summary, ImportError> {
    let CheckedFile { content_info, people, mut summary } = check(path, &options, progress).await?;
    summary.is_dry_run = true;
    summary.persons += people.persons.len() as u64;
    summary.groups += people.groups.len() as u64;
    let mut source = open(path, &options, Some(content_info), true).await?;
    let unit = source.unit();
    let step = tokio::task::spawn_blocking(move || {
        let mut samples = Vec::new();
        while samples.len() < SAMPLES
            && let Some((number, mapped)) = source.next()?
        {
            samples.push(report::sample_json(unit, number, &mapped));
        }
        Ok::<_, ImportError>(samples)
    });
    summary.samples = step_result(step.await, path)?;
    Ok(summary)
}

async fn open(
    path: &Path,
    options: &ImportOptions,
    content_info: Option<ContentInfo>,
    by_record: bool,
) -> Result<ImportSource, ImportError> {
    let (file, options) = (path.to_owned(), options.clone());
    let open = move || ImportSource::open(&file, options, content_info, by_record);
    step_result(tokio::task::spawn_blocking(open).await, path)
}

/// The first pass: validates the whole file, and folds its updates of persons and groups.
async fn check(
    path: &Path,
    options: &ImportOptions,
    progress: &mut dyn FnMut(ImportProgress),
) -> Result<CheckedFile, ImportError> {
    let mut source = open(path, options, None, false).await?;
    let mut people = PeopleBuilder::default();
    let mut counts = FirstPassCounts::default();
    loop {
        let step = tokio::task::spawn_blocking(move || {
            let records = source.check(RECORDS_PER_STEP, &mut people, &mut counts)?;
            Ok::<_, ImportError>((source, people, counts, records))
        });
        let records;
        (source, people, counts, records) = step_result(step.await, path)?;
        let (read, total) = source.position();
        progress(ImportProgress { phase: ImportPhase::Checking, done: read, total, lines: counts.lines });
        if records == 0 {
            break;
        }
    }
    let content_info = source.content_info().map_err(|error| error.with_file(path))?;
    let people = people.fold();
    let FirstPassCounts { lines, events, persons, groups, mut ignored } = counts;
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
    Ok(CheckedFile { content_info, people, summary })
}

/// Reads the next chunk of `source`; one without records at its end. `lines` records were read before.
async fn next_chunk(
    mut source: ImportSource,
    now: i64,
    path: &Path,
    lines: u64,
    progress: &mut dyn FnMut(ImportProgress),
) -> Result<(ImportSource, Chunk), ImportError> {
    let mut chunk = Chunk::new(now);
    loop {
        let step = tokio::task::spawn_blocking(move || {
            let records = source.read_into(&mut chunk, RECORDS_PER_STEP)?;
            Ok::<_, ImportError>((source, chunk, records))
        });
        let records;
        (source, chunk, records) = step_result(step.await, path)?;
        let (read, total) = source.position();
        let lines = lines + chunk.records;
        progress(ImportProgress { phase: ImportPhase::Storing, done: read, total, lines });
        if records == 0 {
            return Ok((source, chunk));
        }
    }
}

/// The result of a blocking step, with the file's name in an error.
fn step_result<T>(
    step: Result<Result<T, ImportError>, tokio::task::JoinError>,
    path: &Path,
) -> Result<T, ImportError> {
    step.map_err(|e| ImportError::for_file(path, e.to_string()))?.map_err(|error| error.with_file(path))
}
