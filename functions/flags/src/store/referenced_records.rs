//! Loads the records that a request body refers to: other flags, cohorts, dashboards.
//!
//! Must stay true: a validation that depends on other flags or cohorts records the version of each, and the write
//! checks that they are unchanged; so the records may be fetched in parallel with the flag, in any order. Above
//! [`MAX_CHECKED_RECORDS`] flags, all are taken from checksum-verified rows, and the write checks the checksum of all
//! rows instead.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::error::ApiResult;
use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_core::store::{Item, Key, Precondition, StoreError, Write, WriteCondition};
use pennon_flag_rules::flag::body_references::BodyReferences;
use pennon_flag_rules::flag::transition::dependents_of;
use pennon_flag_rules::relations::cohort::FlagCohort;
use pennon_flag_rules::relations::dependencies::RelatedFlag;
use pennon_flag_rules::{CohortReference, Flag, FlagReference, FlagRow, References};
use serde_json::Value;

use super::dependents::DependentFlags;
use super::feed_size::cohort_feed_bytes;
use super::{
    FeedGrowth, FlagPreconditions, FlagRows, ProjectVersion, cached_rows, decode_row, load_verified_rows,
    record_id,
};
use crate::Flags;

/// Most flags, and most cohorts, that a write checks one by one. A transaction holds at most 100 writes.
const MAX_CHECKED_RECORDS: usize = 30;

/// Ids of records to load. Ids that are not positive match no record.
#[derive(Debug, Clone, Default)]
pub struct ReferenceIds {
    flags: BTreeSet<i64>,
    cohorts: BTreeSet<i64>,
    dashboards: BTreeSet<i64>,
}

impl ReferenceIds {
    /// The ids that the request body names directly.
    pub fn of(body_references: &BodyReferences) -> ReferenceIds {
        ReferenceIds {
            flags: body_references.flag_ids.clone(),
            cohorts: body_references.cohort_ids.clone(),
            dashboards: body_references.dashboard_ids.clone(),
        }
    }

    /// Whether it contains flags.
    pub fn has_flags(&self) -> bool {
        !self.flags.is_empty()
    }

    /// The table keys of the records.
    pub fn keys(&self, project: ProjectId) -> Vec<Key> {
        let flags = positive_ids(&self.flags).map(|id| keys::flag_row(project, id));
        let cohorts = positive_ids(&self.cohorts).map(|id| keys::record(project, RecordKind::Cohort, id));
        let dashboards =
            positive_ids(&self.dashboards).map(|id| keys::record(project, RecordKind::Dashboard, id));
        flags.chain(cohorts).chain(dashboards).collect()
    }
}

fn positive_ids(ids: &BTreeSet<i64>) -> impl Iterator<Item = u64> + '_ {
    ids.iter().filter(|id| **id > 0).map(|id| record_id(*id))
}

/// The records that a write refers to, with the versions that were read.
#[derive(Debug, Default)]
pub struct ResolvedReferences {
    /// The flags and cohorts.
    pub references: References,
    /// The referenced dashboards that exist.
    pub dashboards: BTreeSet<i64>,
    requested_dashboards: BTreeSet<i64>,
    /// Item version of each flag row; `None` where the row does not exist.
    flag_versions: BTreeMap<i64, Option<u64>>,
    /// Checksum of all flag rows, when there are too many flags to check one by one.
    rows_checksum: Option<i64>,
    /// The enabled flags that depend on the flag, when the body may delete or disable it.
    pub dependents: Vec<RelatedFlag>,
    /// Checksum of the dependency rows, when the validation depends on `dependents`.
    dependents_checksum: Option<i64>,
    /// Item version of each cohort record.
    cohort_versions: BTreeMap<i64, u64>,
    /// Record sizes in bytes of the cohorts with criteria.
    cohort_record_bytes: Vec<usize>,
}

impl ResolvedReferences {
    /// Decodes the items that were read for the keys of `ids`.
    pub fn from_items(ids: &ReferenceIds, items: &[Option<Item>]) -> ApiResult<ResolvedReferences> {
        let mut resolved = ResolvedReferences::default();
        resolved.add_items(ids, items)?;
        Ok(resolved)
    }

    fn add_items(&mut self, ids: &ReferenceIds, items: &[Option<Item>]) -> ApiResult<()> {
        let mut items = items.iter();
        let mut next = |id: i64| if id > 0 { items.next().and_then(Option::as_ref) } else { None };
        for id in &ids.flags {
            let row = next(*id).map(decode_row).transpose()?;
            self.add_flag(*id, row.as_ref());
        }
        for id in &ids.cohorts {
            let item = next(*id);
            self.cohort_versions.extend(item.map(|item| (*id, item.version)));
            let cohort = item.map(live_cohort).transpose()?.flatten();
            // A static cohort is a list of members, which the feed does not contain.
            let has_rules = cohort.as_ref().is_some_and(|cohort| !cohort.is_static);
            self.cohort_record_bytes.extend(item.filter(|_| has_rules).map(|item| item.text.len()));
            self.references.cohorts.insert(*id, cohort.as_ref().map(CohortReference::from));
        }
        for id in &ids.dashboards {
            self.requested_dashboards.insert(*id);
            if let Some(item) = next(*id)
                && item.body::<Value>()?["deleted"] != true
            {
                self.dashboards.insert(*id);
            }
        }
        Ok(())
    }

    fn add_flag(&mut self, id: i64, row: Option<&FlagRow>) {
        self.flag_versions.insert(id, row.map(|row| row.item_version));
        self.references.flags.insert(id, row.map(FlagReference::from));
    }

    /// Adds the enabled flags among `dependents` that depend on the flag `id`. The write checks that there are no others.
    pub fn set_dependents(&mut self, id: i64, dependents: &DependentFlags) {
        self.dependents = dependents_of(id, &dependents.rows);
        self.dependents_checksum = Some(dependents.checksum);
    }

    fn clear_flags(&mut self) {
        self.flag_versions.clear();
        self.references.flags.clear();
    }

    /// The preconditions under which the validation of `after` still holds when it is written, and the growth of the feed
    /// by it.
    pub fn preconditions(&self, project: ProjectId, after: &Flag) -> FlagPreconditions {
        let version = Precondition {
            rows: self.rows_checksum,
            edges: self.dependents_checksum,
            ..Precondition::default()
        };
        let cohort = |(id, version): (&i64, &u64)| {
            let key = keys::record(project, RecordKind::Cohort, record_id(*id));
            Write::Check(key, WriteCondition::Version(*version))
        };
        // Beyond this limit, which hardly any flag reaches, a cohort may be deleted concurrently with the write.
        let cohorts = self.cohort_versions.iter().take(MAX_CHECKED_RECORDS).map(cohort);
        let checks = match self.rows_checksum {
            Some(_) => cohorts.collect(),
            None => self.flag_checks(project, after.id).chain(cohorts).collect(),
        };
        FlagPreconditions { version, checks, feed_growth: self.feed_growth(after) }
    }

    /// The checks that the referenced flags, except for `own`, are unchanged.
    fn flag_checks(&self, project: ProjectId, own: i64) -> impl Iterator<Item = Write> {
        let other_flags = self.flag_versions.iter().filter(move |(id, _)| **id > 0 && **id != own);
        other_flags.map(move |(id, version)| {
            let condition = version.map_or(WriteCondition::Absent, WriteCondition::Version);
            Write::Check(keys::flag_row(project, record_id(*id)), condition)
        })
    }

    /// Upper bound of the growth of the feed beyond the length of `flag`: its cohorts, and the keys in its dependency
    /// chain.
    fn feed_growth(&self, flag: &Flag) -> FeedGrowth {
        let unknown = flag.cohort_ids().into_iter().filter(|id| !self.references.cohorts.contains_key(id));
        let chain = self.references.flags.values().flatten().map(|flag| flag.key.len() + 3).sum::<usize>();
        FeedGrowth::Estimated {
            beside: cohort_feed_bytes(self.cohort_record_bytes.iter().copied(), unknown.count()) + chain,
        }
    }
}

/// Loads the records that `body_references` names, and transitively the records that those name, unless they are in
/// `resolved`. No round trip when nothing is missing, or when only flags are missing whose rows are cached for
/// `version`; otherwise one round trip per level.
pub async fn resolve_references(
    state: &Flags,
    project: ProjectId,
    version: ProjectVersion,
    body_references: &BodyReferences,
    mut resolved: ResolvedReferences,
) -> ApiResult<ResolvedReferences> {
    let mut all_rows: Option<FlagRows> = None;
    let (flags, _) = body_references.unresolved(&resolved.references);
    if !flags.is_empty() {
        all_rows = cached_rows(state, project, version);
    }
    if all_rows.is_some() {
        resolved.clear_flags();
    }
    loop {
        let (flags, cohorts) = body_references.unresolved(&resolved.references);
        if all_rows.is_none() && resolved.flag_versions.len() + flags.len() > MAX_CHECKED_RECORDS {
            all_rows = Some(load_verified_rows(state, project, version).await?);
            resolved.clear_flags();
            continue;
        }
        let dashboards =
            body_references.dashboard_ids.difference(&resolved.requested_dashboards).copied().collect();
        let mut ids = ReferenceIds { flags, cohorts, dashboards };
        if let Some(rows) = &all_rows {
            for id in std::mem::take(&mut ids.flags) {
                resolved.add_flag(id, rows.get(id));
            }
        }
        let keys = ids.keys(project);
        let items =
            if keys.is_empty() { Vec::new() } else { state.app.store.records.batch_get(&keys).await? };
        resolved.add_items(&ids, &items)?;
        let (flags, cohorts) = body_references.unresolved(&resolved.references);
        if flags.is_empty()
            && cohorts.is_empty()
            && body_references.dashboard_ids.is_subset(&resolved.requested_dashboards)
        {
            break;
        }
    }
    if resolved.flag_versions.len() > MAX_CHECKED_RECORDS {
        resolved.rows_checksum = all_rows.map(|rows| rows.version.sums.rows);
    }
    Ok(resolved)
}

fn live_cohort(item: &Item) -> Result<Option<FlagCohort>, StoreError> {
    Ok(FlagCohort::read(&item.body()?).filter(|cohort| !cohort.deleted))
}
