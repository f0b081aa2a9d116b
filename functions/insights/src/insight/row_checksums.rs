//! The summary rows of a project's insights ([`pennon_core::store::summary_rows`]), and the checksums of their writes.

use pennon_core::store::keys::{self, INSIGHT_ROW_SHARDS, ProjectId};
use pennon_core::store::summary_rows::SummaryRowKind;
use pennon_core::store::{Item, Key, RowChecksums, StoreError, VersionBump, Write};
use pennon_flag_rules::stamp;

use super::summary_row::InsightRow;

/// The kind of the summary rows of insights.
#[derive(Debug, Clone)]
pub struct InsightRowKind;

impl SummaryRowKind for InsightRowKind {
    type Row = InsightRow;

    fn partitions(project: ProjectId) -> Vec<String> {
        (0..INSIGHT_ROW_SHARDS).map(|shard| keys::insight_rows_pk(project, shard)).collect()
    }

    fn version_key(project: ProjectId) -> Key {
        keys::insights_version(project)
    }

    fn decode(item: &Item) -> Result<InsightRow, StoreError> {
        InsightRow::from_item(item)
    }

    fn id(row: &InsightRow) -> i64 {
        signed_id(row.id)
    }

    fn checksum(row: &InsightRow) -> i64 {
        row_checksum(row.id, row.item_version)
    }

    fn bytes(row: &InsightRow) -> usize {
        row.bytes()
    }
}

/// An id as the version row has it. Ids come from a counter that starts at 1.
fn signed_id(id: u64) -> i64 {
    i64::try_from(id).unwrap_or(i64::MAX)
}

fn row_checksum(id: u64, item_version: u64) -> i64 {
    stamp(signed_id(id), item_version)
}

/// The change of the checksum sum of a project's rows by a write.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowsChecksumDelta {
    by: i64,
    /// The insight that is changed; 0 if there are several.
    last_changed: i64,
    count: usize,
}

impl RowsChecksumDelta {
    /// A write that changes the summary row of insight `id` from version `before` to `after`. `None` is no row: of a new or a
    /// deleted insight.
    pub fn new(id: u64, before: Option<u64>, after: Option<u64>) -> RowsChecksumDelta {
        let checksum = |version: Option<u64>| version.map_or(0, |version| row_checksum(id, version));
        RowsChecksumDelta {
            by: checksum(after).wrapping_sub(checksum(before)),
            last_changed: i64::try_from(id).unwrap_or(0),
            count: 1,
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: RowsChecksumDelta) -> RowsChecksumDelta {
        RowsChecksumDelta {
            by: self.by.wrapping_add(other.by),
            last_changed: if self.count == 0 { other.last_changed } else { 0 },
            count: self.count + other.count,
        }
    }

    /// The write of the version: one for each transaction, however many insights it writes.
    pub fn version_write(self, project: ProjectId) -> Write {
        let by = RowChecksums { rows: self.by, edges: 0, last: self.last_changed, used: 0 };
        Write::BumpVersion(keys::insights_version(project), VersionBump { by, ..VersionBump::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_add_up_to_the_checksums_of_the_rows() {
        let steps = [
            RowsChecksumDelta::new(1, None, Some(1)),
            RowsChecksumDelta::new(2, None, Some(1)),
            RowsChecksumDelta::new(1, Some(1), Some(2)),
            RowsChecksumDelta::new(2, Some(1), None),
            RowsChecksumDelta::new(2, None, Some(3)),
        ];
        let sum = steps.into_iter().fold(RowsChecksumDelta::default(), RowsChecksumDelta::plus);
        assert_eq!(sum.by, row_checksum(1, 2).wrapping_add(row_checksum(2, 3)));
        assert_eq!((sum.last_changed, sum.count), (0, 5), "0 for several insights");
        assert_eq!(RowsChecksumDelta::default().plus(steps[2]).last_changed, 1);
    }
}
