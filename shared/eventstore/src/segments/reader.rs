//! Reads a segment: footer, columns for scans, whole rows for merges, and uuids.
//!
//! Must stay true: only the byte ranges of the requested pages are fetched; decoding runs on blocking threads;
//! a damaged file is an error that names it. The public interface is [`SegmentFile`].

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, TimestampMicrosecondType, UInt64Type};
use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::file::metadata::ParquetMetaData;
use pennon_analytics::scan::{Micros, Seq};
use uuid::Uuid;

use super::page_times::{self, PageTimes};
use super::uuids::uuid_columns;
use super::{FOOTER, Footer, Range};
use crate::error::EventStoreError;
use crate::formats;
use crate::manifest::SegmentEntry;
use crate::objects::Objects;
use crate::segments::parquet_io::{DecodedColumns, PageIndexParts, ParquetFile};

/// Bytes per row of a column during decoding: its offset in an array, and its code.
const DECODED_ROW: u128 = 12;
/// Expansion factor of values during decoding: short texts become values of 64 bytes.
const DECODED_VALUES: u128 = 5;

/// An open segment.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub footer: Footer,
    /// Lock per range: held while a scan decodes it (single-flight).
    pub decoding: Vec<Arc<tokio::sync::Mutex<()>>>,
    object: Arc<str>,
    /// The persons file.
    persons: String,
    file: ParquetFile,
    page_times: tokio::sync::OnceCell<PageTimes>,
}

impl SegmentFile {
    /// Opens a segment by reading its footer.
    pub(crate) async fn open(
        objects: &Objects,
        entry: &SegmentEntry,
    ) -> Result<SegmentFile, EventStoreError> {
        let object =
            entry.object.as_ref().ok_or_else(|| EventStoreError::corrupt("a segment without an object"))?;
        // The footer locates events, so page statistics are not needed.
        let file = ParquetFile::open(objects, object, entry.bytes, PageIndexParts::Places).await?;
        let footer = footer(file.metadata()).map_err(|e| match e {
            EventStoreError::Corrupt(what) => EventStoreError::Corrupt(format!("{object}: {what}")),
            other => other,
        })?;
        let persons = entry
            .persons
            .clone()
            .ok_or_else(|| EventStoreError::Corrupt(format!("{object}: there are no persons beside it")))?;
        let decoding = footer.ranges.iter().map(|_| Arc::default()).collect();
        Ok(SegmentFile {
            footer,
            decoding,
            object: object.as_str().into(),
            persons,
            file,
            page_times: tokio::sync::OnceCell::new(),
        })
    }

    /// The name of its object.
    pub(crate) fn object(&self) -> &Arc<str> {
        &self.object
    }

    /// Adds its name to an error.
    pub(crate) fn named(&self, error: EventStoreError) -> EventStoreError {
        match error {
            EventStoreError::Corrupt(what) => EventStoreError::Corrupt(format!("{}: {what}", self.object)),
            other => other,
        }
    }

    /// Number of rows of a row group.
    pub(crate) fn rows(&self, group: usize) -> usize {
        self.file.group_rows(group)
    }

    /// Reads the person ids of a range, 16 bytes each.
    pub(crate) async fn persons(&self, range: usize) -> Result<Bytes, EventStoreError> {
        let bytes = |of: &Range| u64::from(of.persons) * 16;
        let start = self.footer.ranges[..range].iter().map(bytes).sum::<u64>();
        let length = bytes(&self.footer.ranges[range]);
        let requested = start..start + length;
        let read = self.file.objects.ranges(&self.persons, std::slice::from_ref(&requested)).await?;
        let read = read.into_iter().next().filter(|read| read.len() as u64 == length);
        read.ok_or_else(|| EventStoreError::Corrupt(format!("{}: persons are missing", self.persons)))
    }

    /// Reads ranges of its Parquet object.
    pub(crate) async fn ranges(
        &self,
        ranges: &[std::ops::Range<u64>],
    ) -> Result<Vec<Bytes>, EventStoreError> {
        self.file.objects.ranges(&self.object, ranges).await
    }

    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        self.file.metadata()
    }

    /// The latest time of each page, and the bytes read by this call.
    pub(crate) async fn page_times(&self) -> Result<(&PageTimes, u64), EventStoreError> {
        let mut bytes_read = 0;
        let read = async {
            let (pages, bytes) = page_times::read(self).await?;
            bytes_read = bytes;
            Ok::<_, EventStoreError>(pages)
        };
        let pages = self.page_times.get_or_try_init(|| read).await?;
        Ok((pages, bytes_read))
    }

    /// The names of all its columns.
    pub(crate) fn columns(&self) -> Vec<String> {
        self.file.columns()
    }

    /// Decodes the named columns of the selected rows of a row group; some helper columns are added.
    pub(crate) async fn decode(
        &self,
        group: usize,
        selection: Option<RowSelection>,
        columns: &[String],
    ) -> Result<DecodedColumns, EventStoreError> {
        let decoded = self.file.decode(group, selection, &uuid_columns::beside(columns)).await?;
        Self::with_uuids(decoded, columns).await
    }

    /// As above for a scan, see [`crate::segments::parquet_io::decode_in_turn`].
    pub(crate) async fn decode_in_turn(
        &self,
        group: usize,
        selection: Option<RowSelection>,
        columns: &[String],
    ) -> Result<DecodedColumns, EventStoreError> {
        let decoded = self.file.decode_in_turn(group, selection, &uuid_columns::beside(columns)).await?;
        Self::with_uuids(decoded, columns).await
    }

    /// Restores the uuids, if they are among the columns.
    async fn with_uuids(
        decoded: DecodedColumns,
        columns: &[String],
    ) -> Result<DecodedColumns, EventStoreError> {
        if columns.iter().all(|column| column != uuid_columns::UUID) {
            return Ok(decoded);
        }
        let DecodedColumns { batches, bytes_read } = decoded;
        let join = move || batches.into_iter().map(uuid_columns::joined).collect::<Result<_, _>>();
        Ok(DecodedColumns { batches: tokio::task::spawn_blocking(join).await??, bytes_read })
    }

    /// As [`ParquetFile::decode_by`].
    pub(crate) async fn decode_by<T: Send + 'static>(
        &self,
        place: (usize, Option<RowSelection>),
        columns: &[String],
        rows: usize,
        to: T,
        add: impl Fn(&mut T, RecordBatch) -> Result<(), EventStoreError> + Copy + Send + 'static,
    ) -> Result<(T, u64), EventStoreError> {
        self.file.decode_by(place, columns, rows, to, add).await
    }

    /// As [`SegmentFile::decode_by`], for all rows and columns of a row group, with restored uuids.
    pub(crate) async fn rows_by<T: Send + 'static>(
        &self,
        group: usize,
        rows: usize,
        to: T,
        add: impl Fn(&mut T, RecordBatch) -> Result<(), EventStoreError> + Copy + Send + 'static,
    ) -> Result<T, EventStoreError> {
        let add = move |to: &mut T, batch| add(to, uuid_columns::joined(batch)?);
        Ok(self.file.decode_by((group, None), &self.columns(), rows, to, add).await?.0)
    }

    /// Approximate memory for decoding so many rows of these columns, as far as the metadata shows: it has the
    /// length of the values, once each.
    pub(crate) fn decoding_bytes(&self, group: usize, columns: &[String], rows: usize) -> u64 {
        let columns = columns.iter().map(String::as_str).collect::<HashSet<_>>();
        let leaves = self.metadata().row_group(group).columns().iter();
        let requested = leaves.filter(|leaf| columns.contains(leaf.column_descr().name()));
        let sizes = requested.map(|leaf| u128::try_from(leaf.uncompressed_size()).unwrap_or(0));
        let (rows, all) = (rows as u128, self.rows(group).max(1) as u128);
        let bytes = sizes.map(|size| rows * DECODED_ROW + size * rows / all * DECODED_VALUES).sum::<u128>();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Reads the uuids of the segment whose hashes are in `hashes`.
    pub(crate) async fn uuids(&self, hashes: &HashSet<u64>) -> Result<HashSet<Uuid>, EventStoreError> {
        let mut found = HashSet::new();
        for group in 0..self.metadata().num_row_groups() {
            for batch in self.decode(group, None, &["uuid".to_owned()]).await?.batches {
                found.extend(
                    ids(&batch, "uuid")?
                        .into_iter()
                        .filter(|id| hashes.contains(&crate::segments::uuids::uuid_index::hash(*id))),
                );
            }
        }
        Ok(found)
    }
}

fn footer(metadata: &ParquetMetaData) -> Result<Footer, EventStoreError> {
    let entries = metadata.file_metadata().key_value_metadata();
    let entry = entries
        .into_iter()
        .flatten()
        .find(|entry| entry.key == FOOTER)
        .and_then(|entry| entry.value.as_deref());
    let entry = entry.ok_or_else(|| EventStoreError::corrupt("no entry in the footer"))?;
    // Checked before anything else is used.
    match formats::of_body(entry)? {
        formats::SEGMENTS => {}
        format if format > formats::SEGMENTS => {
            return Err(formats::newer("a segment", format, formats::SEGMENTS));
        }
        format => return Err(EventStoreError::Corrupt(format!("format {format} was never released"))),
    }
    let footer: Footer = serde_json::from_str(entry)?;
    let rows = |range: &Range| range.runs.iter().map(|run| i64::from(run.rows)).sum::<i64>();
    let groups = metadata.row_groups().iter().map(|group| group.num_rows());
    if !footer.ranges.iter().map(rows).eq(groups) {
        return Err(EventStoreError::corrupt("the runs of the footer are not those of the file"));
    }
    Ok(footer)
}

/// A dictionary column: values, and a code per row (none for null).
pub(crate) struct DecodedTextColumn<'a> {
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
pub(crate) fn texts<'a>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<DecodedTextColumn<'a>, EventStoreError> {
    let array = column(batch, name)?.as_dictionary_opt::<Int32Type>().ok_or_else(|| wrong(name))?;
    let values = array.values().as_string_opt::<i32>().ok_or_else(|| wrong(name))?;
    let values = (0..values.len()).map(|index| values.value(index)).collect::<Vec<_>>();
    let codes =
        array.keys().iter().map(|key| key.and_then(|key| u32::try_from(key).ok())).collect::<Vec<_>>();
    if codes.iter().flatten().any(|code| *code as usize >= values.len()) {
        return Err(EventStoreError::Corrupt(format!("column {name} names a value that is not there")));
    }
    Ok(DecodedTextColumn { values, codes })
}

/// The column `name` of 16-byte ids.
pub(crate) fn ids(batch: &RecordBatch, name: &str) -> Result<Vec<Uuid>, EventStoreError> {
    let array = column(batch, name)?.as_fixed_size_binary_opt().ok_or_else(|| wrong(name))?;
    array
        .iter()
        .map(|value| value.and_then(|bytes| Uuid::from_slice(bytes).ok()).ok_or_else(|| wrong(name)))
        .collect()
}

/// Timestamps of the rows.
pub(crate) fn times(batch: &RecordBatch) -> Result<Vec<Micros>, EventStoreError> {
    let array = column(batch, "timestamp")?.as_primitive_opt::<TimestampMicrosecondType>();
    Ok(array.ok_or_else(|| wrong("timestamp"))?.values().to_vec())
}

/// Arrival order of the rows.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::{ArrayRef, Int32Array};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::{KeyValue, ParquetMetaDataReader};
    use parquet::file::properties::WriterProperties;

    #[test]
    fn a_footer_of_another_format_is_rejected_before_the_rest_is_parsed() {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        for (entry, expected) in [
            (r#"{"format": 5, "columns": "elsewhere"}"#, "newer release"),
            (r#"{"format": 3, "columns": []}"#, "never released"),
        ] {
            let entry = KeyValue::new(FOOTER.to_owned(), entry.to_owned());
            let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![entry])).build();
            let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
            writer.write(&batch).unwrap();
            let bytes = Bytes::from(writer.into_inner().unwrap());
            let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
            let refused = footer(&metadata).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
