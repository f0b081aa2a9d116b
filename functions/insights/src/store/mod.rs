//! The rows of insights in the records table.
//!
//! Must stay true: every write changes an insight's record, its summary row and the version of the project's rows in one
//! transaction.

mod rows;

pub use rows::{InsightRowKind, RowsChecksumDelta};

use std::collections::BTreeSet;
use std::ops::Range;

use chrono::{DateTime, Utc};
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::ids;
use pennon_core::store::keys::{self, Counter, Kind, ProjectId};
use pennon_core::store::{Item, Key, StoreError, Table, Write, WriteCondition};
use serde_json::json;

use crate::activity_log::{self as log, DashboardChange};
use crate::record::Insight;
use crate::summary_row::InsightRow;
use crate::tiles::current_dashboards;

/// The key of an insight's record.
pub fn key(project: ProjectId, id: u64) -> Key {
    keys::record(project, Kind::Insight, id)
}

/// The key of an insight's summary row, which exists while the insight is not deleted.
pub fn row_key(project: ProjectId, id: u64) -> Key {
    keys::insight_row(project, id)
}

/// The insights with these ids, in their order; deleted ones are left out.
pub async fn fetch_insights(records: &Table, project: ProjectId, ids: &[u64]) -> ApiResult<Vec<Insight>> {
    let keys: Vec<Key> = ids.iter().map(|id| key(project, *id)).collect();
    let items = records.batch_get(&keys).await?;
    let insights = items.iter().flatten().map(Item::body).collect::<Result<Vec<Insight>, StoreError>>()?;
    Ok(insights.into_iter().filter(|insight| !insight.deleted).collect())
}

/// The writes of one insight's own rows, and their effect on the version of the project's rows.
#[derive(Debug)]
pub struct InsightChange {
    writes: Vec<Write>,
    delta: RowsChecksumDelta,
}

/// The writes of several insights in one transaction, including that of the rows version.
pub fn changes(project: ProjectId, changed: Vec<InsightChange>) -> Vec<Write> {
    let delta = changed.iter().fold(RowsChecksumDelta::default(), |sum, one| sum.plus(one.delta));
    let raise = (!changed.is_empty()).then(|| delta.version_write(project));
    changed.into_iter().flat_map(|one| one.writes).chain(raise).collect()
}

/// The writes of an insight's own rows: its record, its summary row, and its short id if it is new. `before` is the insight
/// and the item that was read; `None` for a new one.
pub fn change(
    project: ProjectId,
    before: Option<(&Insight, &Item)>,
    after: &Insight,
) -> Result<InsightChange, StoreError> {
    let row_version = before.filter(|(insight, _)| !insight.deleted).map(|(insight, _)| insight.row_version);
    let before = before.map(|(_, item)| item);
    let guard = before.map_or(WriteCondition::Absent, |item| WriteCondition::Version(item.version));
    let version = before.map_or(0, |item| item.version) + 1;
    let after = &Insight { row_version: version, ..after.clone() };
    let mut record = Item::new(key(project, after.id), after)?.with_version(version);
    if let Some(item) = before {
        record = record.replacing(item);
    }
    let bytes = record.text.len();
    let mut writes = vec![Write::Put(record, guard)];
    if before.is_none() {
        let short_id = Item::new(keys::short_id(project, &after.short_id), &json!({"id": after.id}))?;
        writes.push(Write::Put(short_id, WriteCondition::Absent));
    }
    let row_key = row_key(project, after.id);
    writes.push(match after.deleted {
        true => Write::Delete(row_key, WriteCondition::None),
        false => {
            let row = Item::new(row_key, &InsightRow::new(after, bytes))?;
            Write::Put(row.with_version(version), WriteCondition::None)
        }
    });
    let delta = RowsChecksumDelta::new(after.id, row_version, (!after.deleted).then_some(version));
    Ok(InsightChange { writes, delta })
}

/// The write of a dashboard's pointer to an insight on it.
pub fn dashboard_pointer(project: ProjectId, dashboard: u64, insight: u64) -> Write {
    Write::Put(Item::empty(keys::dashboard_tile(project, dashboard, insight)), WriteCondition::None)
}

/// Reserves `count` ids of a counter.
pub async fn reserve_ids(records: &Table, counter: Counter, count: usize) -> ApiResult<Range<u64>> {
    if count == 0 {
        return Ok(0..0);
    }
    let wrong = |error: std::num::TryFromIntError| ApiError::internal(&error);
    let last = records.increment(&keys::counter(counter), i64::try_from(count).map_err(wrong)?).await?;
    let end = u64::try_from(last).map_err(wrong)?.saturating_add(1);
    Ok(end.saturating_sub(count as u64)..end)
}

/// A validated write of an insight, with its activity entry.
pub struct InsightWrite<'a> {
    /// The user and the project.
    pub access: &'a Access,
    /// The instant.
    pub now: DateTime<Utc>,
    /// The insight before it, and the item that was read; `None` for a new one.
    pub before: Option<(&'a Insight, &'a Item)>,
    /// The insight after it.
    pub after: &'a Insight,
    /// The change of its dashboards, if the body has any.
    pub dashboard_change: Option<DashboardChange>,
}

impl InsightWrite<'_> {
    /// The transaction. It fails if the insight was changed or the short id was taken since they were read. It does not check
    /// the dashboards: if one is deleted or restricted concurrently, the stored rows are the same as if that had happened
    /// just after the write.
    pub fn writes(self) -> Result<Vec<Write>, StoreError> {
        let (project, after) = (self.access.project.id, self.after);
        let mut writes = changes(project, vec![change(project, self.before, after)?]);
        self.push_pointer_writes(&mut writes);
        let before = self.before.map(|(before, _)| before);
        let user = self.access.caller.user();
        if let Some(entry) = log::entry(before, after, self.dashboard_change, user, self.now) {
            writes.extend(entry.writes(project, ids::new_uuid())?);
        }
        Ok(writes)
    }

    /// Adds the changed pointers from dashboards to the insight.
    fn push_pointer_writes(&self, writes: &mut Vec<Write>) {
        let (project, id) = (self.access.project.id, self.after.id);
        let before: BTreeSet<u64> =
            self.before.iter().flat_map(|(it, _)| current_dashboards(&it.tiles)).collect();
        let after: BTreeSet<u64> = current_dashboards(&self.after.tiles).collect();
        for dashboard in after.difference(&before) {
            writes.push(dashboard_pointer(project, *dashboard, id));
        }
        let removed =
            before.difference(&after).map(|dashboard| keys::dashboard_tile(project, *dashboard, id));
        writes.extend(removed.map(|key| Write::Delete(key, WriteCondition::None)));
    }
}
