//! Reading a segment: its footer, the columns that a scan wants, whole rows for merging, and its uuids.
//!
//! Must stay true: only the byte ranges of the wanted pages are fetched; decoding happens on threads that may block; a
//! damaged file is an error that names it.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, TimestampMicrosecondType, UInt64Type};
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowSelection};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder};
use pennon_engine::scan::{Micros, Seq};
use uuid::Uuid;

use super::{FOOTER, FORMAT, Footer};
use crate::error::EventStoreError;
use crate::manifest::SegmentEntry;
use crate::objects::Objects;

/// What is read at first from the end of a file: footer and page index of most segments.
const TAIL_BYTES: u64 = 128 * 1024;

/// An opened segment.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub object: String,
    pub footer: Footer,
    reader: ArrowReaderMetadata,
}

/// Rows decoded from one row group.
pub(crate) struct Decoded {
    pub batches: Vec<RecordBatch>,
    pub bytes_read: u64,
}

impl SegmentFile {
    /// Reads the footer of the segment's object.
    pub(crate) async fn open(
        objects: &Objects,
        entry: &SegmentEntry,
    ) -> Result<SegmentFile, EventStoreError> {
        let object =
            entry.object.clone().ok_or_else(|| EventStoreError::corrupt("a segment without an object"))?;
        let damaged = |e: EventStoreError| match e {
            EventStoreError::Corrupt(what) => EventStoreError::Corrupt(format!("{object}: {what}")),
            other => other,
        };
        let metadata = metadata(objects, &object, entry.bytes).await.map_err(damaged)?;
        let footer = footer(&metadata).map_err(damaged)?;
        let reader = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
            .map_err(|e| damaged(e.into()))?;
        Ok(SegmentFile { object, footer, reader })
    }

    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        self.reader.metadata()
    }

    /// The names of all its columns.
    pub(crate) fn columns(&self) -> Vec<String> {
        self.reader.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The named columns of the selected rows of a row group.
    pub(crate) async fn decode(
        &self,
        objects: &Objects,
        group: usize,
        selection: Option<RowSelection>,
        columns: &[String],
    ) -> Result<Decoded, EventStoreError> {
        let schema = self.reader.schema();
        let places = schema.fields().iter().enumerate().filter(|(_, field)| columns.contains(field.name()));
        let mask = ProjectionMask::leaves(self.reader.parquet_schema(), places.map(|(place, _)| place));
        let rows = usize::try_from(self.metadata().row_group(group).num_rows()).unwrap_or(1).max(1);
        let mut builder = ParquetPushDecoderBuilder::new_with_metadata(self.reader.clone())
            .with_projection(mask)
            .with_batch_size(rows)
            .with_row_groups(vec![group]);
        if let Some(selection) = selection {
            builder = builder.with_row_selection(selection);
        }
        let mut decoder = builder.build()?;
        let mut decoded = Decoded { batches: Vec::new(), bytes_read: 0 };
        loop {
            let (back, batches, wanted) = tokio::task::spawn_blocking(move || step(decoder)).await??;
            decoded.batches.extend(batches);
            let Some(ranges) = wanted else { return Ok(decoded) };
            decoder = back;
            let parts = objects.ranges(&self.object, &ranges).await?;
            decoded.bytes_read += parts.iter().map(|part| part.len() as u64).sum::<u64>();
            decoder.push_ranges(ranges, parts)?;
        }
    }

    /// Those uuids of the segment whose hashes are among `hashes`.
    pub(crate) async fn uuids(
        &self,
        objects: &Objects,
        hashes: &HashSet<u64>,
    ) -> Result<HashSet<Uuid>, EventStoreError> {
        let mut found = HashSet::new();
        for group in 0..self.metadata().num_row_groups() {
            for batch in self.decode(objects, group, None, &["uuid".to_owned()]).await?.batches {
                found.extend(
                    ids(&batch, "uuid")?
                        .into_iter()
                        .filter(|id| hashes.contains(&crate::identity::hash(*id))),
                );
            }
        }
        Ok(found)
    }
}

type Step = (ParquetPushDecoder, Vec<RecordBatch>, Option<Vec<std::ops::Range<u64>>>);

/// Decodes until bytes are missing (then says which) or there are no more rows.
fn step(mut decoder: ParquetPushDecoder) -> Result<Step, EventStoreError> {
    let mut batches = Vec::new();
    loop {
        match decoder.try_decode()? {
            DecodeResult::Data(batch) => batches.push(batch),
            DecodeResult::NeedsData(ranges) => return Ok((decoder, batches, Some(ranges))),
            DecodeResult::Finished => return Ok((decoder, batches, None)),
        }
    }
}

async fn metadata(objects: &Objects, object: &str, bytes: u64) -> Result<ParquetMetaData, EventStoreError> {
    let mut decoder =
        ParquetMetaDataPushDecoder::try_new(bytes)?.with_page_index_policy(PageIndexPolicy::Optional);
    let tail = bytes.saturating_sub(TAIL_BYTES)..bytes;
    let mut wanted = Vec::from([tail]);
    loop {
        let parts = objects.ranges(object, &wanted).await?;
        decoder.push_ranges(wanted, parts)?;
        match decoder.try_decode()? {
            DecodeResult::Data(metadata) => return Ok(metadata),
            DecodeResult::NeedsData(ranges) => wanted = ranges,
            DecodeResult::Finished => return Err(EventStoreError::corrupt("no footer")),
        }
    }
}

fn footer(metadata: &ParquetMetaData) -> Result<Footer, EventStoreError> {
    let entries = metadata.file_metadata().key_value_metadata();
    let entry = entries
        .into_iter()
        .flatten()
        .find(|entry| entry.key == FOOTER)
        .and_then(|entry| entry.value.as_deref());
    let footer: Footer =
        serde_json::from_str(entry.ok_or_else(|| EventStoreError::corrupt("no entry in the footer"))?)?;
    if footer.format != FORMAT {
        return Err(EventStoreError::Corrupt(format!("format {} is of another release", footer.format)));
    }
    Ok(footer)
}

/// A dictionary column: its values, and a code a row (none where the row has no value).
pub(crate) struct Texts<'a> {
    pub values: Vec<&'a str>,
    pub codes: Vec<Option<u32>>,
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Arc<dyn Array>, EventStoreError> {
    batch.column_by_name(name).ok_or_else(|| EventStoreError::Corrupt(format!("no column {name}")))
}

fn wrong(name: &str) -> EventStoreError {
    EventStoreError::Corrupt(format!("column {name} has an unexpected type"))
}

/// The dictionary column `name`.
pub(crate) fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<Texts<'a>, EventStoreError> {
    let array = column(batch, name)?.as_dictionary_opt::<Int32Type>().ok_or_else(|| wrong(name))?;
    let values = array.values().as_string_opt::<i32>().ok_or_else(|| wrong(name))?;
    let values = (0..values.len()).map(|index| values.value(index)).collect::<Vec<_>>();
    let codes =
        array.keys().iter().map(|key| key.and_then(|key| u32::try_from(key).ok())).collect::<Vec<_>>();
    if codes.iter().flatten().any(|code| *code as usize >= values.len()) {
        return Err(EventStoreError::Corrupt(format!("column {name} names a value that is not there")));
    }
    Ok(Texts { values, codes })
}

/// The column `name` of 16-byte ids.
pub(crate) fn ids(batch: &RecordBatch, name: &str) -> Result<Vec<Uuid>, EventStoreError> {
    let array = column(batch, name)?.as_fixed_size_binary_opt().ok_or_else(|| wrong(name))?;
    array
        .iter()
        .map(|value| value.and_then(|bytes| Uuid::from_slice(bytes).ok()).ok_or_else(|| wrong(name)))
        .collect()
}

/// The times of the rows.
pub(crate) fn times(batch: &RecordBatch) -> Result<Vec<Micros>, EventStoreError> {
    let array = column(batch, "timestamp")?.as_primitive_opt::<TimestampMicrosecondType>();
    Ok(array.ok_or_else(|| wrong("timestamp"))?.values().to_vec())
}

/// The arrival order of the rows.
pub(crate) fn seqs(batch: &RecordBatch) -> Result<Vec<Seq>, EventStoreError> {
    let half = |name| column(batch, name)?.as_primitive_opt::<UInt64Type>().ok_or_else(|| wrong(name));
    let (high, low) = (half("seq_high")?, half("seq_low")?);
    Ok(high
        .values()
        .iter()
        .zip(low.values())
        .map(|(high, low)| (u128::from(*high) << 64) | u128::from(*low))
        .collect())
}
