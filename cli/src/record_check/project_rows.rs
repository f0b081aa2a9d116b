//! All rows of a project that the check compares, and the check of them.
//!
//! Must stay true: pure: the same rows have the same findings.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pennon_core::auth::SharedRecordId;
use pennon_core::store::Key;
use pennon_core::store::keys::{self, Counter, ProjectId, RecordKind};
use pennon_eventstore::cohort_lists::PartitionedList;
use pennon_insights::counter_value_of_id;

use super::activity::{self, EntryCount, ScopeLog};
use super::counters::IdsInUse;
use super::finding::{Finding, Findings, Rule};
use super::flags::{self, FlagTable, is_stable};
use super::insights::{self, InsightTable};
use super::listed::{self, DashboardFacts, ListedTable};
use super::sharing::{self, SharingTable, configuration_key};

/// The rows of a project, as they were read.
#[derive(Debug, Default)]
pub struct ProjectRows {
    /// The project.
    pub project: ProjectId,
    /// The number of rows.
    pub count: usize,
    /// Rows that could not be decoded, with the causes.
    pub unreadable: BTreeMap<Key, String>,
    /// Flags and role accesses.
    pub flags: FlagTable,
    /// Insights.
    pub insights: InsightTable,
    /// Dashboards.
    pub dashboards: ListedTable<DashboardFacts>,
    /// Cohorts, with lists that are stored in parts.
    pub cohorts: ListedTable<Option<PartitionedList>>,
    /// Problems of the parts of member lists, by cohort.
    pub member_lists: BTreeMap<u64, String>,
    /// Actions.
    pub actions: ListedTable<()>,
    /// The rows of the names of actions.
    pub action_names: BTreeMap<Key, u64>,
    /// Sharing configurations.
    pub sharing: SharingTable,
    /// The rows of last views, and their insights.
    pub views: BTreeMap<Key, u64>,
    /// The scheduled tasks that records name.
    pub tasks: BTreeSet<Key>,
    /// The activity log of each scope.
    pub logs: BTreeMap<&'static str, ScopeLog>,
    /// Records that a workspace file declares.
    pub declared: Declared,
}

/// The ids of the records of a project that a workspace file declares, and of dashboards that it removed.
#[derive(Debug, Clone, Default)]
pub struct Declared {
    /// Dashboards.
    pub dashboards: BTreeSet<u64>,
    /// Cohorts.
    pub cohorts: BTreeSet<u64>,
    /// Actions.
    pub actions: BTreeSet<u64>,
    /// Dashboards whose tiles are going to be removed; those that a workspace file no longer declares do not exist any more.
    pub removed_dashboards: BTreeSet<u64>,
}

impl ProjectRows {
    /// Whether no flag and no insight was written while the rows were read, so that the checksums were checked.
    pub fn is_stable(&self) -> bool {
        is_stable(self.flags.versions) && is_stable(self.insights.versions)
    }

    /// The violated invariants at `now`.
    pub fn check(&self, now: DateTime<Utc>) -> Vec<Finding> {
        let project = self.project;
        let mut findings = Findings::new(Some(project), &self.unreadable);
        let has_insight = |id: u64| {
            self.insights.records.contains_key(&id)
                || self.unreadable.contains_key(&insights::record_key(project, id))
        };
        let removed = &self.declared.removed_dashboards;
        let dashboards: BTreeSet<u64> = self.dashboards.records.keys().chain(removed).copied().collect();
        flags::check(project, &self.flags, &mut findings);
        insights::check(project, &self.insights, &dashboards, &mut findings);
        let kinds = (RecordKind::Dashboard, RecordKind::DashboardRow);
        listed::check_rows(project, kinds, &self.dashboards, &mut findings);
        let kinds = (RecordKind::Cohort, RecordKind::CohortRow);
        listed::check_rows(project, kinds, &self.cohorts, &mut findings);
        let kinds = (RecordKind::Action, RecordKind::ActionRow);
        listed::check_rows(project, kinds, &self.actions, &mut findings);
        listed::check_names(
            project,
            &self.actions,
            &self.action_names,
            &self.declared.actions,
            &mut findings,
        );
        listed::check_dashboards(project, &self.dashboards, &has_insight, &self.tasks, now, &mut findings);
        sharing::check(project, &self.sharing, &has_insight, &self.dashboards, &mut findings);
        for (cohort, problem) in &self.member_lists {
            let record = keys::record(project, RecordKind::Cohort, *cohort);
            findings.add(Rule::Reference, &record, format!("its member list is damaged: {problem}"));
        }
        for (_, insight) in self.views.iter().filter(|(_, insight)| !has_insight(**insight)) {
            findings.add_missing(&insights::record_key(project, *insight), "last view");
        }
        self.check_logs(&mut findings);
        findings.into_sorted()
    }

    fn check_logs(&self, findings: &mut Findings) {
        for (scope, log) in &self.logs {
            let Some(kind) = kind_of_scope(scope) else { continue };
            let record_key = |id: u64| keys::record(self.project, kind, id);
            let expected = self.entry_counts(kind);
            // A workspace file may remove the others.
            let must_exist = matches!(kind, RecordKind::Flag | RecordKind::Insight);
            activity::check(self.project, scope, log, &expected, &record_key, must_exist, findings);
        }
    }

    /// The number of activity entries of each record of a kind. A record that a workspace file declares may have been removed and
    /// declared again, which keeps its entries.
    fn entry_counts(&self, kind: RecordKind) -> BTreeMap<Key, EntryCount> {
        let project = self.project;
        let shared = |id: SharedRecordId| self.sharing.writes_of(&configuration_key(project, id));
        let most = |id: u64, writes: u64| (keys::record(project, kind, id), EntryCount::AtMost(writes));
        match kind {
            RecordKind::Flag => {
                let count = |version: i64| EntryCount::Exactly(version.unsigned_abs());
                let flags = self.flags.records.iter();
                flags.map(|(id, flag)| (flags::record_key(project, *id), count(flag.version))).collect()
            }
            RecordKind::Insight => {
                let writes = |id: u64, version: u64| version + shared(SharedRecordId::Insight(id));
                let insights = self.insights.records.iter();
                insights.map(|(id, it)| most(*id, writes(*id, it.item_version))).collect()
            }
            RecordKind::Dashboard => {
                let writes = |id: u64, version: u64| version + shared(SharedRecordId::Dashboard(id));
                let dashboards = self.dashboards.records.iter();
                let undeclared = dashboards.filter(|(id, _)| !self.declared.dashboards.contains(id));
                undeclared.map(|(id, it)| most(*id, writes(*id, it.item_version))).collect()
            }
            RecordKind::Cohort => {
                let undeclared =
                    self.cohorts.records.iter().filter(|(id, _)| !self.declared.cohorts.contains(id));
                undeclared.map(|(id, it)| most(*id, it.item_version)).collect()
            }
            RecordKind::Action => {
                let undeclared =
                    self.actions.records.iter().filter(|(id, _)| !self.declared.actions.contains(id));
                undeclared.map(|(id, it)| most(*id, it.item_version)).collect()
            }
            _ => BTreeMap::new(),
        }
    }

    /// Adds the ids of the project's records.
    pub fn add_ids(&self, ids: &mut IdsInUse) {
        let project = self.project;
        for id in self.flags.records.keys() {
            ids.add(Counter::Flag, *id, &flags::record_key(project, *id));
        }
        for (key, (_, access)) in &self.flags.accesses {
            ids.add(Counter::RoleAccess, access.id, key);
        }
        for (id, insight) in &self.insights.records {
            let record = insights::record_key(project, *id);
            ids.add(Counter::Insight, counter_value_of_id(*id), &record);
            for (tile, _, _) in &insight.tiles {
                ids.add(Counter::Tile, *tile, &record);
            }
        }
        let mut add_all = |counter, kind, records: &mut dyn Iterator<Item = &u64>| {
            for id in records {
                ids.add(counter, *id, &keys::record(project, kind, *id));
            }
        };
        add_all(Counter::Dashboard, RecordKind::Dashboard, &mut self.dashboards.records.keys());
        add_all(Counter::Cohort, RecordKind::Cohort, &mut self.cohorts.records.keys());
        add_all(Counter::Action, RecordKind::Action, &mut self.actions.records.keys());
        for (scope, log) in &self.logs {
            let Some((kind, counter)) = kind_of_scope(scope).zip(counter_of_scope(scope)) else { continue };
            for id in log.entries.values() {
                let value = if kind == RecordKind::Insight { counter_value_of_id(*id) } else { *id };
                ids.add(counter, value, &keys::record(project, kind, *id));
            }
        }
    }
}

/// The kind of records that a scope logs.
pub fn kind_of_scope(scope: &str) -> Option<RecordKind> {
    match scope {
        activity::FLAGS => Some(RecordKind::Flag),
        "Insight" => Some(RecordKind::Insight),
        "Dashboard" => Some(RecordKind::Dashboard),
        "Cohort" => Some(RecordKind::Cohort),
        "Action" => Some(RecordKind::Action),
        _ => None,
    }
}

fn counter_of_scope(scope: &str) -> Option<Counter> {
    match kind_of_scope(scope)? {
        RecordKind::Flag => Some(Counter::Flag),
        RecordKind::Insight => Some(Counter::Insight),
        RecordKind::Dashboard => Some(Counter::Dashboard),
        RecordKind::Cohort => Some(Counter::Cohort),
        RecordKind::Action => Some(Counter::Action),
        _ => None,
    }
}
