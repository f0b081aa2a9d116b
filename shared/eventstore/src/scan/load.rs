//! Loads the selected rows of one person range of a segment, from the cache or the file.
//!
//! Must stay true: missing pieces are decoded once, even if two scans need them at the same time
//! (single-flight); decoding runs on blocking threads; a range is loaded completely, or the scan fails.

use std::ops::Range;
use std::sync::Arc;

use pennon_analytics::PersonRange;
use pennon_analytics::scan::{Column, Micros, Seq};
use pennon_core::function_name::inherit_function_name;
use pennon_core::request_metrics::inherit_metrics;
use uuid::Uuid;

use super::Scanner;
use super::compiled_request::{ColumnSource, CompiledRequest};
use super::decode::{MissingColumns, MissingNumbers};
use super::piece::{
    CachedPiece, PieceCache, PieceKey, PieceKind, RunColumns, SizedColumn, TimeBounds, WHOLE,
};
use crate::error::EventStoreError;
use crate::memory::QueryMemory;
use crate::segments::reader::SegmentFile;

/// A person range of a segment, and which of its runs to read.
#[derive(Debug)]
pub(crate) struct Task {
    pub file: Arc<SegmentFile>,
    pub group: usize,
    pub runs: Vec<RunTask>,
}

/// A run to read.
#[derive(Debug, Clone)]
pub(crate) struct RunTask {
    /// Index into the names of the scan.
    pub event: usize,
    /// Index into the runs of the range.
    pub run: u32,
    /// Its rows in the row group.
    pub rows: Range<usize>,
    /// The selected times, if not all its rows are within.
    pub clip: Option<TimeBounds>,
}

/// The selected rows of a range.
#[derive(Debug)]
pub(crate) struct LoadedRange {
    /// Ascending.
    pub persons: Arc<Vec<Uuid>>,
    /// The places of the persons whose rows were selected.
    pub places: Range<usize>,
    pub runs: Vec<LoadedRun>,
}

/// The selected rows of a run.
#[derive(Debug, Clone)]
pub(crate) struct LoadedRun {
    pub event: usize,
    pub core: RunColumns,
    /// If they were requested.
    pub seqs: Option<Arc<Vec<Seq>>>,
    /// In the order of [`CompiledRequest::columns`].
    pub columns: Vec<SizedColumn>,
}

/// Counters of a load.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoadStats {
    pub hits: u64,
    pub misses: u64,
    pub bytes_read: u64,
    pub rows_decoded: u64,
    /// Bytes of memory.
    pub bytes_held: u64,
}

impl LoadStats {
    pub(crate) fn and(self, other: LoadStats) -> LoadStats {
        LoadStats {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            bytes_read: self.bytes_read + other.bytes_read,
            rows_decoded: self.rows_decoded + other.rows_decoded,
            bytes_held: self.bytes_held + other.bytes_held,
        }
    }
}

impl LoadedRange {
    /// The rows of the persons of `range`.
    pub(crate) fn within(self, range: PersonRange) -> LoadedRange {
        let places = range.places(&self.persons);
        if places == (0..self.persons.len()) {
            return self;
        }
        let runs = self.runs.into_iter().map(|run| run.of_codes(&places));
        let runs = runs.filter(|run| !run.core.codes.is_empty()).collect();
        LoadedRange { persons: self.persons, places, runs }
    }

    /// Bytes of memory of its rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.runs.iter().map(LoadedRun::bytes).sum()
    }
}

impl LoadedRun {
    /// The rows of the persons with these codes.
    fn of_codes(self, persons: &Range<usize>) -> LoadedRun {
        let place = |bound: usize| self.core.codes.partition_point(|code| (*code as usize) < bound);
        let (from, rows) = (place(persons.start), place(persons.end) - place(persons.start));
        let core = self.core.slice(from, rows);
        let column = |SizedColumn { column, value_bytes }: SizedColumn| {
            let codes = column.codes.slice(from, rows);
            SizedColumn { column: Column { codes, values: column.values }, value_bytes }
        };
        LoadedRun {
            event: self.event,
            core,
            seqs: self.seqs.map(|seqs| Arc::new(seqs[from..from + rows].to_vec())),
            columns: self.columns.into_iter().map(column).collect(),
        }
    }

    fn bytes(&self) -> u64 {
        let seqs = self.seqs.as_ref().map_or(0, |seqs| (seqs.len() * size_of::<Seq>()) as u64);
        self.core.bytes() + seqs + self.columns.iter().map(SizedColumn::bytes).sum::<u64>()
    }
}

/// State of a part of a run: clipped already, whole, or missing.
#[derive(Debug, Clone)]
pub(super) enum Slot<T> {
    Ready(T),
    Whole(T),
    Missing,
}

impl<T> Slot<T> {
    fn is_ready(&self) -> bool {
        matches!(self, Slot::Ready(_))
    }

    fn is_missing(&self) -> bool {
        matches!(self, Slot::Missing)
    }

    fn ready(self) -> Result<T, EventStoreError> {
        match self {
            Slot::Ready(ready) => Ok(ready),
            _ => Err(EventStoreError::corrupt("a part of a range was not decoded")),
        }
    }
}

#[derive(Debug)]
pub(super) struct RunState {
    pub core: Slot<RunColumns>,
    /// None if they are not requested.
    pub seqs: Option<Slot<Arc<Vec<Seq>>>>,
    pub columns: Vec<Slot<SizedColumn>>,
}

#[derive(Debug)]
pub(super) struct TaskState {
    pub persons: Option<Arc<Vec<Uuid>>>,
    pub runs: Vec<RunState>,
    pub stats: LoadStats,
}

impl Scanner {
    /// Loads the rows of a task, with their arrival order if `seqs`.
    pub(crate) async fn load(
        &self,
        task: &Arc<Task>,
        requested: &Arc<CompiledRequest>,
        seqs: bool,
        memory: &QueryMemory,
    ) -> Result<(LoadedRange, LoadStats), EventStoreError> {
        let mut found = TaskState::look(&self.pieces, task, requested, seqs);
        if !found.is_complete() {
            // Only one scan at a time decodes a range; the others find the result in the cache.
            let decoding = task.file.decoding[task.group].clone().lock_owned().await;
            found = TaskState::look(&self.pieces, task, requested, seqs);
            if !found.is_complete() {
                let permit = self.decode_budget.acquire(found.decoding_bytes(task, requested)).await;
                let (scanner, task, requested, memory) =
                    (self.clone(), task.clone(), requested.clone(), memory.clone());
                // A started decode continues when the query is cancelled; until it ends, no other scan starts
                // the same one or gets its memory.
                let decoded = tokio::spawn(inherit_function_name(inherit_metrics(async move {
                    let _until_done = (decoding, permit);
                    scanner.decode(found, &task, &requested, &memory).await
                })));
                found = decoded.await??;
            }
        }
        let stats = found.stats;
        Ok((found.loaded(task)?, stats))
    }
}

impl TaskState {
    fn look(pieces: &PieceCache, task: &Task, requested: &CompiledRequest, seqs: bool) -> TaskState {
        let mut stats = LoadStats::default();
        let persons = match pieces.get(&task.key(0, PieceKind::Persons, WHOLE)) {
            Some(CachedPiece::Persons(persons)) => Some(persons),
            _ => None,
        };
        let runs = task.runs.iter().map(|run| {
            let core = look(pieces, task, run, PieceKind::RunColumns, &mut stats);
            let seqs = seqs.then(|| look(pieces, task, run, PieceKind::Seqs, &mut stats));
            let columns = requested.columns.iter();
            let columns = columns
                .map(|(_, origin)| look(pieces, task, run, PieceKind::Column(origin.clone()), &mut stats));
            let found = RunState { columns: columns.collect(), core, seqs };
            found.with_rows_to_clip(pieces, task, run)
        });
        let runs = runs.collect();
        TaskState { persons, runs, stats }
    }

    fn is_complete(&self) -> bool {
        self.persons.is_some() && self.runs.iter().all(RunState::is_ready)
    }

    pub(super) fn missing_numbers(&self) -> MissingNumbers {
        let mut missing = MissingNumbers { runs: Vec::new(), core: false, seqs: false };
        for (at, run) in self.runs.iter().enumerate() {
            let seqs = run.seqs.as_ref().is_some_and(Slot::is_missing);
            if run.core.is_missing() || seqs {
                missing.runs.push(at);
                missing.core |= run.core.is_missing();
                missing.seqs |= seqs;
            }
        }
        missing
    }

    /// The missing columns: the one of all properties, or the others.
    pub(super) fn missing_columns(
        &self,
        requested: &CompiledRequest,
        all_properties: bool,
    ) -> MissingColumns {
        let columns = (0..requested.columns.len()).filter(|column| {
            (*requested.columns[*column].1 == ColumnSource::AllProperties) == all_properties
        });
        let missing = |column: &usize| self.runs.iter().any(|run| run.columns[*column].is_missing());
        let columns = columns.filter(missing).collect::<Vec<_>>();
        let lacks = |run: &RunState| columns.iter().any(|column| run.columns[*column].is_missing());
        let runs = self.runs.iter().enumerate().filter(|(_, run)| lacks(run)).map(|(at, _)| at).collect();
        MissingColumns { runs, columns }
    }

    fn loaded(self, task: &Task) -> Result<LoadedRange, EventStoreError> {
        let persons = self.persons.ok_or_else(|| EventStoreError::corrupt("a range without persons"))?;
        let runs = task.runs.iter().zip(self.runs).map(|(task, run)| {
            Ok(LoadedRun {
                event: task.event,
                core: run.core.ready()?,
                seqs: run.seqs.map(Slot::ready).transpose()?,
                columns: run.columns.into_iter().map(Slot::ready).collect::<Result<_, _>>()?,
            })
        });
        let runs = runs.collect::<Result<Vec<_>, EventStoreError>>()?;
        let runs = runs.into_iter().filter(|run| !run.core.codes.is_empty()).collect();
        Ok(LoadedRange { places: 0..persons.len(), persons, runs })
    }
}

impl RunState {
    pub(super) fn is_ready(&self) -> bool {
        self.core.is_ready()
            && self.seqs.as_ref().is_none_or(Slot::is_ready)
            && self.columns.iter().all(Slot::is_ready)
    }

    /// Clipping needs the times of all rows.
    fn with_rows_to_clip(mut self, pieces: &PieceCache, task: &Task, run: &RunTask) -> RunState {
        if run.clip.is_some() && self.core.is_ready() && !self.is_ready() {
            let whole = pieces.get(&task.key(run.run, PieceKind::RunColumns, WHOLE)).and_then(RunColumns::of);
            self.core = whole.map_or(Slot::Missing, Slot::Whole);
        }
        self
    }
}

impl Task {
    /// The number of its range, and the bits of the segment.
    pub(crate) fn place(&self) -> (u64, u32) {
        let footer = &self.file.footer;
        (footer.ranges[self.group].number, footer.bits)
    }

    /// The first and last time of its runs.
    pub(crate) fn times(&self) -> (Micros, Micros) {
        let runs = &self.file.footer.ranges[self.group].runs;
        let runs = || self.runs.iter().map(|run| &runs[run.run as usize]);
        let first = runs().map(|run| run.min_time).min().unwrap_or(Micros::MIN);
        (first, runs().map(|run| run.max_time).max().unwrap_or(Micros::MAX))
    }

    /// The rows of some of its runs.
    pub(super) fn rows_of(&self, runs: &[usize]) -> Vec<Range<usize>> {
        runs.iter().map(|run| self.runs[*run].rows.clone()).collect()
    }

    pub(super) fn key(&self, run: u32, part: PieceKind, clip: TimeBounds) -> PieceKey {
        PieceKey { object: self.file.object().clone(), range: self.group as u32, run, part, clip }
    }
}

/// Looks up a part of a run in the cache.
fn look<T: FromPiece>(
    pieces: &PieceCache,
    task: &Task,
    run: &RunTask,
    part: PieceKind,
    stats: &mut LoadStats,
) -> Slot<T> {
    let get = |part: PieceKind, clip| pieces.get(&task.key(run.run, part, clip)).and_then(T::of);
    let slot = match run.clip {
        None => get(part, WHOLE).map(Slot::Ready),
        Some(clip) => get(part.clone(), clip).map(Slot::Ready).or_else(|| get(part, WHOLE).map(Slot::Whole)),
    };
    match slot {
        Some(slot) => {
            stats.hits += 1;
            slot
        }
        None => {
            stats.misses += 1;
            Slot::Missing
        }
    }
}

/// Conversion from a cached piece.
trait FromPiece: Sized {
    fn of(piece: CachedPiece) -> Option<Self>;
}

impl FromPiece for RunColumns {
    fn of(piece: CachedPiece) -> Option<RunColumns> {
        if let CachedPiece::RunColumns(core) = piece { Some(core) } else { None }
    }
}

impl FromPiece for Arc<Vec<Seq>> {
    fn of(piece: CachedPiece) -> Option<Self> {
        if let CachedPiece::Seqs(seqs) = piece { Some(seqs) } else { None }
    }
}

impl FromPiece for SizedColumn {
    fn of(piece: CachedPiece) -> Option<SizedColumn> {
        if let CachedPiece::Column(column) = piece { Some(column) } else { None }
    }
}
