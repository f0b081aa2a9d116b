//! The pointers from dashboards to the insights on them.
//!
//! Must stay true: the pointers of a dashboard are an index; the tiles in the records of insights are authoritative. A stale
//! pointer has no effect.

use std::collections::BTreeSet;

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, PartitionQuery, StoreError, Table, Write, WriteCondition};

use super::tiles::{Tile, current_dashboards};
use crate::limits;

/// The write of a dashboard's pointer to an insight on it.
pub fn put(project: ProjectId, dashboard: u64, insight: u64) -> Write {
    Write::Put(Item::empty(keys::dashboard_tile(project, dashboard, insight)), WriteCondition::None)
}

/// The writes of the pointers to an insight that differ between its tiles before and after.
pub fn writes(project: ProjectId, insight: u64, before: &[Tile], after: &[Tile]) -> Vec<Write> {
    let old: BTreeSet<u64> = current_dashboards(before).collect();
    let new: BTreeSet<u64> = current_dashboards(after).collect();
    let added = new.difference(&old).map(|dashboard| put(project, *dashboard, insight));
    let removed = old.difference(&new).map(|dashboard| keys::dashboard_tile(project, *dashboard, insight));
    added.chain(removed.map(|key| Write::Delete(key, WriteCondition::None))).collect()
}

/// The ids of the insights that a dashboard's pointers refer to.
pub async fn insight_ids_on(
    records: &Table,
    project: ProjectId,
    dashboard: u64,
    limit: Option<usize>,
) -> Result<Vec<u64>, StoreError> {
    let mut query = PartitionQuery::partition(keys::dashboard_children_pk(project, dashboard))
        .prefix(keys::DASHBOARD_TILES);
    if let Some(limit) = limit {
        query = query.limit(limit);
    }
    let pointers = records.query(query).await?;
    let id = |pointer: &Item| pointer.key.sk.strip_prefix(keys::DASHBOARD_TILES)?.parse().ok();
    Ok(pointers.iter().filter_map(id).collect())
}

/// 400 where one of these dashboards, which an insight is added to, has the maximum number of tiles.
pub async fn require_tile_capacity(records: &Table, project: ProjectId, dashboards: &[u64]) -> ApiResult<()> {
    let max = limits::DASHBOARD_TILES;
    let counts = dashboards.iter().map(|id| insight_ids_on(records, project, *id, Some(max)));
    let counts = futures::future::try_join_all(counts).await?;
    match dashboards.iter().zip(counts).find(|(_, insights)| insights.len() >= max) {
        Some((id, _)) => {
            let detail = format!("The dashboard {id} has {max} tiles or more, and no more are put on it.");
            Err(ApiError::invalid("invalid_input", detail, Some("dashboards")))
        }
        None => Ok(()),
    }
}
