//! A segment: events of one project as one immutable Parquet file, in event runs inside person ranges.
//!
//! Rows are ordered by (person range, event, person, timestamp, seq). A person range is a share of all person ids by
//! their first bits; each row group lies inside one. So a reader that names a few events finds them in a few
//! neighbouring pages of each row group, and a person's rows of one event are together and in time order.
//!
//! | column | type | content |
//! |---|---|---|
//! | `event` | string, dictionary | the name |
//! | `person` | 16 bytes | the person when the file was written; later merges are applied by readers |
//! | `distinct_id` | string, dictionary | as sent |
//! | `timestamp` | timestamp, µs, UTC | when it happened |
//! | `seq_high`, `seq_low` | unsigned 64-bit | arrival order: arrival time in µs; position among arrivals of that instant |
//! | `uuid` | 16 bytes | identity |
//! | `properties` | string, or null | JSON object with the properties that have no column, or whose value does not fit its column |
//! | `p.{key}` | see [`columns::Kind`] | one property; null where the event has no such property, or has it in `properties` |
//!
//! The footer's entry `pennon` is a JSON object with the format number, the kinds of the property columns, the keys
//! found in `properties`, and what the segment replaces. Must stay true: values come back exactly as they went in (50
//! and 50.0, null and absent are different), and a page's minimum and maximum of `event` and `timestamp` are in the
//! page index.

pub(crate) mod columns;
pub(crate) mod prune;
pub(crate) mod read;
pub(crate) mod values;
pub(crate) mod write;

use serde::{Deserialize, Serialize};

use columns::PropertyColumn;

/// Form of the files written by this release.
pub(crate) const FORMAT: u32 = 1;
/// Key of the footer's entry.
pub(crate) const FOOTER: &str = "pennon";
/// Rows of a page: what a scan reads beside a run is at most two of these.
pub(crate) const PAGE_ROWS: usize = 4096;
/// Rows of a row group, about.
pub(crate) const ROW_GROUP_ROWS: usize = 131_072;

/// Start of the names of property columns.
pub(crate) const PROPERTY: &str = "p.";

/// What the footer's entry says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Footer {
    pub format: u32,
    pub columns: Vec<PropertyColumn>,
    /// Keys that occur in `properties`; none when they are too many to list.
    pub overflow_keys: Option<Vec<String>>,
    pub replaces_blocks: Vec<String>,
    pub replaces_segments: Vec<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::manifest::SegmentEntry;

    /// An entry whose hash file is `hashes`.
    pub(crate) fn entry(hashes: &str, rows: u64) -> SegmentEntry {
        SegmentEntry {
            id: "s".into(),
            format: super::FORMAT,
            object: None,
            hashes: Some(hashes.into()),
            rows,
            bytes: 0,
            min_time: 0,
            max_time: 0,
            events: None,
            replaces_blocks: vec![],
            blocks_removed: false,
            replaces_segments: vec![],
            ids: None,
            groups: None,
            at: 0,
        }
    }
}
