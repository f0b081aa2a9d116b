//! Decodes numeric columns of a segment directly into the buffers of calculations: only the pages of the
//! requested rows, without a copy.
//!
//! Must stay true: every row range yields exactly its rows or an error; decoded data is validated as far as
//! later code relies on it (codes are in range, rows are sorted).

use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::{Buffer, ScalarBuffer};
use bytes::Bytes;
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use pennon_analytics::scan::{Micros, Seq};

use crate::error::EventStoreError;

/// A numeric column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumericColumn {
    PersonCode,
    Time,
    Tie,
    SeqHigh,
    SeqLow,
}

impl NumericColumn {
    fn name(self) -> &'static str {
        match self {
            NumericColumn::PersonCode => "person_code",
            NumericColumn::Time => "timestamp",
            NumericColumn::Tie => "tie",
            NumericColumn::SeqHigh => "seq_high",
            NumericColumn::SeqLow => "seq_low",
        }
    }
}

/// Location of a column of a row group: its byte range, and its pages if the file has an index.
struct Chunk<'a> {
    group: usize,
    leaf: usize,
    locations: Option<&'a Vec<PageLocation>>,
}

impl<'a> Chunk<'a> {
    fn new(
        metadata: &'a ParquetMetaData,
        group: usize,
        column: NumericColumn,
    ) -> Result<Chunk<'a>, EventStoreError> {
        let leaves = metadata.file_metadata().schema_descr().columns();
        let leaf = leaves.iter().position(|leaf| leaf.name() == column.name());
        let leaf = leaf.ok_or_else(|| EventStoreError::Corrupt(format!("no column {}", column.name())))?;
        let index = metadata.page_index().and_then(|index| index.offset_index(group, leaf));
        let locations = index.map(|index| index.page_locations()).filter(|locations| !locations.is_empty());
        Ok(Chunk { group, leaf, locations })
    }

    /// The byte ranges of the pages of these rows, and of the dictionary if there is one.
    fn bytes(&self, metadata: &ParquetMetaData, rows: &[Range<usize>], requested: &mut Vec<Range<u64>>) {
        let (start, length) = metadata.row_group(self.group).column(self.leaf).byte_range();
        let Some(pages) = self.locations else {
            requested.push(start..start + length);
            return;
        };
        let at = |page: &PageLocation| u64::try_from(page.offset).unwrap_or(0);
        if at(&pages[0]) > start {
            requested.push(start..at(&pages[0]));
        }
        for rows in rows {
            let is_before = |row: usize| {
                move |page: &PageLocation| {
                    usize::try_from(page.first_row_index).is_ok_and(|first| first <= row)
                }
            };
            let first = pages.partition_point(is_before(rows.start)).saturating_sub(1);
            let end = pages.partition_point(is_before(rows.end - 1)).max(first + 1);
            let last = &pages[end - 1];
            requested
                .push(at(&pages[first])..at(last) + u64::try_from(last.compressed_page_size).unwrap_or(0));
        }
    }
}

/// The byte ranges of `columns` for these rows of a row group; adjacent ones are merged.
pub(crate) fn bytes_of(
    metadata: &ParquetMetaData,
    group: usize,
    columns: &[NumericColumn],
    rows: &[Range<usize>],
) -> Result<Vec<Range<u64>>, EventStoreError> {
    let mut requested = Vec::new();
    for column in columns {
        Chunk::new(metadata, group, *column)?.bytes(metadata, rows, &mut requested);
    }
    requested.sort_unstable_by_key(|range| (range.start, range.end));
    let mut together: Vec<Range<u64>> = Vec::new();
    for range in requested {
        match together.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => together.push(range),
        }
    }
    Ok(together)
}

/// Byte ranges of a file that were read.
#[derive(Debug)]
pub(crate) struct ColumnBytes {
    /// Ascending by start.
    parts: Vec<(u64, Bytes)>,
}

impl ColumnBytes {
    pub(crate) fn new(ranges: &[Range<u64>], parts: Vec<Bytes>) -> ColumnBytes {
        ColumnBytes { parts: ranges.iter().map(|range| range.start).zip(parts).collect() }
    }

    /// The number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let at = self.parts.partition_point(|(first, _)| *first <= start);
        let part = at.checked_sub(1).map(|at| &self.parts[at]);
        let found = part.and_then(|(first, bytes)| {
            let offset = usize::try_from(start - first).ok()?;
            (offset < bytes.len()).then(|| bytes.slice(offset..))
        });
        found.ok_or_else(|| ParquetError::General(format!("byte {start} is in no page of the index")))
    }
}

impl Length for ColumnBytes {
    fn len(&self) -> u64 {
        self.parts.last().map_or(0, |(start, bytes)| start + bytes.len() as u64)
    }
}

impl ChunkReader for ColumnBytes {
    type T = std::io::Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(std::io::Cursor::new(self.from(start)?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let bytes = self.from(start)?;
        if bytes.len() < length {
            return Err(ParquetError::General(format!("{length} bytes from {start} are not there")));
        }
        Ok(bytes.slice(..length))
    }
}

/// Decoder for rows of a row group.
pub(crate) struct NumericColumnReader<'a> {
    pub metadata: &'a ParquetMetaData,
    pub parts: Arc<ColumnBytes>,
    pub group: usize,
    /// Ascending, non-empty, not overlapping.
    pub rows: &'a [Range<usize>],
}

impl NumericColumnReader<'_> {
    /// Person codes below `persons`: one buffer per row range.
    pub(crate) fn codes(&self, persons: usize) -> Result<Vec<ScalarBuffer<u32>>, EventStoreError> {
        let codes = self.unsigned(NumericColumn::PersonCode)?;
        let fits = |codes: &ScalarBuffer<u32>| {
            codes.last().is_none_or(|last| (*last as usize) < persons) && codes.is_sorted()
        };
        if !codes.iter().all(fits) {
            return Err(EventStoreError::corrupt("persons are out of order"));
        }
        Ok(codes)
    }

    /// Timestamps.
    pub(crate) fn times(&self) -> Result<Vec<ScalarBuffer<Micros>>, EventStoreError> {
        Ok(self.read::<Int64Type>(NumericColumn::Time)?.into_iter().map(ScalarBuffer::from).collect())
    }

    /// Tie numbers.
    pub(crate) fn ties(&self) -> Result<Vec<ScalarBuffer<u32>>, EventStoreError> {
        self.unsigned(NumericColumn::Tie)
    }

    /// The arrival order of the rows.
    pub(crate) fn seqs(&self) -> Result<Vec<Vec<Seq>>, EventStoreError> {
        let (high, low) =
            (self.read::<Int64Type>(NumericColumn::SeqHigh)?, self.read::<Int64Type>(NumericColumn::SeqLow)?);
        let seq = |(high, low): (i64, i64)| {
            (u128::from(high.cast_unsigned()) << 64) | u128::from(low.cast_unsigned())
        };
        Ok(high
            .into_iter()
            .zip(low)
            .map(|(high, low)| high.into_iter().zip(low).map(seq).collect())
            .collect())
    }

    fn unsigned(&self, column: NumericColumn) -> Result<Vec<ScalarBuffer<u32>>, EventStoreError> {
        // Reinterprets the four bytes as unsigned.
        let unsigned = |values: Vec<i32>| {
            let rows = values.len();
            ScalarBuffer::new(Buffer::from_vec(values), 0, rows)
        };
        Ok(self.read::<Int32Type>(column)?.into_iter().map(unsigned).collect())
    }

    fn read<T: DataType>(&self, column: NumericColumn) -> Result<Vec<Vec<T::T>>, EventStoreError> {
        let chunk = Chunk::new(self.metadata, self.group, column)?;
        let group = self.metadata.row_group(self.group);
        let of = group.column(chunk.leaf);
        let leaf = of.column_descr_ptr();
        if of.column_type() != T::get_physical_type() || leaf.max_def_level() > 0 || leaf.max_rep_level() > 0
        {
            return Err(EventStoreError::Corrupt(format!("column {} has an unexpected type", column.name())));
        }
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let pages = SerializedPageReader::new(self.parts.clone(), of, rows, chunk.locations.cloned())?;
        let mut reader: ColumnReaderImpl<T> =
            get_typed_column_reader(get_column_reader(leaf, Box::new(pages)));
        let mut at = 0;
        let mut ranges = Vec::with_capacity(self.rows.len());
        for rows in self.rows {
            let skipped = reader.skip_records(rows.start - at)?;
            let mut values = Vec::with_capacity(rows.len());
            while values.len() < rows.len() {
                let (records, ..) =
                    reader.read_records(rows.len() - values.len(), None, None, &mut values)?;
                if records == 0 {
                    break;
                }
            }
            if at + skipped != rows.start || values.len() != rows.len() {
                return Err(EventStoreError::Corrupt(format!("column {} ends too soon", column.name())));
            }
            at = rows.end;
            ranges.push(values);
        }
        Ok(ranges)
    }
}
