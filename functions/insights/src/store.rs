//! Insights in the records table: which items a write touches, and how many reads a list takes.

use chrono::{DateTime, Utc};
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::ids;
use pennon_core::store::keys::{self, Kind, ProjectId};
use pennon_core::store::{Guard, Item, Key, Query, StoreError, Table, Write};
use serde_json::json;

use crate::changes;
use crate::record::Insight;
use crate::row::InsightRow;

/// Where an insight lies.
pub fn key(project: ProjectId, id: u64) -> Key {
    keys::record(project, Kind::Insight, id)
}

/// The summary rows of all insights of a project that are not deleted.
pub async fn rows(records: &Table, project: ProjectId) -> ApiResult<Vec<InsightRow>> {
    let items = records.query(Query::partition(keys::records_pk(project, Kind::InsightRow))).await?;
    Ok(items.iter().map(Item::body).collect::<Result<_, StoreError>>()?)
}

/// The insights with these numbers, in their order; those that were deleted since are left out.
pub async fn insights(records: &Table, project: ProjectId, ids: &[u64]) -> ApiResult<Vec<Insight>> {
    let keys: Vec<Key> = ids.iter().map(|id| key(project, *id)).collect();
    let items = records.batch_get(&keys).await?;
    let insights = items.iter().flatten().map(Item::body).collect::<Result<Vec<Insight>, StoreError>>()?;
    Ok(insights.into_iter().filter(|insight| !insight.deleted).collect())
}

/// Position of the record among the writes of a change.
pub const RECORD_WRITE: usize = 0;
/// Position of the short id's row among the writes of a creation.
pub const SHORT_ID_WRITE: usize = 1;

/// The writes that create an insight; the short id must be free.
pub fn creation(access: &Access, insight: &Insight, now: DateTime<Utc>) -> Result<Vec<Write>, StoreError> {
    let project = access.project.id;
    let record = Item::new(key(project, insight.id), insight)?.with_version(1);
    let short_id = Item::new(keys::short_id(project, &insight.short_id), &json!({"id": insight.id}))?;
    let mut writes = vec![Write::Put(record, Guard::Absent), Write::Put(short_id, Guard::Absent)];
    if !insight.deleted {
        writes.push(row(project, insight)?);
    }
    writes.extend(activity(access, None, insight, now)?);
    Ok(writes)
}

/// The writes that turn `before`, read at `version`, into `after`.
pub fn change(
    access: &Access,
    version: u64,
    before: &Insight,
    after: &Insight,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, StoreError> {
    let project = access.project.id;
    let record = Item::new(key(project, after.id), after)?.with_version(version + 1);
    let mut writes = vec![Write::Put(record, Guard::Version(version))];
    writes.push(match after.deleted {
        true => Write::Delete(keys::record(project, Kind::InsightRow, after.id), Guard::None),
        false => row(project, after)?,
    });
    writes.extend(activity(access, Some(before), after, now)?);
    Ok(writes)
}

fn row(project: ProjectId, insight: &Insight) -> Result<Write, StoreError> {
    let row = Item::new(keys::record(project, Kind::InsightRow, insight.id), &InsightRow::of(insight))?;
    Ok(Write::Put(row, Guard::None))
}

fn activity(
    access: &Access,
    before: Option<&Insight>,
    after: &Insight,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, StoreError> {
    let entry = changes::entry(before, after, access.caller.user(), now);
    let writes = entry.map(|entry| entry.writes(access.project.id, ids::new_uuid())).transpose()?;
    Ok(writes.into_iter().flatten().collect())
}
