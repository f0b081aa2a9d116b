//! Loads the rows of a project for the check.
//!
//! Must stay true: only what the check compares is kept of a record, so that the memory of a check does not depend on the sizes of
//! flags and queries; records are read before the rows that they name, so that a concurrent creation is no missing row.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::store::keys::{
    self, FLAG_ROW_SHARDS, INSIGHT_ROW_SHARDS, ProjectId, RecordKind, VIEW_SHARDS,
};
use pennon_core::store::summary_rows::RowsVersion;
use pennon_core::store::{Item, Key, Table};
use pennon_eventstore::EventStoreError;
use pennon_eventstore::cohort_lists::CohortList;
use pennon_insights::{ActionRecord, DashboardRecord, ListedResource};

use super::activity::{self, SCOPES, ScopeLog};
use super::listed::{self, ListedTable};
use super::project_rows::{Declared, ProjectRows, kind_of_scope};
use super::reader::Reader;
use super::{flags, insights, sharing};

/// Loads the rows of `project`.
pub async fn load_project(
    records: &Table,
    project: ProjectId,
    declared: Declared,
    users: &BTreeSet<u64>,
) -> Result<ProjectRows, String> {
    let mut loader = Loader { records, reader: Reader::new(records), project };
    let mut rows = ProjectRows { project, declared, ..ProjectRows::default() };
    loader.load_flags(&mut rows).await?;
    loader.load_role_accesses(&mut rows).await?;
    loader.load_insights(&mut rows).await?;
    rows.dashboards =
        loader.load_listed(|record: &DashboardRecord| listed::dashboard_facts(project, record)).await?;
    rows.cohorts = loader.load_listed(listed::member_list).await?;
    rows.actions = loader.load_listed(|_: &ActionRecord| ()).await?;
    loader.load_pointers(&mut rows).await?;
    loader.load_named_rows(&mut rows).await?;
    loader.load_views(&mut rows, users).await?;
    loader.load_member_lists(&mut rows).await?;
    for scope in SCOPES {
        let log = loader.load_log(scope, &rows).await?;
        rows.logs.insert(scope, log);
    }
    rows.count = loader.reader.rows;
    rows.unreadable = loader.reader.unreadable;
    Ok(rows)
}

struct Loader<'a> {
    records: &'a Table,
    reader: Reader<'a>,
    project: ProjectId,
}

impl Loader<'_> {
    async fn version(&mut self, key: &Key) -> Result<RowsVersion, String> {
        let found = self.reader.get_all(vec![key.clone()]).await?;
        Ok(RowsVersion::from_item(found.get(key)))
    }

    async fn load_flags(&mut self, rows: &mut ProjectRows) -> Result<(), String> {
        let (project, table) = (self.project, &mut rows.flags);
        let version = keys::project_version(project);
        table.versions[0] = self.version(&version).await?;
        let pk = keys::records_pk(project, RecordKind::Flag);
        self.reader
            .visit_partition(&pk, |item| insert(&mut table.records, flags::decode_record(project, item)))
            .await?;
        for shard in 0..FLAG_ROW_SHARDS {
            let pk = keys::flag_rows_pk(project, shard);
            self.reader
                .visit_partition(&pk, |item| insert_row(&mut table.rows, item, flags::decode_row))
                .await?;
        }
        let pk = keys::dependents_pk(project);
        self.reader
            .visit_partition(&pk, |item| insert_row(&mut table.dependencies, item, flags::decode_row))
            .await?;
        let pk = keys::flag_keys_pk(project);
        self.reader
            .visit_partition(&pk, |item| {
                if keys::live_flag_key(&item.key.sk).is_some() {
                    table.claims.insert(item.key.clone(), item.count);
                }
                Ok(())
            })
            .await?;
        table.versions[1] = self.version(&version).await?;
        Ok(())
    }

    async fn load_role_accesses(&mut self, rows: &mut ProjectRows) -> Result<(), String> {
        let (project, table) = (self.project, &mut rows.flags);
        let ids: Vec<u64> = table.records.keys().copied().collect();
        let parts = ids.iter().flat_map(|flag| {
            (0..keys::ROLE_ACCESS_PARTS)
                .map(move |part| (keys::role_accesses_pk(project, *flag, part), *flag))
        });
        let parts: BTreeMap<String, u64> = parts.collect();
        let pks = parts.keys().cloned().collect();
        self.reader
            .visit_partitions(pks, |item| {
                let flag = parts.get(&item.key.pk).copied().unwrap_or_default();
                let access = flags::decode_access(project, flag, item)?;
                table.accesses.insert(item.key.clone(), (flag, access));
                Ok(())
            })
            .await?;
        let markers: BTreeMap<String, u64> =
            ids.iter().map(|flag| (keys::flag_children_pk(project, *flag), *flag)).collect();
        let pks = markers.keys().cloned().collect();
        self.reader
            .visit_partitions(pks, |item| {
                let flag = markers.get(&item.key.pk).copied().unwrap_or_default();
                table.role_markers.insert(item.key.clone(), (flag, flags::decode_marker(item)?));
                Ok(())
            })
            .await
    }

    async fn load_insights(&mut self, rows: &mut ProjectRows) -> Result<(), String> {
        let (project, table) = (self.project, &mut rows.insights);
        let version = keys::insights_version(project);
        table.versions[0] = self.version(&version).await?;
        let pk = keys::records_pk(project, RecordKind::Insight);
        self.reader
            .visit_partition(&pk, |item| insert(&mut table.records, insights::decode_record(project, item)))
            .await?;
        for shard in 0..INSIGHT_ROW_SHARDS {
            let pk = keys::insight_rows_pk(project, shard);
            self.reader
                .visit_partition(&pk, |item| insert_row(&mut table.rows, item, insights::decode_row))
                .await?;
        }
        let pk = keys::short_id(project, "").pk;
        self.reader
            .visit_partition(&pk, |item| insert_row(&mut table.short_ids, item, insights::decode_short_id))
            .await?;
        table.versions[1] = self.version(&version).await?;
        Ok(())
    }

    /// The records of a kind and their summary rows.
    async fn load_listed<R: ListedResource, X>(
        &mut self,
        more: impl Fn(&R) -> X,
    ) -> Result<ListedTable<X>, String> {
        let project = self.project;
        let mut table = ListedTable::default();
        let pk = keys::records_pk(project, R::KIND);
        self.reader
            .visit_partition(&pk, |item| {
                insert(&mut table.records, listed::decode_record(project, item, &more))
            })
            .await?;
        let marker = keys::summary_rows_complete_marker(project, R::ROWS);
        let decode = |item: &Item| item.body().map_err(|e| e.to_string());
        let ListedTable { rows, is_complete, .. } = &mut table;
        self.reader
            .visit_partition(&marker.pk.clone(), |item| {
                if item.key == marker {
                    *is_complete = true;
                    return Ok(());
                }
                insert_row(rows, item, decode)
            })
            .await?;
        Ok(table)
    }

    /// The pointers of all dashboards, and of those that only tiles name.
    async fn load_pointers(&mut self, rows: &mut ProjectRows) -> Result<(), String> {
        let project = self.project;
        let named =
            rows.insights.records.values().flat_map(|insight| insight.tiles.iter().map(|tile| tile.1));
        let dashboards: BTreeSet<u64> = rows.dashboards.records.keys().copied().chain(named).collect();
        let partitions: BTreeMap<String, u64> =
            dashboards.into_iter().map(|id| (keys::dashboard_children_pk(project, id), id)).collect();
        let pointers = &mut rows.insights.pointers;
        let pks = partitions.keys().cloned().collect();
        self.reader
            .visit_partitions(pks, |item| {
                let dashboard = partitions.get(&item.key.pk).copied().unwrap_or_default();
                pointers.insert(item.key.clone(), (dashboard, insights::decode_pointer(item)?));
                Ok(())
            })
            .await
    }

    /// Sharing configurations, and the rows that records name: tokens, names of actions, scheduled tasks.
    async fn load_named_rows(&mut self, rows: &mut ProjectRows) -> Result<(), String> {
        let pk = keys::sharing(self.project, 0).pk;
        let configurations = &mut rows.sharing.configurations;
        self.reader.visit_partition(&pk, |item| insert_row(configurations, item, sharing::decode)).await?;
        let tokens = configurations.values().map(|facts| keys::share(&facts.hash)).collect();
        for (key, item) in self.reader.get_all(tokens).await? {
            match item.body() {
                Ok(shared) => drop(rows.sharing.tokens.insert(key, shared)),
                Err(error) => drop(self.reader.unreadable.insert(key, error.to_string())),
            }
        }
        let names: BTreeSet<Key> = rows.actions.records.values().flat_map(|it| it.names.clone()).collect();
        let names = self.reader.get_all(names.into_iter().collect()).await?;
        rows.action_names = names.into_iter().map(|(key, item)| (key, item.version)).collect();
        let removals = rows.dashboards.records.values().filter_map(|it| it.more.removal.clone());
        let tasks = self.reader.get_all(removals.map(|(_, key)| key).collect()).await?;
        rows.tasks = tasks.into_keys().collect();
        Ok(())
    }

    async fn load_views(&mut self, rows: &mut ProjectRows, users: &BTreeSet<u64>) -> Result<(), String> {
        let project = self.project;
        let shards = (0..VIEW_SHARDS).map(|shard| keys::views_pk(project, shard));
        let pks = shards.chain(users.iter().map(|user| keys::viewed_pk(project, *user))).collect();
        let views = &mut rows.views;
        self.reader
            .visit_partitions(pks, |item| {
                let insight = item.key.sk.parse().map_err(|_| "its key has no insight".to_owned())?;
                views.insert(item.key.clone(), insight);
                Ok(())
            })
            .await
    }

    /// Reads the member lists that are stored in parts.
    async fn load_member_lists(&mut self, rows: &mut ProjectRows) -> Result<(), String> {
        for (id, cohort) in &rows.cohorts.records {
            let Some(list) = cohort.more else { continue };
            self.reader.rows += list.keys(self.project, *id).len();
            match CohortList::Partitioned(list).members(self.records, self.project, *id).await {
                Ok(_) => {}
                Err(EventStoreError::Corrupt(problem)) => drop(rows.member_lists.insert(*id, problem)),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// The log of a scope, with the pointers of the records of its kind.
    async fn load_log(&mut self, scope: &'static str, rows: &ProjectRows) -> Result<ScopeLog, String> {
        let project = self.project;
        let mut log = ScopeLog::default();
        let days = &mut log.days;
        self.reader
            .visit_partition(&keys::activity_days_pk(project, scope), |item| {
                days.insert(item.key.sk.clone(), item.count);
                Ok(())
            })
            .await?;
        let counted = log.months();
        self.load_entries(scope, &counted, &mut log).await?;
        let named: BTreeSet<u64> = log.entries.values().copied().chain(record_ids(scope, rows)).collect();
        let items: BTreeMap<String, u64> =
            named.into_iter().map(|id| (keys::activity_of_item_pk(project, scope, id), id)).collect();
        let pointers = &mut log.pointers;
        let pks = items.keys().cloned().collect();
        self.reader
            .visit_partitions(pks, |item| {
                let id = items.get(&item.key.pk).copied().unwrap_or_default();
                pointers.entry(item.key.sk.clone()).or_default().insert(id);
                Ok(())
            })
            .await?;
        // Months without a count of any day.
        let uncounted = log.months().difference(&counted).cloned().collect();
        self.load_entries(scope, &uncounted, &mut log).await?;
        Ok(log)
    }

    async fn load_entries(
        &mut self,
        scope: &str,
        months: &BTreeSet<String>,
        log: &mut ScopeLog,
    ) -> Result<(), String> {
        let entries = &mut log.entries;
        for month in months {
            let pk = keys::activity_month_pk(self.project, scope, month);
            self.reader
                .visit_partition(&pk, |item| {
                    entries.insert(item.key.sk.clone(), activity::decode_entry(scope, item)?);
                    Ok(())
                })
                .await?;
        }
        Ok(())
    }
}

/// The ids of the records that a scope logs.
fn record_ids<'a>(scope: &str, rows: &'a ProjectRows) -> Box<dyn Iterator<Item = u64> + 'a> {
    match kind_of_scope(scope) {
        Some(RecordKind::Flag) => Box::new(rows.flags.records.keys().copied()),
        Some(RecordKind::Insight) => Box::new(rows.insights.records.keys().copied()),
        Some(RecordKind::Dashboard) => Box::new(rows.dashboards.records.keys().copied()),
        Some(RecordKind::Cohort) => Box::new(rows.cohorts.records.keys().copied()),
        Some(RecordKind::Action) => Box::new(rows.actions.records.keys().copied()),
        _ => Box::new(std::iter::empty()),
    }
}

fn insert<T>(records: &mut BTreeMap<u64, T>, decoded: Result<(u64, T), String>) -> Result<(), String> {
    let (id, record) = decoded?;
    records.insert(id, record);
    Ok(())
}

fn insert_row<T>(
    rows: &mut BTreeMap<Key, T>,
    item: &Item,
    decode: impl FnOnce(&Item) -> Result<T, String>,
) -> Result<(), String> {
    rows.insert(item.key.clone(), decode(item)?);
    Ok(())
}
