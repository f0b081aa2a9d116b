//! The latest time of each page of the time column of a segment, loaded on the first listing of events.
//!
//! Rows are sorted by person, so a page of 2,048 rows spans the times of the whole segment; but the newest
//! events are in the few pages whose maximum is late. The page index has these maxima: some bytes per page, for
//! all row groups in one read. Must stay true: if the index is missing or unreadable, every page counts as
//! having the latest time.

use std::ops::Range;

use parquet::basic::Type;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::index_reader::decode_column_index;
use pennon_analytics::scan::Micros;

use super::reader::SegmentFile;
use crate::error::EventStoreError;

/// A page of the column of times of a row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimePage {
    pub rows: Range<usize>,
    pub max_time: Micros,
}

/// The pages by row group; a row group without a usable index has none.
pub(crate) type PageTimes = Vec<Vec<TimePage>>;

/// Reads the page times of a segment. Returns the bytes read, too.
pub(super) async fn read(file: &SegmentFile) -> Result<(PageTimes, u64), EventStoreError> {
    let metadata = file.metadata();
    let leaves = metadata.file_metadata().schema_descr().columns();
    let leaf = leaves.iter().position(|leaf| leaf.name() == "timestamp");
    let groups = metadata.row_groups();
    let ranges = leaf.and_then(|leaf| {
        groups.iter().map(|group| group.column(leaf).column_index_range()).collect::<Option<Vec<_>>>()
    });
    let (Some(leaf), Some(ranges)) = (leaf, ranges) else { return Ok((vec![Vec::new(); groups.len()], 0)) };
    let read = file.ranges(&ranges).await?;
    let bytes = read.iter().map(|part| part.len() as u64).sum();
    let pages = read.iter().enumerate().map(|(group, index)| {
        let ColumnIndexMetaData::INT64(index) = decode_column_index(index, Type::INT64).ok()? else {
            return None;
        };
        let rows = usize::try_from(groups[group].num_rows()).ok()?;
        let places = metadata.page_index()?.offset_index(group, leaf)?.page_locations();
        let starts = places.iter().map(|page| usize::try_from(page.first_row_index).ok());
        let mut starts = starts.collect::<Option<Vec<_>>>()?;
        starts.push(rows);
        if starts.first() != Some(&0) || !starts.is_sorted() || index.max_values().len() + 1 != starts.len() {
            return None;
        }
        let page = |(at, max_time): (usize, &Micros)| TimePage {
            rows: starts[at]..starts[at + 1],
            max_time: *max_time,
        };
        Some(index.max_values().iter().enumerate().map(page).collect())
    });
    Ok((pages.map(Option::unwrap_or_default).collect(), bytes))
}
