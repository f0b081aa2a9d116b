//! The tiles of an insight: its places on dashboards.
//!
//! Must stay true: a tile that was removed keeps its number and layout, and is the one that comes back; setting the
//! same dashboards again changes nothing.

use std::ops::Range;

use pennon_core::http::Restored;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dashboards::Dashboards;

/// A place on a dashboard. It belongs to the insight's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tile {
    /// Its number, unique in the installation.
    pub id: u64,
    /// The dashboard.
    pub dashboard_id: u64,
    /// None while it was never removed, false when it was removed and added back.
    pub deleted: Option<bool>,
    /// Where it stands, by size of the screen.
    pub layouts: Value,
    /// Its colour.
    pub color: Option<String>,
}

impl Tile {
    /// Whether it was not removed. Its dashboard may have been deleted all the same.
    pub fn is_kept(&self) -> bool {
        self.deleted != Some(true)
    }

    fn removed(&self) -> Tile {
        Tile { deleted: Some(true), ..self.clone() }
    }
}

/// The tiles that are shown: neither they nor their dashboards are deleted.
pub fn live<'a>(tiles: &'a [Tile], dashboards: &'a Dashboards) -> impl Iterator<Item = &'a Tile> {
    tiles.iter().filter(|tile| tile.is_kept() && dashboards.has(tile.dashboard_id))
}

/// The dashboards of tiles that were not removed.
pub fn kept_dashboards(tiles: &[Tile]) -> impl Iterator<Item = u64> {
    tiles.iter().filter(|tile| tile.is_kept()).map(|tile| tile.dashboard_id)
}

/// How many of the wanted dashboards never had a tile.
pub fn missing(tiles: &[Tile], wanted: &[u64]) -> usize {
    wanted.iter().filter(|id| tiles.iter().all(|tile| tile.dashboard_id != **id)).count()
}

/// The tiles when exactly the wanted dashboards have one; new ones get the numbers `ids`, in the order wanted.
pub fn placed(tiles: &[Tile], wanted: &[u64], mut ids: Range<u64>) -> Vec<Tile> {
    let kept = tiles.iter().map(|tile| match (wanted.contains(&tile.dashboard_id), tile.is_kept()) {
        (false, true) => tile.removed(),
        (true, false) => Tile { deleted: Some(false), ..tile.clone() },
        _ => tile.clone(),
    });
    let mut placed: Vec<Tile> = kept.collect();
    for dashboard_id in wanted {
        if placed.iter().all(|tile| tile.dashboard_id != *dashboard_id)
            && let Some(id) = ids.next()
        {
            placed.push(Tile {
                id,
                dashboard_id: *dashboard_id,
                deleted: None,
                layouts: json!({}),
                color: None,
            });
        }
    }
    placed
}

/// Lays tiles out as they were elsewhere.
pub fn restore(tiles: &mut [Tile], restored: Option<&Restored>) {
    let wanted = restored.map_or(&[][..], |it| &it.tiles);
    for tile in tiles.iter_mut().filter(|tile| tile.is_kept()) {
        if let Some(it) = wanted.iter().find(|it| it.dashboard == tile.dashboard_id) {
            (tile.layouts, tile.color) = (it.layouts.clone(), it.color.clone());
        }
    }
}

/// The tiles when their insight is deleted.
pub fn all_removed(tiles: &[Tile]) -> Vec<Tile> {
    tiles.iter().map(Tile::removed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number, dashboard and state of each tile.
    fn states(tiles: &[Tile]) -> Vec<(u64, u64, Option<bool>)> {
        tiles.iter().map(|tile| (tile.id, tile.dashboard_id, tile.deleted)).collect()
    }

    #[test]
    fn a_tile_comes_back_as_the_one_it_was() {
        let mut first = placed(&[], &[8, 5], 1..3);
        assert_eq!(states(&first), [(1, 8, None), (2, 5, None)]);
        first[0].layouts = json!({"sm": {"x": 1}});
        assert_eq!(missing(&first, &[5, 8, 9]), 1);
        assert_eq!(placed(&first, &[5, 8], 3..3), first, "the same set in another order");
        let without = placed(&first, &[5, 9], 3..4);
        assert_eq!(states(&without), [(1, 8, Some(true)), (2, 5, None), (3, 9, None)]);
        assert_eq!(missing(&without, &[8]), 0);
        let back = placed(&without, &[8], 4..4);
        assert_eq!(states(&back), [(1, 8, Some(false)), (2, 5, Some(true)), (3, 9, Some(true))]);
        assert_eq!(back[0].layouts, first[0].layouts);
        assert!(all_removed(&back).iter().all(|tile| !tile.is_kept()));
        assert_eq!(kept_dashboards(&back).collect::<Vec<_>>(), [8]);
    }
}
