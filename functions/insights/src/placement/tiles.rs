//! The tiles of an insight, one for each dashboard.
//!
//! Must stay true: a removed tile keeps its id and layout and is restored when the insight is added again; setting the same
//! dashboards again changes nothing.

use std::ops::Range;

use pennon_core::http::RestoredRecord;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Dashboards;

/// An insight's tile on a dashboard. It is part of the insight's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tile {
    /// Its id, unique in the installation.
    pub id: u64,
    /// The dashboard.
    pub dashboard_id: u64,
    /// `None` if it was never removed, false if it was removed and added again.
    pub deleted: Option<bool>,
    /// Its position by screen size.
    pub layouts: Value,
    /// Its colour.
    pub color: Option<String>,
}

impl Tile {
    /// Whether it is not removed. Its dashboard may be deleted.
    pub fn is_kept(&self) -> bool {
        self.deleted != Some(true)
    }

    fn removed(&self) -> Tile {
        Tile { deleted: Some(true), ..self.clone() }
    }
}

/// The visible tiles: neither they nor their dashboards are deleted.
pub fn visible<'a>(tiles: &'a [Tile], dashboards: &'a Dashboards) -> impl Iterator<Item = &'a Tile> {
    tiles.iter().filter(|tile| tile.is_kept() && dashboards.has(tile.dashboard_id))
}

/// The dashboards of tiles that are not removed.
pub fn current_dashboards(tiles: &[Tile]) -> impl Iterator<Item = u64> {
    tiles.iter().filter(|tile| tile.is_kept()).map(|tile| tile.dashboard_id)
}

/// The number of requested dashboards without a tile, current or removed.
pub fn count_new(tiles: &[Tile], requested: &[u64]) -> usize {
    requested.iter().filter(|id| tiles.iter().all(|tile| tile.dashboard_id != **id)).count()
}

/// The tiles for exactly the requested dashboards. New ones get `ids`, in the order requested; others are removed.
pub fn with_dashboards(tiles: &[Tile], requested: &[u64], mut ids: Range<u64>) -> Vec<Tile> {
    let existing = tiles.iter().map(|tile| match (requested.contains(&tile.dashboard_id), tile.is_kept()) {
        (false, true) => tile.removed(),
        (true, false) => Tile { deleted: Some(false), ..tile.clone() },
        _ => tile.clone(),
    });
    let mut updated: Vec<Tile> = existing.collect();
    for dashboard_id in requested {
        if updated.iter().all(|tile| tile.dashboard_id != *dashboard_id)
            && let Some(id) = ids.next()
        {
            updated.push(Tile {
                id,
                dashboard_id: *dashboard_id,
                deleted: None,
                layouts: json!({}),
                color: None,
            });
        }
    }
    updated
}

/// Restores layouts and colours from an export.
pub fn restore(tiles: &mut [Tile], restored: Option<&RestoredRecord>) {
    let exported = restored.map_or(&[][..], |it| &it.tiles);
    for tile in tiles.iter_mut().filter(|tile| tile.is_kept()) {
        if let Some(it) = exported.iter().find(|it| it.dashboard == tile.dashboard_id) {
            (tile.layouts, tile.color) = (it.layouts.clone(), it.color.clone());
        }
    }
}

/// The tiles of a deleted insight.
pub fn remove_all(tiles: &[Tile]) -> Vec<Tile> {
    tiles.iter().map(Tile::removed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Id, dashboard and state of each tile.
    fn states(tiles: &[Tile]) -> Vec<(u64, u64, Option<bool>)> {
        tiles.iter().map(|tile| (tile.id, tile.dashboard_id, tile.deleted)).collect()
    }

    #[test]
    fn a_removed_tile_is_restored() {
        let mut first = with_dashboards(&[], &[8, 5], 1..3);
        assert_eq!(states(&first), [(1, 8, None), (2, 5, None)]);
        first[0].layouts = json!({"sm": {"x": 1}});
        assert_eq!(count_new(&first, &[5, 8, 9]), 1);
        assert_eq!(with_dashboards(&first, &[5, 8], 3..3), first, "the same set in another order");
        let without = with_dashboards(&first, &[5, 9], 3..4);
        assert_eq!(states(&without), [(1, 8, Some(true)), (2, 5, None), (3, 9, None)]);
        assert_eq!(count_new(&without, &[8]), 0);
        let back = with_dashboards(&without, &[8], 4..4);
        assert_eq!(states(&back), [(1, 8, Some(false)), (2, 5, Some(true)), (3, 9, Some(true))]);
        assert_eq!(back[0].layouts, first[0].layouts);
        assert!(remove_all(&back).iter().all(|tile| !tile.is_kept()));
        assert_eq!(current_dashboards(&back).collect::<Vec<_>>(), [8]);
    }
}
