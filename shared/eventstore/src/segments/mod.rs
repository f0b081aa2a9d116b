//! A segment: events of one project as one immutable Parquet file, in event runs inside person ranges.
//!
//! Rows are ordered by (person range, event, person, timestamp, seq). A person range is a share of all person ids by
//! their first bits; each is one row group. Inside it the rows of one event are a *run*, whose place the footer tells, so a
//! reader that names a few events reads their rows and nothing else, and finds each person's together and in time order.
//! Beside the segment lies its file of persons: the ids of each range, ascending, 16 bytes each, one range after the
//! other. A row's `person_code` is the place of its person in its range.
//!
//! | column | type | content |
//! |---|---|---|
//! | `event` | string, dictionary | the name |
//! | `person` | 16 bytes | the person when the file was written; later merges are applied by readers |
//! | `person_code` | unsigned 32-bit | its place among the persons of the row group |
//! | `distinct_id` | string, dictionary | as sent |
//! | `timestamp` | timestamp, µs, UTC | when it happened |
//! | `tie` | unsigned 32-bit | of the events of this person at this time, which one by arrival, counted from 0 |
//! | `seq_high`, `seq_low` | unsigned 64-bit | arrival order: arrival time in µs; position among arrivals of that instant |
//! | `uuid` | 16 bytes, or null | identity, where it is not made of the line |
//! | `uuid_source` | 10 bytes, or null | what the uuid made of the line begins with; the line, `seq_low`, is the rest |
//! | `properties` | string, or null | JSON object with the properties that have no column, or whose value does not fit its column |
//! | `p.{key}` | see [`property_columns::Kind`] | one property; null where the event has no such property, or has it in `properties` |
//!
//! The footer's entry `pennon` is a JSON object with the format number, the kinds of the property columns, the keys
//! found in `properties`, the runs, and what the segment replaces. Must stay true: values come back exactly as they went in (50
//! and 50.0, null and absent are different), and a page's minimum and maximum of `event` and `timestamp` are in the
//! page index.

mod event_runs;
pub(crate) mod number_columns;
mod overflow_keys;
pub(crate) mod page_times;
pub(crate) mod parquet_io;
pub(crate) mod property_columns;
pub(crate) mod property_values;
pub(crate) mod reader;
pub(crate) mod row_merge;
mod schema;
pub(crate) mod uuids;
pub(crate) mod writer;

use pennon_engine::scan::Micros;
use serde::{Deserialize, Serialize};

use property_columns::PropertyColumn;

/// Form of the files written by this release.
pub(crate) const FORMAT: u32 = 4;
/// Key of the footer's entry.
pub(crate) const FOOTER: &str = "pennon";
/// Rows of a page of the columns that every question reads: what a scan reads beside a run is at most two of these.
pub(crate) const PAGE_ROWS: usize = 2048;
/// Rows of a page of the other columns, which are compressed page by page.
pub(crate) const VALUE_PAGE_ROWS: usize = 8192;
/// Rows of a person range, about.
pub(crate) const RANGE_ROWS: usize = 524_288;
/// Bytes of a person range before it is encoded, about: wide rows make more ranges, so that writing one takes no more
/// memory than of narrow rows.
pub(crate) const RANGE_BYTES: usize = 96 << 20;

/// Start of the names of property columns.
pub(crate) const PROPERTY: &str = "p.";

/// What the footer's entry says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Footer {
    pub format: u32,
    pub columns: Vec<PropertyColumn>,
    /// Keys that occur in `properties`; none when they are too many to list.
    pub overflow_keys: Option<Vec<String>>,
    /// How many leading bits of a person's id tell its range.
    pub bits: u32,
    /// Names of the events, ascending.
    pub names: Vec<String>,
    /// One entry a row group, in their order.
    pub ranges: Vec<Range>,
    pub replaces_blocks: Vec<String>,
    pub replaces_segments: Vec<String>,
}

/// A person range that has rows: a row group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Range {
    /// Its number: the leading bits of its persons' ids.
    pub number: u64,
    /// How many persons it has.
    pub persons: u32,
    /// Whether some `tie` is above 0.
    pub ties: bool,
    /// Ascending by name; together all rows of the row group.
    pub runs: Vec<RunEntry>,
}

/// The rows of one event in a row group; they lie behind those of the run before.
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
    use crate::manifest::state::SegmentEntry;

    /// An entry whose hash file is `hashes`.
    pub(crate) fn entry(hashes: &str, rows: u64) -> SegmentEntry {
        let hashes = Some(hashes.into());
        SegmentEntry { hashes, rows, events: None, ..SegmentEntry::empty("s".into(), 0) }
    }
}
