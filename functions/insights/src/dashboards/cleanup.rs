//! What follows the deletion of a dashboard: its tiles go later, and with `delete_insights` insights that are on no other.
//!
//! Must stay true: whatever is still to be done is noted in the transaction of the deletion, under the time from which it
//! may be done; each step is a transaction that asks that the dashboard is still deleted as it was; the note goes last.

use chrono::{DateTime, Duration, Utc};
use pennon_core::activity::{self, Entry};
use pennon_core::clock::never_before;
use pennon_core::error::ApiResult;
use pennon_core::ids;
use pennon_core::model::User;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Guard, Item, Key, Query, StoreError, Table, Write, overtaken};
use serde::{Deserialize, Serialize};

use super::content::{self, Placed};
use super::input::DashboardInput;
use super::record::DashboardRecord;
use super::{Dashboards, key};
use crate::changes;
use crate::input::InsightInput;
use crate::record::Insight;
use crate::{limits, store, tiles};

/// How long a deleted dashboard keeps its tiles, to be restored with them.
pub const TILES_KEPT: Duration = Duration::days(30);
/// From when others go on with the removal of insights, which whoever asked for it has not finished by then.
const TAKEN_OVER: Duration = Duration::minutes(2);

/// What a note says beside what it is about.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    /// Who deleted the dashboard.
    user: User,
    /// When.
    at: DateTime<Utc>,
}

/// The writes of notes that a change makes or takes back. Says in `after` when the tiles go.
pub fn writes(
    project: ProjectId,
    before: &DashboardRecord,
    after: &mut DashboardRecord,
    input: &DashboardInput,
    user: &User,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, StoreError> {
    let mut writes = Vec::new();
    if !before.deleted && after.deleted {
        let note = Note { user: user.clone(), at: now };
        after.swept_from = Some(now + TILES_KEPT);
        if let Some(mark) = after.sweep_mark(project) {
            writes.push(Write::Put(Item::new(mark, &note)?, Guard::None));
        }
        if input.delete_insights {
            let mark = keys::due_insights(now + TAKEN_OVER, project, after.id);
            writes.push(Write::Put(Item::new(mark, &note)?, Guard::None));
        }
    }
    if before.deleted && !after.deleted {
        writes.extend(before.sweep_mark(project).map(|mark| Write::Delete(mark, Guard::None)));
        after.swept_from = None;
    }
    Ok(writes)
}

/// Deletes the insights of a deleted dashboard that are on no other, then takes back the note that says to.
pub async fn remove_insights(
    records: &Table,
    project: ProjectId,
    dashboard: u64,
    user: &User,
    at: DateTime<Utc>,
) -> ApiResult<()> {
    let mark = keys::due_insights(at + TAKEN_OVER, project, dashboard);
    remove_all(records, (project, dashboard), user, at, mark).await
}

async fn remove_all(
    records: &Table,
    (project, dashboard): (ProjectId, u64),
    user: &User,
    at: DateTime<Utc>,
    mark: Key,
) -> ApiResult<()> {
    for placed in content::of(records, project, dashboard).await? {
        remove_insight(records, project, dashboard, placed, user, at).await?;
    }
    records.transact(vec![Write::Delete(mark, Guard::None)]).await?;
    Ok(())
}

async fn remove_insight(
    records: &Table,
    project: ProjectId,
    dashboard: u64,
    placed: Placed,
    user: &User,
    at: DateTime<Utc>,
) -> ApiResult<()> {
    let Placed { mut insight, mut item, .. } = placed;
    for tried in 0..limits::WRITE_TRIES {
        overtaken(tried).await;
        let on: Vec<u64> = tiles::kept_dashboards(&insight.tiles).collect();
        let deleted = records.get(&key(project, dashboard)).await?;
        let Some(version) = deleted_version(deleted.as_ref())? else { return Ok(()) };
        let others = Dashboards::load(records, project, on.iter().copied()).await?;
        if insight.deleted || !on.contains(&dashboard) || on.iter().any(|id| others.has(*id)) {
            return Ok(());
        }
        let input = InsightInput { deleted: Some(true), ..InsightInput::default() };
        let at = never_before(at, insight.updated_at);
        let after = insight.apply(&input, user, at);
        let change = store::change(project, Some((&insight, &item)), &after)?;
        let mut writes = store::changes(project, vec![change]);
        writes.push(Write::Check(key(project, dashboard), Guard::Version(version)));
        // The pointer from the dashboard stays with the tiles that are swept.
        let gone =
            on.iter().filter(|id| **id != dashboard).map(|id| keys::dashboard_tile(project, *id, insight.id));
        writes.extend(gone.map(|key| Write::Delete(key, Guard::None)));
        let entry: Option<Entry<'_>> = changes::entry(Some(&insight), &after, None, user, at);
        if let Some(entry) = entry {
            writes.extend(entry.writes(project, ids::new_uuid())?);
        }
        match records.transact(writes).await {
            Ok(()) => return Ok(()),
            Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(now) = records.get(&item.key).await? else { return Ok(()) };
        (insight, item) = (now.body()?, now);
    }
    Err(pennon_core::error::ApiError::busy(limits::RETRY_AFTER_SECONDS))
}

/// Does what the note in `mark` says of insights.
pub async fn follow_insights(
    records: &Table,
    project: ProjectId,
    dashboard: u64,
    mark: &Item,
) -> ApiResult<()> {
    let note: Note = mark.body()?;
    // Others may have written to the logs since the deletion.
    let at = activity::write_time(records, project, changes::SCOPE, note.at).await?;
    Box::pin(remove_all(records, (project, dashboard), &note.user, at, mark.key.clone())).await
}

/// Takes the tiles of a deleted dashboard off their insights, then the note away.
pub async fn sweep_tiles(records: &Table, project: ProjectId, dashboard: u64, mark: &Key) -> ApiResult<()> {
    let stored = records.get(&key(project, dashboard)).await?;
    if let Some(version) = deleted_version(stored.as_ref())? {
        let pk = keys::dashboard_children_pk(project, dashboard);
        let pointers = records.query(Query::partition(pk).prefix(keys::DASHBOARD_TILES)).await?;
        for pointer in pointers {
            sweep_tile(records, project, dashboard, version, pointer.key).await?;
        }
    }
    Ok(records.transact(vec![Write::Delete(mark.clone(), Guard::None)]).await?)
}

async fn sweep_tile(
    records: &Table,
    project: ProjectId,
    dashboard: u64,
    version: u64,
    pointer: Key,
) -> ApiResult<()> {
    let id = pointer.sk.strip_prefix(keys::DASHBOARD_TILES).and_then(|id| id.parse::<u64>().ok());
    for tried in 0..limits::WRITE_TRIES {
        overtaken(tried).await;
        let item = match id {
            Some(id) => records.get(&store::key(project, id)).await?,
            None => None,
        };
        let mut writes = vec![
            Write::Delete(pointer.clone(), Guard::None),
            Write::Check(key(project, dashboard), Guard::Version(version)),
        ];
        if let Some(item) = item {
            let before: Insight = item.body()?;
            let mut after = before.clone();
            after.tiles.retain(|tile| tile.dashboard_id != dashboard);
            let change = store::change(project, Some((&before, &item)), &after)?;
            writes.extend(store::changes(project, vec![change]));
        }
        match records.transact(writes).await {
            Ok(()) => return Ok(()),
            Err(StoreError::Condition { index: 1 }) => return Ok(()),
            Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(pennon_core::error::ApiError::busy(limits::RETRY_AFTER_SECONDS))
}

/// The version of a dashboard that is there and deleted.
fn deleted_version(item: Option<&Item>) -> Result<Option<u64>, StoreError> {
    let Some(item) = item else { return Ok(None) };
    let dashboard: DashboardRecord = item.body()?;
    Ok(dashboard.deleted.then_some(item.version))
}
