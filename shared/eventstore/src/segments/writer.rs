//! Writes a segment, one person range after the other.
//!
//! [`SegmentWriter::new`] takes the property columns and the number of person id bits that select the range.
//! Then [`SegmentWriter::write`] takes the rows of each non-empty range, in ascending order, as one
//! [`RecordBatch`] with the columns of [`SegmentWriter::schema`] (found by name; others are ignored, so that
//! the batch of another segment can be passed on), sorted by (event, person, time, seq). It adds `person_code`
//! and `tie`, splits uuids ([`crate::segments::uuids::uuid_columns`]), and collects the runs, the persons and
//! the keys of `properties`; only the encoded output stays in memory. [`SegmentWriter::finish`] returns the
//! files and the data for the manifest.
//!
//! Must stay true: unsorted rows and rows of another range are refused; the files depend on nothing but the
//! rows and what they replace. The public interface is [`SegmentWriter`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, TimestampMicrosecondType, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use pennon_analytics::scan::Micros;
use uuid::Uuid;

use super::event_runs::{Run, RunLayout, SortColumns};
use super::overflow_keys::OverflowKeys;
use super::property_columns::{PropertyColumn, PropertyColumnKind};
use super::reader::ids;
use super::{FOOTER, Footer, Range, RunEntry, schema};
use crate::error::EventStoreError;
use crate::formats;
use crate::manifest::SegmentEntry;
use crate::segments::uuids::uuid_columns::{UUID, UUID_SOURCE, UuidColumns};
use crate::segments::uuids::uuid_index;

/// What the new segment replaces.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplacedInputs {
    pub blocks: Vec<String>,
    pub segments: Vec<String>,
}

/// The number of the person range, of `2^bits`.
pub(crate) fn range_of(person: Uuid, bits: u32) -> u64 {
    if bits == 0 { 0 } else { person.as_u64_pair().0 >> (64 - bits) }
}

/// Most bits that select a range.
pub(crate) const RANGE_BITS_MAX: u32 = 16;

/// Number of person id bits that select the range, for so many rows.
pub(crate) fn range_bits(rows: usize, rows_per_range: usize) -> u32 {
    rows.div_ceil(rows_per_range).max(1).next_power_of_two().trailing_zeros().min(RANGE_BITS_MAX)
}

/// The files of a segment, and the data for the manifest.
#[derive(Debug)]
pub(crate) struct WrittenSegment {
    /// The Parquet file.
    pub segment: Bytes,
    /// The persons of its ranges.
    pub persons: Bytes,
    /// The uuid index, and the number of its hashes.
    pub uuids: Bytes,
    pub hashed: u64,
    pub rows: u64,
    pub min_time: Micros,
    pub max_time: Micros,
    /// Names of its events; none when there are too many to list.
    pub events: Option<Vec<String>>,
}

/// A segment under construction.
pub(crate) struct SegmentWriter {
    columns: Vec<(String, PropertyColumnKind)>,
    bits: u32,
    input_schema: SchemaRef,
    written: SchemaRef,
    writer: ArrowWriter<Vec<u8>>,
    /// Indices in order of appearance; [`Footer::names`] are sorted.
    names: HashMap<String, u32>,
    ranges: Vec<Range>,
    persons: Vec<u8>,
    rows: u64,
    uuids: uuid_index::UuidIndexBuilder,
    overflow: OverflowKeys,
    times: Option<(Micros, Micros)>,
}

impl std::fmt::Debug for SegmentWriter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SegmentWriter").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl SegmentWriter {
    /// Starts a segment with these property columns, sorted by key.
    pub(crate) fn new(
        columns: Vec<(String, PropertyColumnKind)>,
        bits: u32,
    ) -> Result<SegmentWriter, EventStoreError> {
        let input_schema = schema::input_schema(columns.iter().map(|(key, kind)| (key.as_str(), *kind)));
        let written = schema::written(&input_schema, &columns);
        let writer = ArrowWriter::try_new(Vec::new(), written.clone(), Some(schema::properties()?))?;
        Ok(SegmentWriter {
            overflow: OverflowKeys::new(columns.iter().map(|(key, _)| key.clone())),
            columns,
            bits,
            input_schema,
            written,
            writer,
            names: HashMap::new(),
            ranges: Vec::new(),
            persons: Vec::new(),
            rows: 0,
            uuids: uuid_index::UuidIndexBuilder::default(),
            times: None,
        })
    }

    /// The input columns of [`SegmentWriter::write`].
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.input_schema
    }

    /// Writes all rows of the next non-empty range.
    pub(crate) fn write(&mut self, rows: &RecordBatch) -> Result<(), EventStoreError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let rows = self.in_order_of_schema(rows)?;
        let keys = keys(&rows)?;
        let layout = RunLayout::of(&keys)?;
        let number = self.number(&layout)?;
        let runs = layout.runs.iter().map(|run| self.run(run, keys.times)).collect();
        self.rows += rows.num_rows() as u64;
        let uuids = ids(&rows, UUID)?;
        uuids.iter().for_each(|uuid| self.uuids.add(*uuid));
        let split = UuidColumns::of(&uuids, keys.seq_low)?;
        self.overflow.take(&rows)?;
        self.persons.extend(layout.persons.iter().flat_map(|person| person.to_be_bytes()));
        let ties = layout.ties.iter().any(|tie| *tie > 0);
        self.ranges.push(Range { number, persons: layout.persons.len() as u32, ties, runs });

        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.written.fields().len());
        let codes: ArrayRef = Arc::new(UInt32Array::from(layout.codes));
        let ties: ArrayRef = Arc::new(UInt32Array::from(layout.ties));
        for field in self.written.fields() {
            arrays.push(match field.name().as_str() {
                "person_code" => codes.clone(),
                "tie" => ties.clone(),
                UUID => split.uuids.clone(),
                UUID_SOURCE => split.sources.clone(),
                name => column(&rows, name)?.clone(),
            });
        }
        self.writer.write(&RecordBatch::try_new(self.written.clone(), arrays)?)?;
        self.writer.flush()?;
        Ok(())
    }

    /// Returns the files and the data for the manifest.
    pub(crate) fn finish(mut self, replaces: &ReplacedInputs) -> Result<WrittenSegment, EventStoreError> {
        let mut names = self.names.iter().map(|(name, at)| (name.clone(), *at)).collect::<Vec<_>>();
        names.sort_unstable();
        let mut numbers = vec![0; names.len()];
        (0..).zip(&names).for_each(|(number, (_, at))| numbers[*at as usize] = number);
        for run in self.ranges.iter_mut().flat_map(|range| &mut range.runs) {
            run.name = numbers[run.name as usize];
        }
        let (overflow_keys, exceptions) = self.overflow.finish();
        let column = |((key, kind), exceptions): ((String, PropertyColumnKind), bool)| PropertyColumn {
            key,
            kind,
            exceptions,
        };
        let footer = Footer {
            format: formats::SEGMENTS,
            columns: self.columns.into_iter().zip(exceptions).map(column).collect(),
            overflow_keys,
            bits: self.bits,
            names: names.into_iter().map(|(name, _)| name).collect(),
            ranges: self.ranges,
            replaces_blocks: replaces.blocks.clone(),
            replaces_segments: replaces.segments.clone(),
        };
        let entry = KeyValue::new(FOOTER.to_owned(), serde_json::to_string(&footer)?);
        self.writer.append_key_value_metadata(entry);
        let (min_time, max_time) = self.times.unwrap_or_default();
        let (uuids, hashed) = self.uuids.file();
        Ok(WrittenSegment {
            segment: self.writer.into_inner()?.into(),
            persons: self.persons.into(),
            rows: self.rows,
            uuids,
            hashed,
            min_time,
            max_time,
            events: SegmentEntry::listed(&footer.names.iter().map(String::as_str).collect::<BTreeSet<_>>()),
        })
    }

    fn in_order_of_schema(&self, rows: &RecordBatch) -> Result<RecordBatch, EventStoreError> {
        let arrays = self.input_schema.fields().iter().map(|field| Ok(column(rows, field.name())?.clone()));
        Ok(RecordBatch::try_new(self.input_schema.clone(), arrays.collect::<Result<_, EventStoreError>>()?)?)
    }

    /// The range number that all persons share.
    fn number(&self, layout: &RunLayout) -> Result<u64, EventStoreError> {
        let of = |person: Option<&u128>| person.map(|person| range_of(Uuid::from_u128(*person), self.bits));
        let (first, last) = (of(layout.persons.first()), of(layout.persons.last()));
        match first {
            Some(number)
                if first == last && self.ranges.last().is_none_or(|before| before.number < number) =>
            {
                Ok(number)
            }
            _ => Err(EventStoreError::corrupt("rows of a segment are not in order of their ranges")),
        }
    }

    fn run(&mut self, run: &Run, times: &[Micros]) -> RunEntry {
        let next = self.names.len() as u32;
        let name = *self.names.entry(run.name.clone()).or_insert(next);
        let times = &times[run.rows.clone()];
        let min_time = times.iter().copied().min().unwrap_or_default();
        let max_time = times.iter().copied().max().unwrap_or_default();
        let (first, last) = self.times.unwrap_or((min_time, max_time));
        self.times = Some((first.min(min_time), last.max(max_time)));
        RunEntry { name, rows: run.rows.len() as u32, min_time, max_time }
    }
}

fn column<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, EventStoreError> {
    rows.column_by_name(name).ok_or_else(|| EventStoreError::Corrupt(format!("no column {name}")))
}

fn keys(rows: &RecordBatch) -> Result<SortColumns<'_>, EventStoreError> {
    let wrong = || EventStoreError::corrupt("a column has an unexpected type");
    let events = column(rows, "event")?.as_dictionary_opt::<Int32Type>().ok_or_else(wrong)?;
    let number = |name| {
        let array = column(rows, name)?.as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?;
        Ok::<_, EventStoreError>(&array.values()[..])
    };
    let times = column(rows, "timestamp")?.as_primitive_opt::<TimestampMicrosecondType>();
    Ok(SortColumns {
        events,
        names: events.values().as_string_opt().ok_or_else(wrong)?,
        persons: column(rows, "person")?.as_fixed_size_binary_opt().ok_or_else(wrong)?,
        times: &times.ok_or_else(wrong)?.values()[..],
        seq_high: number("seq_high")?,
        seq_low: number("seq_low")?,
    })
}

#[cfg(test)]
mod tests;
