//! Decodes the missing pieces of a person range from its file.
//!
//! Decoded data within the times of the query is cached. Rows of other times are cached only when a range is
//! decoded again: the first query of a process does not pay for others that may never come. Must stay true:
//! only the pages of missing rows and columns are read; a damaged file is an error that names it.

use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::arrow_reader::RowSelection;
use pennon_analytics::scan::{Column, MISSING, Micros};
use uuid::Uuid;

use super::compiled_request::{ColumnSource, CompiledRequest};
use super::load::{RunState, RunTask, Slot, Task, TaskState};
use super::piece::{CachedPiece, PieceCache, PieceKind, RunColumns, SizedColumn, TimeBounds, WHOLE};
use super::property_objects::rows_at_once;
use super::row_selection::RowMask;
use super::{Scanner, columns};
use crate::error::EventStoreError;
use crate::memory::{MemoryLease, Purpose, QueryMemory};
use crate::segments::number_columns::{ColumnBytes, NumericColumn, NumericColumnReader, bytes_of};
use crate::segments::parquet_io::{DecodedColumns, decode_in_turn};
use crate::segments::property_values;

/// Bytes of a row of all numeric columns during decoding.
const NUMBERS_ROW: usize = 48;

impl Scanner {
    /// Decodes the missing pieces. Its values are reserved from `memory` meanwhile.
    pub(super) async fn decode(
        &self,
        mut found: TaskState,
        task: &Arc<Task>,
        requested: &Arc<CompiledRequest>,
        memory: &QueryMemory,
    ) -> Result<TaskState, EventStoreError> {
        let numbers = found.missing_numbers();
        let columns = found.missing_columns(requested, false);
        // Independent reads: one after the other, each would cost the latency of the object store. All are awaited even if one
        // fails, so that no thread decodes for a task that has ended.
        let (persons, parts, decoded) = futures::join!(
            read_persons(task, found.persons.is_none()),
            read_numbers(task, &numbers),
            read_columns(task, &columns, requested),
        );
        let (persons, parts, decoded) = (persons?, parts?, decoded?);
        found.stats.bytes_read += parts.as_ref().map_or(0, ColumnBytes::bytes);
        found.stats.bytes_read += decoded.as_ref().map_or(0, |decoded| decoded.bytes_read);
        let keeps_whole = self.keeps_whole(task);
        let needs_objects = !found.missing_columns(requested, true).columns.is_empty();
        let of = task.clone();
        let mut work = DecodeTask {
            task: of,
            requested: requested.clone(),
            numbers,
            columns,
            persons,
            parts,
            decoded,
            keeps_whole,
        };
        let (pieces, mut taken) = (self.pieces.clone(), memory.lease(Purpose::Scan));
        let done = decode_in_turn(move || {
            let mut found = found;
            work.complete(&mut found, &mut taken, &pieces)?;
            if !needs_objects {
                clip(&work.task, &work.requested, &mut found, &pieces);
            }
            Ok::<_, EventStoreError>((found, taken))
        });
        let (found, taken) = done.await??;
        if !needs_objects {
            return Ok(found);
        }
        // Reserved until they are counted as loaded.
        let (found, _taken) = Box::pin(self.add_objects(found, (task, requested), taken)).await?;
        let (pieces, task, requested) = (self.pieces.clone(), task.clone(), requested.clone());
        let done = tokio::task::spawn_blocking(move || {
            let mut found = found;
            clip(&task, &requested, &mut found, &pieces);
            found
        });
        Ok(done.await?)
    }

    /// The persons of the range of a task, from the cache or the file.
    pub(super) async fn persons_of(&self, task: &Arc<Task>) -> Result<Arc<Vec<Uuid>>, EventStoreError> {
        let key = task.key(0, PieceKind::Persons, WHOLE);
        if let Some(CachedPiece::Persons(persons)) = self.pieces.get(&key) {
            return Ok(persons);
        }
        let bytes = task.file.persons(task.group).await?;
        let file = task.file.clone();
        let decoded = decode_in_turn(move || persons(&bytes).map_err(|error| file.named(error)));
        let persons = Arc::new(decoded.await??);
        self.pieces.put(key, CachedPiece::Persons(persons.clone()));
        Ok(persons)
    }

    /// Whether rows of other times are cached: from the second decode of the range on.
    fn keeps_whole(&self, task: &Task) -> bool {
        let (pieces, requested) = (&self.pieces, task.key(0, PieceKind::Requested, WHOLE));
        let again = pieces.get(&requested).is_some();
        if !again && task.runs.iter().any(|run| run.clip.is_some()) {
            pieces.put(requested, CachedPiece::Requested);
        }
        again
    }
}

/// Reads the persons of a range, if they are missing.
async fn read_persons(task: &Task, are_missing: bool) -> Result<Option<Bytes>, EventStoreError> {
    if !are_missing {
        return Ok(None);
    }
    task.file.persons(task.group).await.map(Some)
}

/// Reads the pages of the missing numeric columns.
async fn read_numbers(task: &Task, missing: &MissingNumbers) -> Result<Option<ColumnBytes>, EventStoreError> {
    if missing.runs.is_empty() {
        return Ok(None);
    }
    let leaves = missing.columns(task.file.footer.ranges[task.group].ties);
    let ranges = bytes_of(task.file.metadata(), task.group, &leaves, &task.rows_of(&missing.runs))?;
    let read = task.file.ranges(&ranges).await?;
    Ok(Some(ColumnBytes::new(&ranges, read)))
}

/// Reads and decodes the other missing columns.
async fn read_columns(
    task: &Task,
    missing: &MissingColumns,
    requested: &CompiledRequest,
) -> Result<Option<DecodedColumns>, EventStoreError> {
    if missing.runs.is_empty() {
        return Ok(None);
    }
    let origins = missing.columns.iter().map(|column| requested.columns[*column].1.as_ref());
    let places = columns::projection(&task.file.footer, origins);
    let rows = task.rows_of(&missing.runs);
    let selection = RowSelection::from_consecutive_ranges(rows.into_iter(), task.file.rows(task.group));
    task.file.decode_in_turn(task.group, Some(selection), &places).await.map(Some)
}

/// Runs with missing numeric columns.
#[derive(Debug)]
pub(super) struct MissingNumbers {
    /// Indices into the task's runs.
    pub runs: Vec<usize>,
    pub core: bool,
    pub seqs: bool,
}

impl TaskState {
    /// Approximate memory for decoding the missing pieces, from the file metadata.
    pub(super) fn decoding_bytes(&self, task: &Task, requested: &CompiledRequest) -> u64 {
        let file = &task.file;
        let rows_of = |runs: &[usize]| runs.iter().map(|run| task.runs[*run].rows.len()).sum::<usize>();
        let numbers = (rows_of(&self.missing_numbers().runs) * NUMBERS_ROW) as u64;
        let columns = self.missing_columns(requested, false);
        let origins = columns.columns.iter().map(|column| requested.columns[*column].1.as_ref());
        let places = columns::projection(&file.footer, origins);
        let mut bytes = numbers;
        if !places.is_empty() {
            bytes += file.decoding_bytes(task.group, &places, rows_of(&columns.runs));
        }
        let objects = self.missing_columns(requested, true);
        if !objects.runs.is_empty() {
            let places = property_values::all_places(&file.footer);
            let rows = rows_of(&objects.runs).min(rows_at_once(places.len()));
            bytes += file.decoding_bytes(task.group, &places, rows);
        }
        bytes
    }
}

impl MissingNumbers {
    fn columns(&self, ties: bool) -> Vec<NumericColumn> {
        let mut columns = Vec::new();
        if self.core {
            columns.extend([NumericColumn::PersonCode, NumericColumn::Time]);
            columns.extend(ties.then_some(NumericColumn::Tie));
        }
        if self.seqs {
            columns.extend([NumericColumn::SeqHigh, NumericColumn::SeqLow]);
        }
        columns
    }
}

/// Missing columns.
#[derive(Debug)]
pub(super) struct MissingColumns {
    /// Indices into the task's runs.
    pub runs: Vec<usize>,
    /// Indices into the requested columns.
    pub columns: Vec<usize>,
}

/// The decoded data.
struct DecodeTask {
    task: Arc<Task>,
    requested: Arc<CompiledRequest>,
    numbers: MissingNumbers,
    columns: MissingColumns,
    persons: Option<Bytes>,
    parts: Option<ColumnBytes>,
    decoded: Option<DecodedColumns>,
    /// See [`Scanner::keeps_whole`].
    keeps_whole: bool,
}

impl DecodeTask {
    fn complete(
        &mut self,
        found: &mut TaskState,
        taken: &mut MemoryLease,
        pieces: &PieceCache,
    ) -> Result<(), EventStoreError> {
        let file = self.task.file.clone();
        let named = |error| file.named(error);
        if let Some(bytes) = self.persons.take() {
            let persons = Arc::new(persons(&bytes).map_err(named)?);
            pieces.put(self.task.key(0, PieceKind::Persons, WHOLE), CachedPiece::Persons(persons.clone()));
            found.persons = Some(persons);
        }
        self.add_numbers(found, pieces).map_err(named)?;
        self.add_columns(found, taken, pieces).map_err(named)
    }

    /// Caches a decoded whole run, if that is useful.
    fn keep(
        &self,
        task: &RunTask,
        part: PieceKind,
        piece: impl FnOnce() -> CachedPiece,
        pieces: &PieceCache,
    ) {
        if self.requested.caches_rows && (task.clip.is_none() || self.keeps_whole) {
            pieces.put(self.task.key(task.run, part, WHOLE), piece());
        }
    }

    /// A decoded whole run: ready if the whole run is requested.
    fn slot<T>(task: &RunTask, whole: T) -> Slot<T> {
        if task.clip.is_some() { Slot::Whole(whole) } else { Slot::Ready(whole) }
    }

    fn add_numbers(&mut self, found: &mut TaskState, pieces: &PieceCache) -> Result<(), EventStoreError> {
        let Some(parts) = self.parts.take() else { return Ok(()) };
        let rows = self.numbers.runs.iter().map(|run| self.task.runs[*run].rows.clone()).collect::<Vec<_>>();
        let reader = NumericColumnReader {
            metadata: self.task.file.metadata(),
            parts: Arc::new(parts),
            group: self.task.group,
            rows: &rows,
        };
        if self.numbers.core {
            let persons = found.persons.as_ref().map_or(0, |persons| persons.len());
            let (codes, times) = (reader.codes(persons)?, reader.times()?);
            let ties = match self.task.file.footer.ranges[self.task.group].ties {
                true => reader.ties()?.into_iter().map(Some).collect(),
                false => vec![None; rows.len()],
            };
            let cores = codes.into_iter().zip(times).zip(ties);
            for (run, ((codes, times), ties)) in self.numbers.runs.iter().zip(cores) {
                check_order(&codes, &times)?;
                found.stats.rows_decoded += codes.len() as u64;
                let (core, task) = (RunColumns { codes, times, ties }, &self.task.runs[*run]);
                self.keep(task, PieceKind::RunColumns, || CachedPiece::RunColumns(core.clone()), pieces);
                found.runs[*run].core = Self::slot(task, core);
            }
        }
        if self.numbers.seqs {
            for (run, seqs) in self.numbers.runs.iter().zip(reader.seqs()?) {
                let (seqs, task) = (Arc::new(seqs), &self.task.runs[*run]);
                self.keep(task, PieceKind::Seqs, || CachedPiece::Seqs(seqs.clone()), pieces);
                found.runs[*run].seqs = Some(Self::slot(task, seqs));
            }
        }
        Ok(())
    }

    fn add_columns(
        &mut self,
        found: &mut TaskState,
        taken: &mut MemoryLease,
        pieces: &PieceCache,
    ) -> Result<(), EventStoreError> {
        let Some(decoded) = self.decoded.take() else { return Ok(()) };
        let rows = self.columns.runs.iter().map(|run| self.task.runs[*run].rows.len()).collect::<Vec<_>>();
        let origins: Vec<Arc<ColumnSource>> =
            self.columns.columns.iter().map(|column| self.requested.columns[*column].1.clone()).collect();
        let batches = &decoded.batches;
        let of_runs = if batches.is_empty() {
            // No column of the segment has such values.
            let missing = |rows: &usize| Column::new(vec![MISSING; *rows], Vec::new());
            rows.iter().map(|rows| origins.iter().map(|_| missing(rows)).collect()).collect()
        } else {
            columns::of_runs(batches, &self.task.file.footer, &rows, &origins, taken)?
        };
        for (run, columns) in self.columns.runs.iter().zip(of_runs) {
            let task = &self.task.runs[*run];
            for (column, decoded) in self.columns.columns.iter().zip(columns) {
                let column_of = SizedColumn::new(decoded);
                let part = PieceKind::Column(self.requested.columns[*column].1.clone());
                self.keep(task, part, || CachedPiece::Column(column_of.clone()), pieces);
                found.runs[*run].columns[*column] = Self::slot(task, column_of);
            }
        }
        Ok(())
    }
}

/// Drops rows of other times.
fn clip(task: &Task, requested: &CompiledRequest, found: &mut TaskState, pieces: &PieceCache) {
    for (of, run) in task.runs.iter().zip(&mut found.runs) {
        if let Some(clip) = of.clip
            && !run.is_ready()
        {
            let put = |part: PieceKind, piece: CachedPiece| pieces.put(task.key(of.run, part, clip), piece);
            clip_run(run, requested, clip, put);
        }
    }
}

fn clip_run(
    run: &mut RunState,
    requested: &CompiledRequest,
    clip: TimeBounds,
    put: impl Fn(PieceKind, CachedPiece),
) {
    let Slot::Whole(whole) = &run.core else { return };
    let whole = whole.clone();
    let keep = RowMask::of(&whole.times, |time| clip.0 <= time && time <= clip.1);
    let core = keep.core(&whole);
    put(PieceKind::RunColumns, CachedPiece::RunColumns(core.clone()));
    run.core = Slot::Ready(core);
    if let Some(Slot::Whole(seqs)) = &run.seqs {
        let seqs = keep.seqs(seqs);
        put(PieceKind::Seqs, CachedPiece::Seqs(seqs.clone()));
        run.seqs = Some(Slot::Ready(seqs));
    }
    for (slot, (_, origin)) in run.columns.iter_mut().zip(&requested.columns) {
        if let Slot::Whole(column) = slot {
            let column = keep.column(column);
            put(PieceKind::Column(origin.clone()), CachedPiece::Column(column.clone()));
            *slot = Slot::Ready(column);
        }
    }
}

fn check_order(codes: &[u32], times: &[Micros]) -> Result<(), EventStoreError> {
    // Branch-free and over plain slices, so that the compiler vectorizes it; it does not with `windows`.
    let next = codes.iter().skip(1).zip(times.iter().skip(1));
    let pairs = codes.iter().zip(times).zip(next);
    let ordered = pairs.fold(true, |ordered, ((code, time), (next_code, next_time))| {
        ordered & ((code < next_code) | (time <= next_time))
    });
    if ordered { Ok(()) } else { Err(EventStoreError::corrupt("times are out of order")) }
}

fn persons(bytes: &[u8]) -> Result<Vec<Uuid>, EventStoreError> {
    let persons = bytes.as_chunks::<16>().0.iter().map(|id| Uuid::from_bytes(*id)).collect::<Vec<_>>();
    if persons.is_sorted_by(|a, b| a.as_u128() < b.as_u128()) {
        Ok(persons)
    } else {
        Err(EventStoreError::corrupt("persons of a range are out of order"))
    }
}
