//! Insights in the records table: which items a write touches.
//!
//! Must stay true: an insight's record, its summary row and the version of the project's insights change in one
//! transaction, whoever writes.

mod rows;

pub use rows::{Difference, Memory, Rows, Version, early, load};

use std::collections::BTreeSet;
use std::ops::Range;

use chrono::{DateTime, Utc};
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::ids;
use pennon_core::store::keys::{self, Counter, Kind, ProjectId};
use pennon_core::store::{Guard, Item, Key, StoreError, Table, Write};
use serde_json::json;

use crate::changes::{self as log, DashboardChange};
use crate::record::Insight;
use crate::row::InsightRow;
use crate::tiles::kept_dashboards;

/// Where an insight lies.
pub fn key(project: ProjectId, id: u64) -> Key {
    keys::record(project, Kind::Insight, id)
}

/// Where the summary row of an insight lies; it is there while the insight is not deleted.
pub fn row_key(project: ProjectId, id: u64) -> Key {
    keys::insight_row(project, id)
}

/// The insights with these numbers, in their order; those that were deleted since are left out.
pub async fn insights(records: &Table, project: ProjectId, ids: &[u64]) -> ApiResult<Vec<Insight>> {
    let keys: Vec<Key> = ids.iter().map(|id| key(project, *id)).collect();
    let items = records.batch_get(&keys).await?;
    let insights = items.iter().flatten().map(Item::body).collect::<Result<Vec<Insight>, StoreError>>()?;
    Ok(insights.into_iter().filter(|insight| !insight.deleted).collect())
}

/// The writes of one insight's own rows, and what they add to the version.
#[derive(Debug)]
pub struct Changed {
    writes: Vec<Write>,
    difference: Difference,
}

/// The writes of several insights in one transaction, the project's version included.
pub fn changes(project: ProjectId, changed: Vec<Changed>) -> Vec<Write> {
    let difference = changed.iter().fold(Difference::default(), |all, one| all.and(one.difference));
    let raise = (!changed.is_empty()).then(|| difference.raise(project));
    changed.into_iter().flat_map(|one| one.writes).chain(raise).collect()
}

/// The writes of an insight's own rows: its record, its summary row, and its short id when it is new. `before` is the
/// insight and the item that was read, none for a new one.
pub fn change(
    project: ProjectId,
    before: Option<(&Insight, &Item)>,
    after: &Insight,
) -> Result<Changed, StoreError> {
    let was = before.filter(|(insight, _)| !insight.deleted).map(|(insight, _)| insight.row_version);
    let before = before.map(|(_, item)| item);
    let guard = before.map_or(Guard::Absent, |item| Guard::Version(item.version));
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
        writes.push(Write::Put(short_id, Guard::Absent));
    }
    let row_key = row_key(project, after.id);
    writes.push(match after.deleted {
        true => Write::Delete(row_key, Guard::None),
        false => {
            let row = Item::new(row_key, &InsightRow::of(after, bytes))?;
            Write::Put(row.with_version(version), Guard::None)
        }
    });
    let difference = Difference::of(after.id, was, (!after.deleted).then_some(version));
    Ok(Changed { writes, difference })
}

/// The write that lets a dashboard know of an insight on it.
pub fn pointer(project: ProjectId, dashboard: u64, insight: u64) -> Write {
    Write::Put(Item::empty(keys::dashboard_tile(project, dashboard, insight)), Guard::None)
}

/// Numbers that nobody else is given.
pub async fn count(records: &Table, of: Counter, count: usize) -> ApiResult<Range<u64>> {
    if count == 0 {
        return Ok(0..0);
    }
    let wrong = |error: std::num::TryFromIntError| ApiError::internal(&error);
    let last = records.increment(&keys::counter(of), i64::try_from(count).map_err(wrong)?).await?;
    let end = u64::try_from(last).map_err(wrong)?.saturating_add(1);
    Ok(end.saturating_sub(count as u64)..end)
}

/// A write that was judged: what it leaves, and what the log says.
pub struct Judged<'a> {
    /// Who writes.
    pub access: &'a Access,
    /// The instant.
    pub now: DateTime<Utc>,
    /// The insight before it, and the item that was read; none for a new one.
    pub before: Option<(&'a Insight, &'a Item)>,
    /// The insight after it.
    pub after: &'a Insight,
    /// What becomes of its dashboards, where the body named any.
    pub dashboard_change: Option<DashboardChange>,
}

impl Judged<'_> {
    /// The transaction. Its conditions fail when the insight or its short id is not as it was judged. What became of
    /// the dashboards since they were read makes no difference to what is stored: to be put on one that is deleted, or
    /// closed, a moment later is the same as a moment before it.
    pub fn writes(self) -> Result<Vec<Write>, StoreError> {
        let (project, after) = (self.access.project.id, self.after);
        let mut writes = changes(project, vec![change(project, self.before, after)?]);
        self.tiles(&mut writes);
        let before = self.before.map(|(before, _)| before);
        let user = self.access.caller.user();
        if let Some(entry) = log::entry(before, after, self.dashboard_change, user, self.now) {
            writes.extend(entry.writes(project, ids::new_uuid())?);
        }
        Ok(writes)
    }

    /// The pointers from dashboards to the insight, as far as they change.
    fn tiles(&self, writes: &mut Vec<Write>) {
        let (project, id) = (self.access.project.id, self.after.id);
        let before: BTreeSet<u64> =
            self.before.iter().flat_map(|(it, _)| kept_dashboards(&it.tiles)).collect();
        let after: BTreeSet<u64> = kept_dashboards(&self.after.tiles).collect();
        for dashboard in after.difference(&before) {
            writes.push(pointer(project, *dashboard, id));
        }
        let gone = before.difference(&after).map(|dashboard| keys::dashboard_tile(project, *dashboard, id));
        writes.extend(gone.map(|key| Write::Delete(key, Guard::None)));
    }
}
