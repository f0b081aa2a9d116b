//! Loads the cohorts that flags and conditions name: their criteria, and the member lists of static cohorts.
//!
//! Must stay true: cached cohorts are used only for the project version at which they were read; every change of a
//! cohort raises that version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_core::store::{Item, PartitionQuery, StoreError};
use pennon_eventstore::cohort_lists::CohortList;
use pennon_flag_rules::relations::cohort::FlagCohort;
use serde_json::Value;

use crate::Flags;
use crate::store::{ByteLimitedCache, ProjectVersion, record_id};

/// Approximate bytes of cached cohorts.
const BYTES_MAX: usize = 16 << 20;

/// Cohorts and, transitively, the cohorts that their criteria name.
#[derive(Debug, Default)]
pub struct LoadedCohorts {
    /// The existing cohorts by id, deleted ones included.
    pub by_id: BTreeMap<i64, FlagCohort>,
    /// Member lists of the static ones.
    pub cohort_lists: BTreeMap<i64, CohortList>,
    requested: BTreeSet<i64>,
    bytes: usize,
}

impl LoadedCohorts {
    fn add_item(&mut self, project: ProjectId, item: &Item) -> Result<(), StoreError> {
        let record: Value = item.body()?;
        let Some(cohort) = FlagCohort::read(&record) else { return Ok(()) };
        if cohort.is_static && !cohort.deleted {
            self.cohort_lists.insert(cohort.id, CohortList::of_record(project, &record));
        }
        self.bytes += item.text.len() * 4 + 500;
        self.by_id.insert(cohort.id, cohort);
        Ok(())
    }

    /// Member lists of these cohorts.
    pub fn cohort_lists_for(&self, ids: &BTreeSet<i64>) -> BTreeMap<i64, CohortList> {
        let cohort_lists = ids.iter().filter_map(|id| Some((*id, self.cohort_lists.get(id)?.clone())));
        cohort_lists.collect()
    }
}

/// The cohort cache of a process.
#[derive(Debug, Clone)]
pub struct CohortCache(Arc<CacheEntries>);

/// Per project: the version number at which the cohorts were read, and the cohorts.
type CacheEntries = ByteLimitedCache<ProjectId, (i64, Arc<LoadedCohorts>)>;

impl Default for CohortCache {
    fn default() -> CohortCache {
        CohortCache(Arc::new(ByteLimitedCache::new(BYTES_MAX)))
    }
}

impl CohortCache {
    fn get(&self, project: ProjectId, number: i64, named: &BTreeSet<i64>) -> Option<Arc<LoadedCohorts>> {
        let (cached_version, cohorts) = self.0.get(&project)?;
        (cached_version == number && named.is_subset(&cohorts.requested)).then_some(cohorts)
    }

    fn put(&self, project: ProjectId, number: i64, cohorts: &Arc<LoadedCohorts>) {
        self.0.insert(project, (number, cohorts.clone()), cohorts.bytes);
    }
}

/// Loads the cohorts `named` at a version that was read before. No round trip when they are cached; otherwise usually
/// one.
pub async fn load_at_version(
    flags: &Flags,
    project: ProjectId,
    version: ProjectVersion,
    named: BTreeSet<i64>,
) -> Result<Arc<LoadedCohorts>, StoreError> {
    if named.is_empty() {
        return Ok(Arc::default());
    }
    if let Some(cached) = flags.cohorts.get(project, version.number, &named) {
        return Ok(cached);
    }
    let cohorts = Arc::new(load(flags, project, named).await?);
    flags.cohorts.put(project, version.number, &cohorts);
    Ok(cohorts)
}

/// Loads the cohorts `named` and, transitively, those that they refer to.
///
/// Usually one round trip: a page of all cohorts is read in parallel with the named ones, and contains those that they
/// refer to.
pub async fn load(
    flags: &Flags,
    project: ProjectId,
    named: BTreeSet<i64>,
) -> Result<LoadedCohorts, StoreError> {
    let mut loaded = LoadedCohorts::default();
    if named.is_empty() {
        return Ok(loaded);
    }
    let records = &flags.app.store.records;
    let all = PartitionQuery::partition(keys::records_pk(project, RecordKind::Cohort));
    let record_keys = |ids: &BTreeSet<i64>| -> Vec<_> {
        ids.iter().map(|id| keys::record(project, RecordKind::Cohort, record_id(*id))).collect()
    };
    let named_keys = record_keys(&named);
    let (items, page) = tokio::try_join!(records.batch_get(&named_keys), records.page(&all, None))?;
    for item in items.iter().flatten().chain(&page.items) {
        loaded.add_item(project, item)?;
    }
    loaded.requested = named;
    while page.next.is_some() {
        let named = loaded.by_id.values().flat_map(FlagCohort::named);
        let missing: BTreeSet<i64> =
            named.filter(|id| !loaded.by_id.contains_key(id) && !loaded.requested.contains(id)).collect();
        if missing.is_empty() {
            break;
        }
        for item in records.batch_get(&record_keys(&missing)).await?.iter().flatten() {
            loaded.add_item(project, item)?;
        }
        loaded.requested.extend(missing);
    }
    Ok(loaded)
}
