//! The two files of a profile, written and read.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, FixedSizeBinaryBuilder, RecordBatch, StringArray, UInt64Array,
};
use arrow::datatypes::UInt64Type;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use pennon_engine::scan::Seq;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::changes::Changes;
use super::{IdProfile, Profile};
use crate::error::EventStoreError;

/// Rows of a row group: as many are in memory at once.
pub(crate) const GROUP_ROWS: usize = 65_536;
/// Rows of a page: what is read to find one.
const PAGE_ROWS: usize = 1024;

/// Columns that tell who there is.
pub(crate) const PRESENCE: [&str; 4] = ["id", "distinct_id", "seq_high", "seq_low"];
/// Columns that tell everything.
pub(crate) const ALL: [&str; 5] = ["id", "distinct_id", "seq_high", "seq_low", "changes"];

/// Where a file lies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    pub object: String,
    pub bytes: u64,
    pub rows: u64,
}

/// The file with these columns, in row groups of [`GROUP_ROWS`] and pages that an index tells apart.
pub(crate) fn write(columns: Vec<(&str, ArrayRef)>) -> Result<Bytes, EventStoreError> {
    let nullable = |name: &str| matches!(name, "changes" | "created_at");
    let columns = columns.into_iter().map(|(name, array)| (name, array, nullable(name)));
    let batch = RecordBatch::try_from_iter_with_nullable(columns)?;
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties()?))?;
    for start in (0..batch.num_rows()).step_by(GROUP_ROWS) {
        writer.write(&batch.slice(start, GROUP_ROWS.min(batch.num_rows() - start)))?;
        writer.flush()?;
    }
    Ok(writer.into_inner()?.into())
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

/// What a file says of a distinct id, as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IdRow {
    pub distinct_id: String,
    /// Arrival of its first event.
    pub first: Seq,
    /// [`Changes`], encoded; none where events change nothing.
    pub changes: Option<Vec<u8>>,
}

/// A file of distinct ids that is being written, a row group at a time.
pub(crate) struct IdsWriter {
    writer: ArrowWriter<Vec<u8>>,
}

impl IdsWriter {
    pub(crate) fn new() -> Result<IdsWriter, EventStoreError> {
        let schema = id_rows(&[])?.schema();
        Ok(IdsWriter { writer: ArrowWriter::try_new(Vec::new(), schema, Some(properties()?))? })
    }

    /// Writes the next row group; ids ascend, within it and from the one before.
    pub(crate) fn write(&mut self, rows: &[(Uuid, IdRow)]) -> Result<(), EventStoreError> {
        self.writer.write(&id_rows(rows)?)?;
        Ok(self.writer.flush()?)
    }

    /// The file.
    pub(crate) fn finish(self) -> Result<Bytes, EventStoreError> {
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
    let ids = || profile.ids.values();
    let changes = ids().map(|id| (!id.changes.is_empty()).then(|| id.changes.encode())).collect::<Vec<_>>();
    write(vec![
        ("id", id_column(profile.ids.keys())?),
        ("distinct_id", Arc::new(StringArray::from_iter_values(ids().map(|id| &id.distinct_id)))),
        ("seq_high", Arc::new(UInt64Array::from_iter_values(ids().map(|id| (id.first >> 64) as u64)))),
        ("seq_low", Arc::new(UInt64Array::from_iter_values(ids().map(|id| id.first as u64)))),
        ("changes", Arc::new(BinaryArray::from_iter(changes))),
    ])
}

/// The file of distinct ids whose events change nothing: the person that each is by itself, ascending, its text, and its
/// first event.
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
    let changes = profile.groups.values().map(Changes::encode);
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

/// Hands over each row of a batch of the file of distinct ids, or those of `ids` alone.
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

/// The ids of a batch, as a part of a profile.
pub(crate) fn decode_ids(
    batch: &RecordBatch,
    ids: Option<&BTreeSet<Uuid>>,
    into: &mut Profile,
) -> Result<(), EventStoreError> {
    each_id(batch, ids, |id, distinct_id, first, changes| {
        let changes = changes.map(Changes::decode).transpose()?.unwrap_or_default();
        let profile = IdProfile { distinct_id: distinct_id.to_owned(), first, changes };
        into.merge(Profile { ids: [(id, profile)].into(), ..Profile::default() });
        Ok(())
    })
}

/// Hands over each row of a batch of the file of groups: type, key, changes.
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
