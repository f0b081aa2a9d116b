//! Attempts at merges, as rows: a merge that kills its process, because it needs more memory or time than there is, would be
//! chosen again by the next process.
//!
//! Must stay true: a row is written before the merge begins and deleted when it ends, with or without success; so a row that is
//! found is of a killed merge, or of one that is running elsewhere. Neither is chosen again for an hour, and then only half of
//! its segments at a time, as after any failure ([`super::merge_failures`]).

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key, PartitionQuery, Table, Write, WriteCondition};
use serde::{Deserialize, Serialize};

use crate::error::EventStoreError;
use crate::keys;
use crate::manifest::{SegmentEntry, new_id};

/// How long an unfinished attempt is kept, in microseconds and in seconds: one hour.
const KEPT_MICROS: Micros = KEPT_SECONDS * 1_000_000;
const KEPT_SECONDS: i64 = 3600;
/// Most attempts that are read.
const READ_MAX: usize = 1000;

/// The body of an attempt.
#[derive(Debug, Serialize, Deserialize)]
struct AttemptRow {
    segments: Vec<String>,
    /// When it began.
    at: Micros,
}

/// The attempts of all projects.
#[derive(Debug)]
pub(crate) struct MergeAttempts {
    records: Table,
}

impl MergeAttempts {
    pub(crate) fn new(records: Table) -> MergeAttempts {
        MergeAttempts { records }
    }

    /// Records that a merge of `entries` begins. Returns the key for [`MergeAttempts::end`].
    pub(crate) async fn begin(
        &self,
        project: ProjectId,
        entries: &[SegmentEntry],
        now: Micros,
    ) -> Result<Key, EventStoreError> {
        let key = keys::merge_attempt(project, &new_id(now));
        let segments = entries.iter().map(|entry| entry.id.clone()).collect();
        let row = Item::new(key.clone(), &AttemptRow { segments, at: now })?;
        self.records.put(row.expiring(now / 1_000_000 + KEPT_SECONDS), WriteCondition::None).await?;
        Ok(key)
    }

    /// Records that a merge has ended.
    pub(crate) async fn end(&self, attempt: Key) -> Result<(), EventStoreError> {
        Ok(self.records.transact(vec![Write::Delete(attempt, WriteCondition::None)]).await?)
    }

    /// The segments of each attempt that has not ended.
    pub(crate) async fn unfinished(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<Vec<Vec<String>>, EventStoreError> {
        let query = PartitionQuery::partition(keys::segment_merges_pk(project)).prefix(keys::ATTEMPT);
        let rows = self.records.query(query.descending().limit(READ_MAX)).await?;
        let rows = rows.iter().map(Item::body::<AttemptRow>).collect::<Result<Vec<_>, _>>()?;
        let recent = rows.into_iter().filter(|row| row.at.saturating_add(KEPT_MICROS) > now);
        Ok(recent.map(|row| row.segments).collect())
    }
}
