//! The rows of a project's insights: summary rows, short ids, checksum, tiles and the pointers of dashboards.
//!
//! Must stay true: pure; [`InsightTable`] has the rows as they were read.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_core::store::summary_rows::{RowsVersion, SummaryRowKind};
use pennon_core::store::{Item, Key};
use pennon_insights::{Insight, InsightRow, InsightRowKind};
use serde::{Deserialize, Serialize};

use super::finding::{ExpectedRow, Findings, RowKind, Rule, compare_rows, different_fields, row_name};
use super::flags::is_stable;

const SHORT_ID: RowKind = RowKind { rule: Rule::UniqueRow, name: "row of the short id" };

/// What the check keeps of an insight's record.
#[derive(Debug, Clone)]
pub struct InsightFacts {
    /// Whether it is deleted.
    pub is_deleted: bool,
    /// Its short id.
    pub short_id: String,
    /// The version of its item.
    pub item_version: u64,
    /// The version of the item with which its summary row was written.
    pub row_version: u64,
    /// Its summary row, computed from the record.
    pub row: InsightRow,
    /// Id, dashboard, and whether it is not removed, of each tile.
    pub tiles: Vec<(u64, u64, bool)>,
}

/// The body of the row of a short id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortIdRow {
    id: u64,
}

/// The rows of the insights of a project.
#[derive(Debug, Default)]
pub struct InsightTable {
    /// By id.
    pub records: BTreeMap<u64, InsightFacts>,
    /// The summary rows.
    pub rows: BTreeMap<Key, InsightRow>,
    /// The rows of short ids.
    pub short_ids: BTreeMap<Key, ShortIdRow>,
    /// The version of the rows, before and after they were read.
    pub versions: [RowsVersion; 2],
    /// The dashboard and the insight of each pointer.
    pub pointers: BTreeMap<Key, (u64, u64)>,
}

/// The key of an insight's record.
pub fn record_key(project: ProjectId, id: u64) -> Key {
    keys::record(project, RecordKind::Insight, id)
}

/// Decodes the record of an insight.
pub fn decode_record(project: ProjectId, item: &Item) -> Result<(u64, InsightFacts), String> {
    let insight: Insight = item.body().map_err(|e| e.to_string())?;
    if record_key(project, insight.id) != item.key {
        return Err(format!("its id is {}", insight.id));
    }
    let row = InsightRow { item_version: insight.row_version, ..InsightRow::new(&insight, item.text.len()) };
    let tiles = insight.tiles.iter().map(|tile| (tile.id, tile.dashboard_id, tile.is_kept()));
    let facts = InsightFacts {
        is_deleted: insight.deleted,
        short_id: insight.short_id.clone(),
        item_version: item.version,
        row_version: insight.row_version,
        tiles: tiles.collect(),
        row,
    };
    Ok((insight.id, facts))
}

/// Decodes a summary row.
pub fn decode_row(item: &Item) -> Result<InsightRow, String> {
    InsightRow::from_item(item).map_err(|e| e.to_string())
}

/// Decodes the row of a short id.
pub fn decode_short_id(item: &Item) -> Result<ShortIdRow, String> {
    item.body().map_err(|e| e.to_string())
}

/// Decodes a pointer of `dashboard`; returns the insight.
pub fn decode_pointer(item: &Item) -> Result<u64, String> {
    let id = item.key.sk.strip_prefix(keys::DASHBOARD_TILES).and_then(|id| id.parse().ok());
    id.ok_or("its key has no insight".to_owned())
}

/// Checks the rows of the insights. `dashboards` are all dashboards, including deleted ones and those
/// whose tiles are going to be removed.
pub fn check(project: ProjectId, table: &InsightTable, dashboards: &BTreeSet<u64>, findings: &mut Findings) {
    let record = |id: u64| record_key(project, id);
    let exists = |key: &Key| key.sk.parse().is_ok_and(|id: u64| table.records.contains_key(&id));
    check_summary_rows(project, table, findings);
    let expected = table.records.iter().map(|(id, insight)| {
        let row = ExpectedRow { record: record(*id), content: ShortIdRow { id: *id } };
        (keys::short_id(project, &insight.short_id), row)
    });
    compare_rows(findings, SHORT_ID, &expected.collect(), &table.short_ids, |_, row| record(row.id), exists);
    check_tiles(project, table, dashboards, findings);
    check_checksum(project, table, findings);
}

fn check_summary_rows(project: ProjectId, table: &InsightTable, findings: &mut Findings) {
    let live: BTreeMap<Key, (&u64, &InsightFacts)> = table
        .records
        .iter()
        .filter(|(_, insight)| !insight.is_deleted)
        .map(|(id, insight)| (keys::insight_row(project, *id), (id, insight)))
        .collect();
    for (key, (id, insight)) in &live {
        let record = row_name(&record_key(project, **id));
        let Some(stored) = table.rows.get(key) else {
            findings.add(Rule::SummaryRow, key, format!("is missing: the summary row of {record}"));
            continue;
        };
        // A write that changes only the layout of tiles leaves the row as it is, and the record has another size.
        let is_of_record = insight.row_version == insight.item_version;
        let kib = if is_of_record { insight.row.kib } else { stored.kib };
        let computed = InsightRow { kib, ..insight.row.clone() };
        if *stored != computed {
            let fields = different_fields(stored, &computed);
            let detail = format!("is not the summary row of {record}: {fields}");
            findings.add(Rule::SummaryRow, key, detail);
        }
    }
    for (key, row) in table.rows.iter().filter(|(key, _)| !live.contains_key(*key)) {
        let record = record_key(project, row.id);
        if findings.is_unreadable(&record) {
            continue;
        }
        match table.records.contains_key(&row.id) {
            true => {
                let detail = format!("is a summary row that {} does not have", row_name(&record));
                findings.add(Rule::SummaryRow, key, detail);
            }
            false => findings.add_missing(&record, "summary row"),
        }
    }
}

/// The checksum of the version row is the sum of those of all insights.
fn check_checksum(project: ProjectId, table: &InsightTable, findings: &mut Findings) {
    let records_pk = keys::records_pk(project, RecordKind::Insight);
    let is_partial = findings.has_unreadable_in(&records_pk) || findings.has_missing_in(&records_pk);
    if is_partial || !is_stable(table.versions) {
        return;
    }
    let live = table.records.values().filter(|insight| !insight.is_deleted);
    let sum = live.fold(0_i64, |sum, insight| sum.wrapping_add(InsightRowKind::checksum(&insight.row)));
    let stored = table.versions[1].sums.rows;
    if stored != sum {
        let detail = format!("has the checksum {stored} of all insights, which is {sum}");
        findings.add(Rule::Checksum, &keys::insights_version(project), detail);
    }
}

/// An insight has one tile for each dashboard, which exists and points to the insight; no two tiles have one id.
fn check_tiles(
    project: ProjectId,
    table: &InsightTable,
    dashboards: &BTreeSet<u64>,
    findings: &mut Findings,
) {
    let mut tiles: BTreeMap<u64, u64> = BTreeMap::new();
    for (id, insight) in &table.records {
        let record = record_key(project, *id);
        let mut places = BTreeSet::new();
        for (tile, dashboard, is_kept) in &insight.tiles {
            if let Some(other) = tiles.insert(*tile, *id) {
                let other = row_name(&record_key(project, other));
                findings.add(Rule::Reference, &record, format!("has the tile {tile}, as {other} has"));
            }
            if !places.insert(*dashboard) {
                findings.add(Rule::Reference, &record, format!("has two tiles on the dashboard {dashboard}"));
            }
            if !is_kept {
                continue;
            }
            if !dashboards.contains(dashboard) {
                findings.add_missing(&keys::record(project, RecordKind::Dashboard, *dashboard), "tile");
            }
            let pointer = keys::dashboard_tile(project, *dashboard, *id);
            if !table.pointers.contains_key(&pointer) {
                let detail = format!("is missing: the pointer to {}", row_name(&record));
                findings.add(Rule::Reference, &pointer, detail);
            }
        }
    }
    // A pointer stays when its insight is deleted with its dashboard, and has no effect then.
    for (key, (dashboard, insight)) in &table.pointers {
        let record = record_key(project, *insight);
        if findings.is_unreadable(&record) {
            continue;
        }
        match table.records.get(insight) {
            None => findings.add_missing(&record, "pointer of a dashboard"),
            Some(facts) if facts.tiles.iter().all(|(_, on, _)| on != dashboard) => {
                let detail = format!("points to {}, which has no tile on the dashboard", row_name(&record));
                findings.add(Rule::Reference, key, detail);
            }
            Some(_) => {}
        }
    }
}
