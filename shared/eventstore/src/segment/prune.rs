//! Which rows of a segment may be wanted, by the page index alone.
//!
//! Must stay true: a row that is wanted is never left out; a page whose index is missing or makes no sense is read.

use std::collections::BTreeSet;
use std::ops::Range;

use parquet::arrow::arrow_reader::RowSelection;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use pennon_engine::scan::{EventSelection, Micros, ScanRequest};

/// The row groups that may have wanted rows, and which of their rows.
pub(crate) fn select(metadata: &ParquetMetaData, request: &ScanRequest) -> Vec<(usize, RowSelection)> {
    let place = |name: &str| {
        metadata.file_metadata().schema_descr().columns().iter().position(|column| column.name() == name)
    };
    let (event, time) = (place("event"), place("timestamp"));
    let in_time = |index: &ColumnIndexMetaData, page| may_be_between(index, page, request.from, request.to);
    let mut selected = Vec::new();
    for (group, of) in metadata.row_groups().iter().enumerate() {
        let rows = usize::try_from(of.num_rows()).unwrap_or(0);
        let mut selection = RowSelection::from_consecutive_ranges(std::iter::once(0..rows), rows);
        if let (EventSelection::Named(names), Some(column)) = (&request.events, event)
            && let Some(pages) =
                pages(metadata, group, column, rows, |index, page| may_be_named(index, page, names))
        {
            selection = selection.intersection(&pages);
        }
        if let Some(pages) = time.and_then(|column| pages(metadata, group, column, rows, in_time)) {
            selection = selection.intersection(&pages);
        }
        if selection.selects_any() {
            selected.push((group, selection));
        }
    }
    selected
}

/// The rows of the pages that `wanted` says yes to; none when the column has no usable index.
fn pages(
    metadata: &ParquetMetaData,
    group: usize,
    column: usize,
    rows: usize,
    wanted: impl Fn(&ColumnIndexMetaData, usize) -> bool,
) -> Option<RowSelection> {
    let provider = metadata.page_index()?;
    let index = provider.column_index(group, column)?;
    let locations = provider.offset_index(group, column)?.page_locations();
    let mut starts = locations
        .iter()
        .map(|page| usize::try_from(page.first_row_index).ok())
        .collect::<Option<Vec<_>>>()?;
    let pages = starts.len();
    starts.push(rows);
    if index.num_pages() != pages as u64 || starts.first() != Some(&0) || !starts.is_sorted() {
        return None;
    }
    let ranges = (0..pages).filter(|page| wanted(index, *page)).map(|page| starts[page]..starts[page + 1]);
    let ranges = ranges.collect::<Vec<Range<usize>>>();
    Some(RowSelection::from_consecutive_ranges(ranges.into_iter(), rows))
}

fn may_be_named(index: &ColumnIndexMetaData, page: usize, names: &BTreeSet<String>) -> bool {
    let ColumnIndexMetaData::BYTE_ARRAY(index) = index else { return true };
    let (Some(min), Some(max)) = (index.min_value(page), index.max_value(page)) else { return true };
    names.iter().any(|name| name.as_bytes() >= min && name.as_bytes() <= max)
}

fn may_be_between(index: &ColumnIndexMetaData, page: usize, from: Micros, to: Micros) -> bool {
    let ColumnIndexMetaData::INT64(index) = index else { return true };
    let (Some(min), Some(max)) = (index.min_value(page), index.max_value(page)) else { return true };
    *min <= to && *max >= from
}
