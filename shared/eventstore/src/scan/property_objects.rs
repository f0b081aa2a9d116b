//! Builds JSON objects with all properties of rows: the most memory-intensive column of a query.
//!
//! Must stay true: a row outside the query has no object, so that narrower dates take less memory; rows are
//! decoded in batches, and the memory of their objects is reserved before they are built, as far as the columns
//! show.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use parquet::arrow::arrow_reader::RowSelection;
use pennon_analytics::scan::{Column, MISSING};
use serde_json::{Map, Value};

use super::Scanner;
use super::compiled_request::CompiledRequest;
use super::load::{Slot, Task, TaskState};
use super::piece::{CachedPiece, PieceKind, SizedColumn, WHOLE};
use crate::error::EventStoreError;
use crate::memory::{MemoryLease, field_bytes, value_bytes};
use crate::segments::reader::SegmentFile;
use crate::segments::{PROPERTY, property_values};

/// Rows times columns of a batch.
const CELLS: usize = 4 << 20;
/// Minimum and maximum rows of a batch.
const ROWS: (usize, usize) = (1024, 65_536);

/// The objects of several runs while they are built, one run after the other.
struct PropertyObjects {
    file: Arc<SegmentFile>,
    runs: Vec<RunObjects>,
    /// The run of the next row, and its rows so far.
    next: (usize, usize),
    taken: MemoryLease,
}

/// The objects of a run.
struct RunObjects {
    rows: usize,
    /// Selected rows, if not all are.
    requested: Option<Vec<bool>>,
    codes: Vec<u32>,
    values: Vec<Value>,
    value_bytes: u64,
    /// The code of the empty object.
    empty: Option<u32>,
}

/// Rows of a batch with so many columns.
pub(super) fn rows_at_once(columns: usize) -> usize {
    (CELLS / columns.max(1)).clamp(ROWS.0, ROWS.1)
}

impl Scanner {
    /// Builds the missing objects. The times of the rows must be loaded.
    pub(super) async fn add_objects(
        &self,
        mut found: TaskState,
        (task, requested): (&Arc<Task>, &Arc<CompiledRequest>),
        taken: MemoryLease,
    ) -> Result<(TaskState, MemoryLease), EventStoreError> {
        let missing = found.missing_columns(requested, true);
        let Some(column) = missing.columns.first().copied() else { return Ok((found, taken)) };
        let (objects, selection) = PropertyObjects::of(&found, task, &missing.runs, taken);
        let places = property_values::all_places(&task.file.footer);
        let (objects, bytes_read) = if places.is_empty() {
            (objects.without_properties(), 0)
        } else {
            let at_once = rows_at_once(places.len());
            let place = (task.group, Some(selection));
            let read = task.file.decode_by(place, &places, at_once, objects, PropertyObjects::add);
            read.await.map_err(|error| task.file.named(error))?
        };
        found.stats.bytes_read += bytes_read;
        let (columns, taken) = objects.columns().map_err(|error| task.file.named(error))?;
        for (run, objects) in missing.runs.iter().zip(columns) {
            let (of, slot) = (&task.runs[*run], &mut found.runs[*run].columns[column]);
            *slot = if of.clip.is_some() {
                Slot::Whole(objects)
            } else {
                let part = PieceKind::Column(requested.columns[column].1.clone());
                self.pieces.put(task.key(of.run, part, WHOLE), CachedPiece::Column(objects.clone()));
                Slot::Ready(objects)
            };
        }
        Ok((found, taken))
    }
}

impl PropertyObjects {
    /// Starts the objects of these runs of the task. Also returns their rows.
    fn of(
        found: &TaskState,
        task: &Task,
        runs: &[usize],
        taken: MemoryLease,
    ) -> (PropertyObjects, RowSelection) {
        let rows = runs.iter().map(|run| task.runs[*run].rows.clone());
        let selection = RowSelection::from_consecutive_ranges(rows, task.file.rows(task.group));
        let of_run = |run: &usize| {
            let requested = match (&found.runs[*run].core, task.runs[*run].clip) {
                (Slot::Whole(core), Some((first, last))) => {
                    Some(core.times.iter().map(|time| (first..=last).contains(time)).collect())
                }
                _ => None,
            };
            RunObjects::new(task.runs[*run].rows.len(), requested)
        };
        let runs = runs.iter().map(of_run).collect();
        (PropertyObjects { file: task.file.clone(), runs, next: (0, 0), taken }, selection)
    }

    /// Adds the rows of a batch.
    fn add(&mut self, batch: RecordBatch) -> Result<(), EventStoreError> {
        let (mut spans, mut rows) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < batch.num_rows() {
            let (run, done) = self.next;
            let of_run = self.runs.get(run).ok_or_else(other_length)?;
            let more = (of_run.rows - done).min(batch.num_rows() - at);
            rows.extend((at..at + more).filter(|row| of_run.wants(done + row - at)));
            spans.push((run, at..at + more));
            at += more;
            self.next = if done + more == of_run.rows { (run + 1, 0) } else { (run, done + more) };
        }
        let before = self.taken.bytes();
        self.taken.add(least_bytes(&self.file, &batch, rows.len()))?;
        let overflow = property_values::overflow(&batch)?;
        let objects = property_values::objects(&batch, &self.file.footer, &overflow, &rows)?;
        let mut objects = rows.iter().copied().zip(objects).peekable();
        let mut bytes = 0;
        for (run, rows) in spans {
            bytes += self.runs[run].extend(rows, &mut objects);
        }
        self.taken.set(before + bytes)
    }

    /// Adds empty objects for all rows, if the file has no properties.
    fn without_properties(mut self) -> PropertyObjects {
        for run in &mut self.runs {
            let requested = (0..run.rows).filter(|row| run.wants(*row)).collect::<Vec<_>>();
            let none = requested.into_iter().map(|row| (row, Map::new()));
            run.extend(0..run.rows, &mut none.peekable());
        }
        self.next = (self.runs.len(), 0);
        self
    }

    fn columns(self) -> Result<(Vec<SizedColumn>, MemoryLease), EventStoreError> {
        if self.next != (self.runs.len(), 0) {
            return Err(other_length());
        }
        let columns = self.runs.into_iter().map(|run| SizedColumn {
            column: Column::new(run.codes, run.values),
            value_bytes: run.value_bytes,
        });
        Ok((columns.collect(), self.taken))
    }
}

impl RunObjects {
    fn new(rows: usize, requested: Option<Vec<bool>>) -> RunObjects {
        let codes = Vec::with_capacity(rows);
        RunObjects { rows, requested, codes, values: Vec::new(), value_bytes: 0, empty: None }
    }

    fn wants(&self, row: usize) -> bool {
        self.requested.as_ref().is_none_or(|requested| requested.get(row).is_some_and(|is| *is))
    }

    /// Adds `rows`; `objects` are those of the selected ones. Returns their bytes.
    fn extend(
        &mut self,
        rows: Range<usize>,
        objects: &mut Peekable<impl Iterator<Item = (usize, Map<String, Value>)>>,
    ) -> u64 {
        let mut bytes = 0;
        for row in rows {
            let Some((_, object)) = objects.next_if(|(of, _)| *of == row) else {
                self.codes.push(MISSING);
                continue;
            };
            let is_empty = object.is_empty();
            if let Some(code) = self.empty.filter(|_| is_empty) {
                self.codes.push(code);
                continue;
            }
            let code = self.values.len() as u32;
            self.codes.push(code);
            self.empty = self.empty.or(is_empty.then_some(code));
            let object = Value::Object(object);
            bytes += value_bytes(&object);
            self.values.push(object);
        }
        self.value_bytes += bytes;
        bytes
    }
}

/// Lower bound of the bytes of the objects of so many rows, from the number of values in the columns.
fn least_bytes(file: &SegmentFile, batch: &RecordBatch, rows: usize) -> u64 {
    let others = batch.num_rows() - rows;
    let cells = |key: &str| {
        let column = batch.column_by_name(&format!("{PROPERTY}{key}"));
        column.map_or(0, |column| (column.len() - column.null_count()).saturating_sub(others))
    };
    let field = |key: &str| field_bytes(key.len()) + size_of::<Value>() as u64;
    file.footer.columns.iter().map(|column| cells(&column.key) as u64 * field(&column.key)).sum()
}

fn other_length() -> EventStoreError {
    EventStoreError::corrupt("columns of different lengths")
}
