//! Encoding and decoding of the two profile files.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray, UInt64Array};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use pennon_analytics::scan::Seq;
use uuid::Uuid;

use super::changes::ProfileChanges;
use super::{IdProfile, Profile};
use crate::error::EventStoreError;

/// Most rows of a row group: as many are in memory at once.
const GROUP_ROWS: usize = 65_536;
/// Most bytes of texts and changes in a row group with several rows: a column holds at most 2 GiB.
pub(crate) const GROUP_BYTES: usize = 32 << 20;
/// Rows of a page: the unit of a lookup.
const PAGE_ROWS: usize = 1024;

/// Columns that list the persons.
pub(crate) const PRESENCE: [&str; 4] = ["id", "distinct_id", "seq_high", "seq_low"];
/// All columns.
pub(crate) const ALL: [&str; 5] = ["id", "distinct_id", "seq_high", "seq_low", "changes"];

/// Encodes these columns as a file with row groups of [`GROUP_ROWS`] and [`GROUP_BYTES`] and a page index.
pub(crate) fn write(columns: Vec<(&str, ArrayRef)>) -> Result<Bytes, EventStoreError> {
    let nullable = |name: &str| matches!(name, "changes" | "created_at");
    let columns = columns.into_iter().map(|(name, array)| (name, array, nullable(name)));
    let batch = RecordBatch::try_from_iter_with_nullable(columns)?;
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties()?))?;
    let offsets = batch.columns().iter().filter_map(offsets).collect::<Vec<_>>();
    let bytes = |row: usize| offsets.iter().map(|of| (of[row + 1] - of[row]) as usize).sum::<usize>();
    let mut group = Group::default();
    let mut start = 0;
    for row in 0..batch.num_rows() {
        if !group.takes(bytes(row)) {
            writer.write(&batch.slice(start, row - start))?;
            writer.flush()?;
            start = row;
        }
    }
    writer.write(&batch.slice(start, batch.num_rows() - start))?;
    Ok(writer.into_inner()?.into())
}

/// Reads all rows of a small file, at most [`GROUP_ROWS`] in each batch.
pub(crate) fn read_batches(bytes: Bytes) -> Result<Vec<RecordBatch>, EventStoreError> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?.with_batch_size(GROUP_ROWS).build()?;
    Ok(reader.collect::<Result<_, _>>()?)
}

/// Offsets of a text or binary column.
fn offsets(column: &ArrayRef) -> Option<&[i32]> {
    let texts = column.as_string_opt::<i32>().map(StringArray::value_offsets);
    texts.or_else(|| column.as_binary_opt::<i32>().map(BinaryArray::value_offsets))
}

/// Size of the current row group.
#[derive(Debug, Default)]
struct Group {
    rows: usize,
    bytes: usize,
}

impl Group {
    /// Adds a row of `bytes`; false if it has to start a new row group.
    fn takes(&mut self, bytes: usize) -> bool {
        let fits =
            self.rows == 0 || self.rows < GROUP_ROWS && self.bytes.saturating_add(bytes) <= GROUP_BYTES;
        if !fits {
            *self = Group::default();
        }
        self.rows += 1;
        self.bytes += bytes;
        fits
    }
}

fn properties() -> Result<WriterProperties, EventStoreError> {
    Ok(WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .set_dictionary_enabled(false)
        .build())
}

/// A stored row of a distinct id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IdRow {
    pub distinct_id: String,
    /// Arrival of its first event.
    pub first: Seq,
    /// Encoded [`ProfileChanges`]; none if there are no changes.
    pub changes: Option<Vec<u8>>,
}

/// Writer of a file of distinct ids, a row group at a time.
pub(crate) struct IdsWriter {
    writer: ArrowWriter<Vec<u8>>,
    group: Group,
    /// Rows of the current row group.
    rows: Vec<(Uuid, IdRow)>,
}

impl IdsWriter {
    pub(crate) fn new() -> Result<IdsWriter, EventStoreError> {
        let schema = id_rows(&[])?.schema();
        let writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties()?))?;
        Ok(IdsWriter { writer, group: Group::default(), rows: Vec::new() })
    }

    /// Adds a row; ids must ascend.
    pub(crate) fn push(&mut self, id: Uuid, row: IdRow) -> Result<(), EventStoreError> {
        let changes = row.changes.as_ref().map_or(0, Vec::len);
        if !self.group.takes(row.distinct_id.len() + changes) {
            self.flush()?;
        }
        self.rows.push((id, row));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), EventStoreError> {
        if !self.rows.is_empty() {
            self.writer.write(&id_rows(&self.rows)?)?;
            self.writer.flush()?;
            self.rows.clear();
        }
        Ok(())
    }

    /// The file.
    pub(crate) fn finish(mut self) -> Result<Bytes, EventStoreError> {
        self.flush()?;
        Ok(self.writer.into_inner()?.into())
    }
}

fn id_rows(rows: &[(Uuid, IdRow)]) -> Result<RecordBatch, EventStoreError> {
    let of = || rows.iter().map(|(_, row)| row);
    let columns: [(&str, ArrayRef, bool); 5] = [
        ("id", id_column(rows.iter().map(|(id, _)| id))?, false),
        ("distinct_id", Arc::new(StringArray::from_iter_values(of().map(|row| &row.distinct_id))), false),
        (
            "seq_high",
            Arc::new(UInt64Array::from_iter_values(of().map(|row| (row.first >> 64) as u64))),
            false,
        ),
        ("seq_low", Arc::new(UInt64Array::from_iter_values(of().map(|row| row.first as u64))), false),
        ("changes", Arc::new(BinaryArray::from_iter(of().map(|row| row.changes.as_deref()))), true),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

/// 16-byte ids as a column.
pub(crate) fn id_column<'a>(ids: impl Iterator<Item = &'a Uuid>) -> Result<ArrayRef, EventStoreError> {
    let mut column = FixedSizeBinaryBuilder::new(16);
    for id in ids {
        column.append_value(id.as_bytes())?;
    }
    Ok(Arc::new(column.finish()))
}

/// The file of distinct ids.
pub(crate) fn encode_ids(profile: &Profile) -> Result<Bytes, EventStoreError> {
    let mut writer = IdsWriter::new()?;
    for (id, found) in &profile.ids {
        let IdProfile { distinct_id, first, changes } = found;
        let changes = (!changes.is_empty()).then(|| changes.encode());
        writer.push(*id, IdRow { distinct_id: distinct_id.clone(), first: *first, changes })?;
    }
    writer.finish()
}

/// Encodes a file of distinct ids without changes: derived person id (ascending), distinct id, first event.
pub(crate) fn encode_presence(ids: &[(Uuid, &str, Seq)]) -> Result<Bytes, EventStoreError> {
    let changes: Vec<Option<&[u8]>> = vec![None; ids.len()];
    write(vec![
        ("id", id_column(ids.iter().map(|(id, _, _)| id))?),
        ("distinct_id", Arc::new(StringArray::from_iter_values(ids.iter().map(|(_, text, _)| text)))),
        (
            "seq_high",
            Arc::new(UInt64Array::from_iter_values(ids.iter().map(|(_, _, seq)| (*seq >> 64) as u64))),
        ),
        ("seq_low", Arc::new(UInt64Array::from_iter_values(ids.iter().map(|(_, _, seq)| *seq as u64)))),
        ("changes", Arc::new(BinaryArray::from_iter(changes))),
    ])
}

/// The file of groups.
pub(crate) fn encode_groups(profile: &Profile) -> Result<Bytes, EventStoreError> {
    let names = profile.groups.keys();
    let changes = profile.groups.values().map(ProfileChanges::encode);
    write(vec![
        ("type", Arc::new(StringArray::from_iter_values(names.clone().map(|(name, _)| name)))),
        ("key", Arc::new(StringArray::from_iter_values(names.map(|(_, key)| key)))),
        ("changes", Arc::new(BinaryArray::from_iter_values(changes))),
    ])
}

fn missing(name: &str) -> EventStoreError {
    EventStoreError::Corrupt(format!("no column {name}, or one of another type"))
}

/// A column of texts.
pub(crate) fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray, EventStoreError> {
    let column = batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    column.ok_or_else(|| missing(name))
}

fn changes_of(batch: &RecordBatch) -> Option<&BinaryArray> {
    batch.column_by_name("changes")?.as_binary_opt::<i32>()
}

/// Calls back for each row of a batch of distinct ids, or for those of `ids` only.
pub(crate) fn each_id(
    batch: &RecordBatch,
    ids: Option<&BTreeSet<Uuid>>,
    mut each: impl FnMut(Uuid, &str, u128, Option<&[u8]>) -> Result<(), EventStoreError>,
) -> Result<(), EventStoreError> {
    let id = batch.column_by_name("id").and_then(|column| column.as_fixed_size_binary_opt());
    let id = id.ok_or_else(|| missing("id"))?;
    let texts = texts(batch, "distinct_id")?;
    let half = |name: &str| {
        let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<UInt64Type>());
        column.ok_or_else(|| missing(name))
    };
    let (high, low) = (half("seq_high")?, half("seq_low")?);
    let changes = changes_of(batch);
    for row in 0..batch.num_rows() {
        let found = Uuid::from_slice(id.value(row)).map_err(EventStoreError::corrupt)?;
        if ids.is_some_and(|ids| !ids.contains(&found)) {
            continue;
        }
        let first = (u128::from(high.value(row)) << 64) | u128::from(low.value(row));
        let changes = changes.filter(|changes| changes.is_valid(row)).map(|changes| changes.value(row));
        each(found, texts.value(row), first, changes)?;
    }
    Ok(())
}

/// Decodes a batch of distinct ids.
pub(crate) fn decode_ids(
    batch: &RecordBatch,
    ids: Option<&BTreeSet<Uuid>>,
    into: &mut Profile,
) -> Result<(), EventStoreError> {
    each_id(batch, ids, |id, distinct_id, first, changes| {
        let changes = changes.map(ProfileChanges::decode).transpose()?.unwrap_or_default();
        let profile = IdProfile { distinct_id: distinct_id.to_owned(), first, changes };
        into.merge(Profile { ids: [(id, profile)].into(), ..Profile::default() });
        Ok(())
    })
}

/// Calls back for each row of a batch of groups: type, key, changes.
pub(crate) fn each_group(
    batch: &RecordBatch,
    mut each: impl FnMut(&str, &str, &[u8]) -> Result<(), EventStoreError>,
) -> Result<(), EventStoreError> {
    let (types, keys) = (texts(batch, "type")?, texts(batch, "key")?);
    let changes = changes_of(batch).ok_or_else(|| missing("changes"))?;
    for row in 0..batch.num_rows() {
        each(types.value(row), keys.value(row), changes.value(row))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    fn group_rows(file: &Bytes) -> Vec<i64> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(file.clone()).unwrap();
        reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect()
    }

    #[test]
    fn row_groups_end_by_rows_and_by_bytes() {
        // Two rows fill a group to the byte; with one byte more, the second begins the next one.
        let half = GROUP_BYTES / 2;
        for (more, want) in [(0, vec![2, 2, 1, 1]), (1, vec![1, 1, 1, 1, 1, 1])] {
            let sizes = [half, half + more, half, half + more, 3 * half, half + 1];
            let text = |size: usize| "x".repeat(size - 4);
            let mut writer = IdsWriter::new().unwrap();
            for (n, size) in (0..).zip(sizes) {
                let changes = Some(text(size).into_bytes());
                let row = IdRow { distinct_id: "some".to_owned(), first: n, changes };
                writer.push(Uuid::from_u128(n), row).unwrap();
            }
            assert_eq!(group_rows(&writer.finish().unwrap()), want);
            let some = StringArray::from_iter_values(sizes.map(|_| "some"));
            let texts = StringArray::from_iter_values(sizes.map(text));
            let file = write(vec![("key", Arc::new(some)), ("properties", Arc::new(texts))]).unwrap();
            assert_eq!(group_rows(&file), want);
        }
        let many = StringArray::from_iter_values((0..GROUP_ROWS + 1).map(|_| "x"));
        assert_eq!(group_rows(&write(vec![("key", Arc::new(many))]).unwrap()), [GROUP_ROWS as i64, 1]);
        let none = StringArray::from_iter_values([""; 0]);
        assert_eq!(group_rows(&write(vec![("key", Arc::new(none))]).unwrap()), [0_i64; 0]);
    }
}
