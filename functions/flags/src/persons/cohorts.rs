//! The cohorts that flags and conditions name: their criteria, and the lists of static ones.
//!
//! Must stay true: remembered cohorts are used only for the version of the project that they were read under, which
//! every change of a cohort raises.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use pennon_core::store::keys::{self, Kind, ProjectId};
use pennon_core::store::{Item, Query, StoreError};
use pennon_engine::flag::cohort::Cohort;
use pennon_eventstore::members::Roster;
use serde_json::Value;

use crate::Flags;
use crate::store::{ByteLimitedCache, Version, number};

/// Bytes of cohorts that a process remembers, by a rough measure.
const BYTES_MAX: usize = 16 << 20;

/// Cohorts, with all that their criteria name in turn.
#[derive(Debug, Default)]
pub struct Cohorts {
    /// Those that are there, by id; deleted ones too.
    pub by_id: BTreeMap<i64, Cohort>,
    /// The lists of the static ones.
    pub rosters: BTreeMap<i64, Roster>,
    asked: BTreeSet<i64>,
    bytes: usize,
}

impl Cohorts {
    fn take(&mut self, project: ProjectId, item: &Item) -> Result<(), StoreError> {
        let record: Value = item.body()?;
        let Some(cohort) = Cohort::read(&record) else { return Ok(()) };
        if cohort.is_static && !cohort.deleted {
            self.rosters.insert(cohort.id, Roster::of_record(project, &record));
        }
        self.bytes += item.text.len() * 4 + 500;
        self.by_id.insert(cohort.id, cohort);
        Ok(())
    }

    /// The lists of these cohorts.
    pub fn rosters_of(&self, ids: &BTreeSet<i64>) -> BTreeMap<i64, Roster> {
        let found = ids.iter().filter_map(|id| Some((*id, self.rosters.get(id)?.clone())));
        found.collect()
    }
}

/// The cohorts that a process remembers.
#[derive(Debug, Clone)]
pub struct CohortMemory(Arc<Mutex<Remembered>>);

/// For each project the number of the version that they were read under, and the cohorts.
type Remembered = ByteLimitedCache<ProjectId, (i64, Arc<Cohorts>)>;

impl Default for CohortMemory {
    fn default() -> CohortMemory {
        CohortMemory(Arc::new(Mutex::new(ByteLimitedCache::new(BYTES_MAX))))
    }
}

impl CohortMemory {
    fn get(&self, project: ProjectId, number: i64, named: &BTreeSet<i64>) -> Option<Arc<Cohorts>> {
        let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (under, cohorts) = memory.get(&project)?;
        (*under == number && named.is_subset(&cohorts.asked)).then(|| cohorts.clone())
    }

    fn keep(&self, project: ProjectId, number: i64, cohorts: &Arc<Cohorts>) {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.insert(project, (number, cohorts.clone()), cohorts.bytes);
    }
}

/// The cohorts `named`, of a project whose version was read before. No round trip when they are remembered; else one,
/// as a rule.
pub async fn at_version(
    flags: &Flags,
    project: ProjectId,
    version: Version,
    named: BTreeSet<i64>,
) -> Result<Arc<Cohorts>, StoreError> {
    if named.is_empty() {
        return Ok(Arc::default());
    }
    if let Some(known) = flags.cohorts.get(project, version.number, &named) {
        return Ok(known);
    }
    let cohorts = Arc::new(load(flags, project, named).await?);
    flags.cohorts.keep(project, version.number, &cohorts);
    Ok(cohorts)
}

/// The cohorts `named` and all that they refer to.
///
/// One wait, as a rule: beside the named ones a page of all cohorts is read, which has those that they refer to.
pub async fn load(flags: &Flags, project: ProjectId, named: BTreeSet<i64>) -> Result<Cohorts, StoreError> {
    let mut found = Cohorts::default();
    if named.is_empty() {
        return Ok(found);
    }
    let records = &flags.app.store.records;
    let all = Query::partition(keys::records_pk(project, Kind::Cohort));
    let keys = |ids: &BTreeSet<i64>| -> Vec<_> {
        ids.iter().map(|id| keys::record(project, Kind::Cohort, number(*id))).collect()
    };
    let first = keys(&named);
    let (items, page) = tokio::try_join!(records.batch_get(&first), records.page(&all, None))?;
    for item in items.iter().flatten().chain(&page.items) {
        found.take(project, item)?;
    }
    found.asked = named;
    while page.next.is_some() {
        let mentioned = found.by_id.values().flat_map(Cohort::named);
        let missing: BTreeSet<i64> =
            mentioned.filter(|id| !found.by_id.contains_key(id) && !found.asked.contains(id)).collect();
        if missing.is_empty() {
            break;
        }
        for item in records.batch_get(&keys(&missing)).await?.iter().flatten() {
            found.take(project, item)?;
        }
        found.asked.extend(missing);
    }
    Ok(found)
}
