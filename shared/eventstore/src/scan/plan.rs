//! Scan planning: which runs of which segments are read, from the footers alone, and the memory check.
//!
//! Must stay true: every selected row is in a planned run; a scan that would exceed its memory is refused
//! before it reads anything, as far as the footers show.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use pennon_analytics::PersonRange;
use pennon_analytics::scan::{Micros, Seq};

use super::Scanner;
use super::compiled_request::{ColumnSource, CompiledRequest};
use super::delta::DeltaRows;
use super::load::{RunTask, Task};
use crate::error::EventStoreError;
use crate::manifest::{Manifest, SegmentEntry};
use crate::memory::{QueryMemory, values_bytes};
use crate::segments::reader::SegmentFile;

/// Segments that are opened at once.
const OPENED_AT_ONCE: usize = 16;

/// The tasks of a scan.
#[derive(Debug)]
pub(crate) struct ScanPlan {
    /// Names of all events, ascending.
    pub names: Vec<String>,
    pub tasks: Vec<Arc<Task>>,
}

impl ScanPlan {
    /// Rows of the planned runs, before clipping by time.
    pub(crate) fn rows(&self) -> u64 {
        let runs = self.tasks.iter().flat_map(|task| &task.runs);
        runs.map(|run| run.rows.len() as u64).sum()
    }
}

impl Scanner {
    /// Opens segments.
    pub(crate) async fn open_segments(
        &self,
        entries: &[SegmentEntry],
    ) -> Result<Vec<Arc<SegmentFile>>, EventStoreError> {
        // Collected, because a closure that is held while waiting keeps the compiler from seeing that this can be sent.
        let opened = entries.iter().map(|entry| self.segments.open(entry)).collect::<Vec<_>>();
        futures::stream::iter(opened).buffered(OPENED_AT_ONCE).try_collect().await
    }
}

/// The segments that may hold selected events.
pub(crate) fn requested_segments(manifest: &Manifest, requested: &CompiledRequest) -> Vec<SegmentEntry> {
    let request = &requested.request;
    let entries = manifest.segments.iter();
    entries.filter(|entry| entry.may_have(requested.names(), request.from, request.to)).cloned().collect()
}

/// Plans the runs of `files` that may have rows of the persons of `range`. The names are those of these runs, and `others`.
pub(crate) fn of<'a>(
    files: &'a [Arc<SegmentFile>],
    others: impl Iterator<Item = &'a str>,
    requested: &CompiledRequest,
    persons: PersonRange,
) -> ScanPlan {
    let mut names: BTreeSet<&str> = others.collect();
    for file in files {
        names.extend(file.footer.names.iter().filter(|name| requested.is_named(name)).map(String::as_str));
    }
    let names = names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let mut tasks = Vec::new();
    for file in files {
        let event = |name: &String| names.binary_search(name).ok();
        let events = file.footer.names.iter().map(event).collect::<Vec<_>>();
        let ranges = file.footer.ranges.iter().enumerate();
        for (group, range) in ranges.filter(|(_, range)| persons.overlaps(range.number, file.footer.bits)) {
            let mut runs = Vec::new();
            let mut end = 0;
            for (at, run) in (0..).zip(&range.runs) {
                let start = end;
                end += run.rows as usize;
                let Some(event) = events.get(run.name as usize).copied().flatten() else { continue };
                if let Some(clip) = clip((run.min_time, run.max_time), requested) {
                    runs.push(RunTask { event, run: at, rows: start..end, clip: clip.within });
                }
            }
            if !runs.is_empty() {
                tasks.push(Arc::new(Task { file: file.clone(), group, runs }));
            }
        }
    }
    ScanPlan { names, tasks }
}

/// The selected times of a run.
struct Clip {
    /// None when all rows are selected.
    within: Option<(Micros, Micros)>,
}

/// The selected times of a run with these bounds; none when no row is selected. A bound that excludes no row is
/// dropped, so that queries that differ only in it share cache entries.
fn clip((first, last): (Micros, Micros), requested: &CompiledRequest) -> Option<Clip> {
    let (from, to) = (requested.request.from, requested.request.to);
    if from > last || to < first {
        return None;
    }
    let from = if from <= first { Micros::MIN } else { from };
    let to = if to >= last { Micros::MAX } else { to };
    let within = ((from, to) != (Micros::MIN, Micros::MAX)).then_some((from, to));
    Some(Clip { within })
}

/// Checks and reserves the memory of the rows of a scan.
#[derive(Debug)]
pub(crate) struct ScanBudget {
    memory: QueryMemory,
    /// Bytes of one row, without the values of its columns.
    row: u64,
    columns: usize,
    /// Whether each row has an object with all its properties.
    objects: bool,
}

impl ScanBudget {
    pub(crate) fn new(memory: QueryMemory, requested: &CompiledRequest) -> ScanBudget {
        let columns = requested.columns.len();
        let seq = if requested.request.arrivals { size_of::<Seq>() } else { 0 };
        let row = size_of::<u32>() + size_of::<Micros>() + seq + columns * size_of::<u32>();
        let objects = requested.columns.iter().any(|(_, origin)| **origin == ColumnSource::AllProperties);
        ScanBudget { memory, row: row as u64, columns, objects }
    }

    /// Fails when so many rows do not fit, whatever their values.
    pub(crate) fn expect(&self, rows: u64) -> Result<(), EventStoreError> {
        if rows.saturating_mul(self.row) <= self.memory.left() {
            return Ok(());
        }
        let properties = if self.objects { "all".to_owned() } else { self.columns.to_string() };
        let most = self.memory.left() / self.row;
        Err(EventStoreError::TooLarge(format!(
            "The query reads {rows} events with {properties} properties; with so many it may read at most {most} \
             events. Narrow the dates or the events, or raise PENNON_EVENTS_MEMORY_MB."
        )))
    }

    /// The memory of rows that are not stored with the others of their person.
    pub(crate) fn bytes_of(&self, rows: &DeltaRows) -> u64 {
        let values = rows.columns.iter().map(values_bytes).sum::<u64>();
        (rows.events.len() as u64).saturating_mul(self.row).saturating_add(values)
    }
}
