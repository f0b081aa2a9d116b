//! The insights of a dashboard with their tiles.
//!
//! Must stay true: a tile is on the dashboard only if the record of its insight has it; pointers are an index.

use std::collections::BTreeMap;

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key, Table, Write, WriteCondition};
use serde_json::Value;

use super::input::TileInput;
use crate::insight::{self, Insight};
use crate::placement::pointers;
use crate::placement::tiles::Tile;

/// An insight on a dashboard.
#[derive(Debug, Clone)]
pub struct DashboardInsight {
    /// The insight.
    pub insight: Insight,
    /// The item that was read.
    pub item: Item,
    /// Its tile on the dashboard.
    pub tile: Tile,
}

/// The insights of a dashboard in the order of their tiles: by row, then column.
pub async fn fetch_insights(
    records: &Table,
    project: ProjectId,
    dashboard: u64,
) -> ApiResult<Vec<DashboardInsight>> {
    let ids = pointers::insight_ids_on(records, project, dashboard, None).await?;
    let keys: Vec<Key> = ids.into_iter().map(|id| insight::key(project, id)).collect();
    let mut insights = Vec::new();
    for item in records.batch_get(&keys).await?.into_iter().flatten() {
        let insight: Insight = item.body()?;
        let tile =
            insight.tiles.iter().find(|tile| tile.dashboard_id == dashboard && tile.is_kept()).cloned();
        if let Some(tile) = tile.filter(|_| !insight.deleted) {
            insights.push(DashboardInsight { insight, item, tile });
        }
    }
    sort_by_position(&mut insights);
    Ok(insights)
}

fn sort_by_position(insights: &mut [DashboardInsight]) {
    insights.sort_by_key(|placed| (row_and_column(&placed.tile.layouts), placed.tile.id));
}

/// Position of a tile on a small screen; (100, 100) without one, which is after most others.
fn row_and_column(layouts: &Value) -> (i64, i64) {
    let at = |axis: &str| layouts["sm"][axis].as_i64().unwrap_or(100);
    (at("y"), at("x"))
}

/// Updates tiles in place and returns the writes, on the condition that the insights are unchanged. 400 for a tile that is
/// not on the dashboard.
pub fn update_tiles(
    insights: &mut [DashboardInsight],
    tiles: &BTreeMap<u64, TileInput>,
) -> ApiResult<Vec<Write>> {
    let mut writes = Vec::new();
    for (id, sent) in tiles {
        let Some(placed) = insights.iter_mut().find(|placed| placed.tile.id == *id) else {
            let detail = format!("Invalid pk \"{id}\" - object does not exist.");
            return Err(ApiError::invalid("does_not_exist", detail, Some("tiles")));
        };
        let before = placed.tile.clone();
        if let Some(layouts) = &sent.layouts {
            placed.tile.layouts.clone_from(layouts);
        }
        if let Some(color) = &sent.color {
            placed.tile.color.clone_from(color);
        }
        if placed.tile == before {
            continue;
        }
        for tile in placed.insight.tiles.iter_mut().filter(|tile| tile.id == *id) {
            tile.clone_from(&placed.tile);
        }
        let version = placed.item.version;
        let item = Item::new(placed.item.key.clone(), &placed.insight)?;
        let item = item.with_version(version + 1).replacing(&placed.item);
        writes.push(Write::Put(item, WriteCondition::Version(version)));
    }
    sort_by_position(insights);
    Ok(writes)
}
