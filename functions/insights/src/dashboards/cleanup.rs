//! Cleanup after the deletion of a dashboard: its tiles are removed later, and with `delete_insights` the insights that are on
//! no other dashboard are deleted.
//!
//! A dashboard that a workspace file no longer declares is removed, and its tiles at once.
//!
//! Must stay true: the cleanup is scheduled in the transaction of the deletion; each step is a transaction on the condition
//! that the deleted dashboard is unchanged; the task is deleted last.

use chrono::{DateTime, Duration, Utc};
use pennon_core::clock::never_before;
use pennon_core::error::ApiResult;
use pennon_core::ids;
use pennon_core::model::User;
use pennon_core::retry::ConflictRetries;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key, PartitionQuery, StoreError, Table, Write, WriteCondition};
use pennon_core::write_times::write_time;
use serde::{Deserialize, Serialize};

use super::content::{self, DashboardInsight};
use super::input::DashboardInput;
use super::record::DashboardRecord;
use crate::insight::{self, Insight, InsightInput};
use crate::limits;
use crate::placement::dashboards::key;
use crate::placement::{Dashboards, tiles};
use crate::resource::{Resource, activity_entry};

/// How long the tiles of a deleted dashboard are kept for a restoration.
pub const TILE_RETENTION: Duration = Duration::days(30);
/// Delay of the task that deletes the insights, if the request itself did not finish it.
const INSIGHT_DELETION_DELAY: Duration = Duration::minutes(2);

/// The body of a cleanup task.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct CleanupTask {
    /// Who deleted the dashboard.
    user: User,
    /// When.
    at: DateTime<Utc>,
}

/// The writes that schedule or cancel the cleanup. Sets `swept_from` of `after`.
pub fn schedule(
    project: ProjectId,
    before: &DashboardRecord,
    after: &mut DashboardRecord,
    input: &DashboardInput,
    user: &User,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, StoreError> {
    let mut writes = Vec::new();
    if !before.deleted && after.deleted {
        let task = CleanupTask { user: user.clone(), at: now };
        after.swept_from = Some(now + TILE_RETENTION);
        if let Some(task_key) = after.tile_removal_key(project) {
            writes.push(Write::Put(Item::new(task_key, &task)?, WriteCondition::None));
        }
        if input.delete_insights {
            let task_key = keys::dashboard_insights_task(now + INSIGHT_DELETION_DELAY, project, after.id);
            writes.push(Write::Put(Item::new(task_key, &task)?, WriteCondition::None));
        }
    }
    if before.deleted && !after.deleted {
        writes.extend(
            before.tile_removal_key(project).map(|task_key| Write::Delete(task_key, WriteCondition::None)),
        );
        after.swept_from = None;
    }
    Ok(writes)
}

/// Deletes the insights of a deleted dashboard that are on no other, then the task for it.
pub async fn delete_insights(
    records: &Table,
    project: ProjectId,
    dashboard: u64,
    user: &User,
    at: DateTime<Utc>,
) -> ApiResult<()> {
    let task_key = keys::dashboard_insights_task(at + INSIGHT_DELETION_DELAY, project, dashboard);
    delete_all_insights(records, (project, dashboard), user, at, task_key).await
}

async fn delete_all_insights(
    records: &Table,
    (project, dashboard): (ProjectId, u64),
    user: &User,
    at: DateTime<Utc>,
    task_key: Key,
) -> ApiResult<()> {
    for placed in content::fetch_insights(records, project, dashboard).await? {
        delete_insight(records, project, dashboard, placed, user, at).await?;
    }
    records.transact(vec![Write::Delete(task_key, WriteCondition::None)]).await?;
    Ok(())
}

async fn delete_insight(
    records: &Table,
    project: ProjectId,
    dashboard: u64,
    placed: DashboardInsight,
    user: &User,
    at: DateTime<Utc>,
) -> ApiResult<()> {
    let DashboardInsight { mut insight, mut item, .. } = placed;
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        let dashboard_ids: Vec<u64> = tiles::current_dashboards(&insight.tiles).collect();
        let deleted = records.get(&key(project, dashboard)).await?;
        let Some(unchanged) = still_deleted(deleted.as_ref())? else { return Ok(()) };
        let others = Dashboards::load(records, project, dashboard_ids.iter().copied()).await?;
        if insight.deleted
            || !dashboard_ids.contains(&dashboard)
            || dashboard_ids.iter().any(|id| others.has(*id))
        {
            return Ok(());
        }
        let input = InsightInput { deleted: Some(true), ..InsightInput::default() };
        let at = never_before(at, insight.updated_at);
        let after = insight.apply(&input, user, at);
        let change = insight::change(project, Some((&insight, &item)), &after)?;
        let mut writes = insight::changes(project, vec![change]);
        writes.push(Write::Check(key(project, dashboard), unchanged));
        // The pointer of this dashboard is kept until its tiles are removed.
        let removed = dashboard_ids
            .iter()
            .filter(|id| **id != dashboard)
            .map(|id| keys::dashboard_tile(project, *id, insight.id));
        writes.extend(removed.map(|key| Write::Delete(key, WriteCondition::None)));
        if let Some(entry) = activity_entry::of_write(Some(&insight), &after, Vec::new(), user, at) {
            writes.extend(entry.writes(project, ids::new_uuid())?);
        }
        match records.transact(writes).await {
            Ok(()) => return Ok(()),
            Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        retries.back_off().await?;
        let Some(current) = records.get(&item.key).await? else { return Ok(()) };
        (insight, item) = (current.body()?, current);
    }
}

/// Runs the task that deletes insights.
pub async fn run_insight_deletion(
    records: &Table,
    project: ProjectId,
    dashboard: u64,
    item: &Item,
) -> ApiResult<()> {
    let task: CleanupTask = item.body()?;
    // The log may have newer entries since the deletion.
    let at = write_time(records, project, Insight::SCOPE, task.at).await?;
    Box::pin(delete_all_insights(records, (project, dashboard), &task.user, at, item.key.clone())).await
}

/// Runs the task that removes the tiles of a deleted dashboard from their insights.
pub async fn run_tile_removal(
    records: &Table,
    project: ProjectId,
    dashboard: u64,
    task_key: &Key,
) -> ApiResult<()> {
    let stored = records.get(&key(project, dashboard)).await?;
    if let Some(unchanged) = still_deleted(stored.as_ref())? {
        let pk = keys::dashboard_children_pk(project, dashboard);
        let pointers = records.query(PartitionQuery::partition(pk).prefix(keys::DASHBOARD_TILES)).await?;
        for pointer in pointers {
            remove_tile(records, project, dashboard, unchanged, pointer.key).await?;
        }
    }
    Ok(records.transact(vec![Write::Delete(task_key.clone(), WriteCondition::None)]).await?)
}

async fn remove_tile(
    records: &Table,
    project: ProjectId,
    dashboard: u64,
    unchanged: WriteCondition,
    pointer: Key,
) -> ApiResult<()> {
    let id = pointer.sk.strip_prefix(keys::DASHBOARD_TILES).and_then(|id| id.parse::<u64>().ok());
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        let item = match id {
            Some(id) => records.get(&insight::key(project, id)).await?,
            None => None,
        };
        let mut writes = vec![
            Write::Delete(pointer.clone(), WriteCondition::None),
            Write::Check(key(project, dashboard), unchanged),
        ];
        if let Some(item) = item {
            let before: Insight = item.body()?;
            let mut after = before.clone();
            after.tiles.retain(|tile| tile.dashboard_id != dashboard);
            let change = insight::change(project, Some((&before, &item)), &after)?;
            writes.extend(insight::changes(project, vec![change]));
        }
        match records.transact(writes).await {
            Ok(()) => return Ok(()),
            Err(StoreError::Condition { index: 1 }) => return Ok(()),
            Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        retries.back_off().await?;
    }
}

/// The condition that a dashboard is still deleted or removed; `None` if it is neither.
fn still_deleted(item: Option<&Item>) -> Result<Option<WriteCondition>, StoreError> {
    let Some(item) = item else { return Ok(Some(WriteCondition::Absent)) };
    let dashboard: DashboardRecord = item.body()?;
    Ok(dashboard.deleted.then_some(WriteCondition::Version(item.version)))
}
