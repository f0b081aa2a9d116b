//! Segments: the events of one project as one immutable Parquet file, with sidecar files.
//!
//! Rows are sorted by (person range, event, person, timestamp, seq). A person range is the set of all person
//! ids with the same leading bits; each is one row group. Within it, the rows of one event are a *run*, which
//! the footer locates, so a reader of a few events reads only their rows, and finds each person's rows together
//! and in time order. The persons file beside the segment holds the ids of each range, ascending, 16 bytes
//! each, one range after the other. The `person_code` of a row is the index of its person in its range.
//!
//! | column | type | content |
//! |---|---|---|
//! | `event` | string, dictionary | the name |
//! | `person` | 16 bytes | the person when the file was written; later merges are applied by readers |
//! | `person_code` | unsigned 32-bit | index among the persons of the row group |
//! | `distinct_id` | string, dictionary | as sent |
//! | `timestamp` | timestamp, µs, UTC | when it happened |
//! | `tie` | unsigned 32-bit | index by arrival among the events of this person at this time, from 0 |
//! | `seq_high`, `seq_low` | unsigned 64-bit | arrival order: arrival time in µs; position among arrivals of that instant |
//! | `uuid` | 16 bytes, or null | the uuid, unless it is derived from the line |
//! | `uuid_source` | 10 bytes, or null | prefix of a uuid derived from the line; the line, `seq_low`, is the rest |
//! | `properties` | string, or null | JSON object with the properties that have no column, or whose value does not fit its column |
//! | `p.{key}` | see [`property_columns::PropertyColumnKind`] | one property; null where the event has no such property, or has it in `properties` |
//!
//! The footer entry `pennon` is a JSON object with the format number, the kinds of the property columns, the
//! keys found in `properties`, the runs, and what the segment replaces. Must stay true: values are preserved
//! exactly (50 and 50.0, null and absent differ); the page index has the minimum and maximum of `event` and
//! `timestamp` of each page. The public interface is [`SegmentStore`], which
//! opens ([`reader::SegmentFile`]) and lists segments; [`writer::SegmentWriter`] encodes one, and [`DuplicateFinder`]
//! finds events that segments hold already.

mod column_ids;
mod duplicates;
mod event_runs;
mod new_segment;
pub(crate) mod number_columns;
mod overflow_keys;
pub(crate) mod page_times;
pub(crate) mod parquet_io;
pub(crate) mod property_columns;
pub(crate) mod property_values;
pub(crate) mod reader;
pub(crate) mod row_merge;
mod schema;
mod segment_store;
pub(crate) mod uuids;
pub(crate) mod writer;

pub use column_ids::{TableColumn, TableColumnType, base_columns};
pub(crate) use duplicates::{DuplicateCheck, DuplicateFinder};
pub(crate) use new_segment::NewSegment;
pub(crate) use segment_store::SegmentStore;

use pennon_analytics::scan::Micros;
use serde::{Deserialize, Serialize};

use property_columns::PropertyColumn;

/// Key of the footer entry.
pub(crate) const FOOTER: &str = "pennon";
/// Rows of a page of the columns that every query reads: a scan reads at most two such pages beside a run.
pub(crate) const PAGE_ROWS: usize = 2048;
/// Rows of a page of the other columns, which are compressed page by page.
pub(crate) const VALUE_PAGE_ROWS: usize = 8192;
/// Approximate bytes of a person range before encoding: wide rows make more ranges, so that writing one takes
/// no more memory.
pub(crate) const RANGE_BYTES: usize = 96 << 20;

/// Prefix of the names of property columns.
pub(crate) const PROPERTY: &str = "p.";

/// The footer entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Footer {
    pub format: u32,
    pub columns: Vec<PropertyColumn>,
    /// Keys in `properties`; none when there are too many to list.
    pub overflow_keys: Option<Vec<String>>,
    /// Number of leading person id bits that select the range.
    pub bits: u32,
    /// Names of the events, ascending.
    pub names: Vec<String>,
    /// One entry per row group.
    pub ranges: Vec<Range>,
    pub replaces_blocks: Vec<String>,
    pub replaces_segments: Vec<String>,
}

/// A non-empty person range: a row group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Range {
    /// Its number: the leading bits of its person ids.
    pub number: u64,
    /// Number of persons.
    pub persons: u32,
    /// Whether any `tie` is above 0.
    pub ties: bool,
    /// Ascending by name; together they are all rows of the row group.
    pub runs: Vec<RunEntry>,
}

/// The rows of one event in a row group, after those of the previous run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunEntry {
    /// Index into [`Footer::names`].
    pub name: u32,
    pub rows: u32,
    pub min_time: Micros,
    pub max_time: Micros,
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::manifest::SegmentEntry;

    /// An entry whose hash file is `hashes`.
    pub(crate) fn entry(hashes: &str, rows: u64) -> SegmentEntry {
        let hashes = Some(hashes.into());
        SegmentEntry { hashes, rows, events: None, ..SegmentEntry::empty("s".into(), 0) }
    }
}
