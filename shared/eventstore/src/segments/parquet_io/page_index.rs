//! Page locations of a Parquet file, decoded lazily per column.
//!
//! Must stay true: each column is decoded once; an undecodable index counts as missing, and the whole column is
//! read.

use std::any::Any;
use std::sync::OnceLock;

use bytes::Bytes;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::metadata::page_index::PageIndexProvider;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::index_reader::decode_offset_index;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;

/// Page locations of all columns.
#[derive(Debug)]
pub(crate) struct PageIndex {
    /// The columns of all row groups in sequence.
    columns: Vec<PageLocations>,
    /// Columns per row group.
    width: usize,
}

/// Page locations of a column of a row group.
#[derive(Debug)]
struct PageLocations {
    encoded: Bytes,
    decoded: OnceLock<Option<OffsetIndexMetaData>>,
}

impl PageIndex {
    /// For the file with this footer; `bytes` are its content from `start` on, which includes the page
    /// locations.
    pub(crate) fn new(metadata: &ParquetMetaData, start: u64, bytes: Bytes) -> PageIndex {
        let width = metadata.file_metadata().schema_descr().num_columns();
        let places = |range: Option<std::ops::Range<u64>>| {
            let within = range.and_then(|range| {
                let from = usize::try_from(range.start.checked_sub(start)?).ok()?;
                let to = usize::try_from(range.end.checked_sub(start)?).ok()?;
                (from <= to && to <= bytes.len()).then(|| bytes.slice(from..to))
            });
            PageLocations { encoded: within.unwrap_or_default(), decoded: OnceLock::new() }
        };
        let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
        let columns = columns.map(|column| places(column.offset_index_range())).collect();
        PageIndex { columns, width }
    }
}

impl PageIndexProvider for PageIndex {
    fn has_offset_indexes(&self) -> bool {
        true
    }

    fn has_column_indexes(&self) -> bool {
        false
    }

    fn column_index(&self, _: usize, _: usize) -> Option<&ColumnIndexMetaData> {
        None
    }

    fn offset_index(&self, row_group: usize, column: usize) -> Option<&OffsetIndexMetaData> {
        let place = row_group.checked_mul(self.width)?.checked_add(column)?;
        let PageLocations { encoded, decoded } = self.columns.get(place).filter(|_| column < self.width)?;
        decoded.get_or_init(|| decode_offset_index(encoded).ok()).as_ref()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
