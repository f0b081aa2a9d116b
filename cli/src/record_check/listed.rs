//! The rows of a project's dashboards, cohorts and actions: summary rows, and the names of actions.
//!
//! Must stay true: pure; [`ListedTable`] has the rows as they were read.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_core::store::{Item, Key};
use pennon_eventstore::cohort_lists::PartitionedList;
use pennon_insights::{CohortRecord, DashboardRecord, ListedResource, SummaryRow};

use super::finding::{ExpectedRow, Findings, RowKind, Rule, compare_rows, row_name};

const SUMMARY: RowKind = RowKind { rule: Rule::SummaryRow, name: "summary row" };

/// What the check keeps of a record.
#[derive(Debug, Clone)]
pub struct ListedFacts<X> {
    /// Whether it is deleted.
    pub is_deleted: bool,
    /// The version of its item.
    pub item_version: u64,
    /// Its summary row, computed from the record.
    pub row: SummaryRow,
    /// The rows that make its name unique.
    pub names: Vec<Key>,
    /// What the kind has besides.
    pub more: X,
}

/// What the check keeps of a dashboard besides.
#[derive(Debug, Clone, Default)]
pub struct DashboardFacts {
    /// Whether its sharing token gives access.
    pub is_shared: bool,
    /// When its tiles are removed, and the key of that task.
    pub removal: Option<(DateTime<Utc>, Key)>,
    /// The insights that were generated for it.
    pub generated: Vec<u64>,
}

/// The rows of the records of a kind.
#[derive(Debug)]
pub struct ListedTable<X> {
    /// By id.
    pub records: BTreeMap<u64, ListedFacts<X>>,
    /// The summary rows.
    pub rows: BTreeMap<Key, SummaryRow>,
    /// Whether records that an older release wrote have their summary rows.
    pub is_complete: bool,
}

impl<X> Default for ListedTable<X> {
    fn default() -> Self {
        ListedTable { records: BTreeMap::new(), rows: BTreeMap::new(), is_complete: false }
    }
}

/// Decodes the record of a kind.
pub fn decode_record<R: ListedResource, X>(
    project: ProjectId,
    item: &Item,
    more: impl FnOnce(&R) -> X,
) -> Result<(u64, ListedFacts<X>), String> {
    let record: R = item.body().map_err(|e| e.to_string())?;
    let id = record.id();
    if keys::record(project, R::KIND, id) != item.key {
        return Err(format!("its id is {id}"));
    }
    let facts = ListedFacts {
        is_deleted: record.is_deleted(),
        item_version: item.version,
        row: record.row(),
        names: record.unique_names(project),
        more: more(&record),
    };
    Ok((id, facts))
}

/// What the check keeps of a dashboard.
pub fn dashboard_facts(project: ProjectId, record: &DashboardRecord) -> DashboardFacts {
    let purposes = record.generated.as_object().into_iter().flat_map(|generated| generated.values());
    let generated = purposes.filter_map(|ids| ids.as_array()).flatten().filter_map(serde_json::Value::as_u64);
    DashboardFacts {
        is_shared: record.is_shared,
        removal: record.swept_from.zip(record.tile_removal_key(project)),
        generated: generated.collect(),
    }
}

/// The member list of a cohort, if it is stored in parts.
pub fn member_list(record: &CohortRecord) -> Option<PartitionedList> {
    record.members
}

/// Checks the summary rows of a kind.
pub fn check_rows<X>(
    project: ProjectId,
    (kind, rows): (RecordKind, RecordKind),
    table: &ListedTable<X>,
    findings: &mut Findings,
) {
    let record = |id: u64| keys::record(project, kind, id);
    let expected = table.records.iter().filter(|(id, facts)| {
        // Without the marker, the first list writes the rows that are missing.
        !facts.is_deleted
            && (table.is_complete || table.rows.contains_key(&keys::record(project, rows, **id)))
    });
    let expected = expected.map(|(id, facts)| {
        let row = ExpectedRow { record: record(*id), content: facts.row.clone() };
        (keys::record(project, rows, *id), row)
    });
    let exists = |key: &Key| key.sk.parse().is_ok_and(|id: u64| table.records.contains_key(&id));
    compare_rows(findings, SUMMARY, &expected.collect(), &table.rows, |_, row| record(row.id), exists);
}

/// Checks the rows of the names of actions, by the ids in them. Workspace files may give two actions one name, so that a
/// declared action may have none.
pub fn check_names(
    project: ProjectId,
    actions: &ListedTable<()>,
    names: &BTreeMap<Key, u64>,
    declared: &BTreeSet<u64>,
    findings: &mut Findings,
) {
    let record = |id: u64| keys::record(project, RecordKind::Action, id);
    for (id, action) in &actions.records {
        for name in &action.names {
            let owner = names.get(name);
            if action.is_deleted && owner == Some(id) {
                let detail = format!("belongs to {}, which is deleted", row_name(&record(*id)));
                findings.add(Rule::UniqueRow, name, detail);
            }
            if action.is_deleted || owner == Some(id) || declared.contains(id) {
                continue;
            }
            let Some(owner) = owner else {
                let detail = format!("is missing: the row of the name of {}", row_name(&record(*id)));
                findings.add(Rule::UniqueRow, name, detail);
                continue;
            };
            let has_name = |it: &ListedFacts<()>| !it.is_deleted && it.names.contains(name);
            if !actions.records.get(owner).is_some_and(has_name) {
                let detail = format!("names {}, which does not have the name", row_name(&record(*owner)));
                findings.add(Rule::UniqueRow, name, detail);
            }
        }
    }
}

/// Checks what dashboards refer to: generated insights, and the task that removes the tiles of a deleted one.
pub fn check_dashboards(
    project: ProjectId,
    dashboards: &ListedTable<DashboardFacts>,
    insights: &dyn Fn(u64) -> bool,
    tasks: &BTreeSet<Key>,
    now: DateTime<Utc>,
    findings: &mut Findings,
) {
    for (id, dashboard) in &dashboards.records {
        let record = keys::record(project, RecordKind::Dashboard, *id);
        for insight in dashboard.more.generated.iter().filter(|insight| !insights(**insight)) {
            findings.add_missing(&keys::record(project, RecordKind::Insight, *insight), "generated insight");
        }
        let Some((at, task)) = &dashboard.more.removal else { continue };
        if !dashboard.is_deleted {
            findings.add(Rule::Task, &record, "is not deleted, and its tiles have a time of removal");
        } else if *at > now && !tasks.contains(task) {
            let detail = format!("is missing: the removal of the tiles of {}", row_name(&record));
            findings.add(Rule::Task, task, detail);
        }
    }
}
