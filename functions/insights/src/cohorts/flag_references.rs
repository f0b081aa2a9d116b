//! The flags that use a cohort, directly or through other cohorts.
//!
//! Must stay true: the project version is read first, and a write that depends on the rest is conditional on it; so no flag or
//! cohort can start to use the cohort concurrently.

use std::collections::BTreeSet;

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::{self, FLAG_ROW_SHARDS, ProjectId};
use pennon_core::store::{Item, PartitionQuery, Precondition, StoreError, Table};
use pennon_flag_rules::FlagRow;

use super::CohortRecord;
use crate::resource::{SummaryRow, list};

/// The flags that use a cohort.
#[derive(Debug)]
pub struct FlagReferences {
    /// Names (else keys) of the active ones, in the order of their ids.
    pub flags: Vec<String>,
    /// The number of flags that use it, inactive ones included.
    pub flag_count: usize,
    /// The precondition under which this is still correct.
    pub version: Precondition,
}

impl FlagReferences {
    /// Fetches the flags that use the cohort `id`.
    pub async fn fetch(records: &Table, project: ProjectId, id: u64) -> ApiResult<FlagReferences> {
        let version_item = records.get(&keys::project_version(project)).await?;
        let version = Precondition {
            number: Some(version_item.map_or(0, |item| item.count)),
            ..Precondition::default()
        };
        let shards = (0..FLAG_ROW_SHARDS)
            .map(|shard| records.query(PartitionQuery::partition(keys::flag_rows_pk(project, shard))));
        let flags = async { futures::future::try_join_all(shards).await.map_err(ApiError::from) };
        let (flags, rows) = tokio::try_join!(flags, list::rows::<CohortRecord>(records, project))?;
        let using = with_dependents(&rows, BTreeSet::from([id]));
        let flags = flags.iter().flatten().map(Item::body).collect::<Result<Vec<FlagRow>, StoreError>>()?;
        let uses = |id: &i64| u64::try_from(*id).is_ok_and(|id| using.contains(&id));
        let mut flags: Vec<FlagRow> =
            flags.into_iter().filter(|row| !row.deleted && row.cohort_ids.iter().any(uses)).collect();
        let flag_count = flags.len();
        flags.retain(|row| row.active);
        flags.sort_unstable_by_key(|row| row.id);
        let name = |row: FlagRow| if row.name.is_empty() { row.key } else { row.name };
        Ok(FlagReferences { flags: flags.into_iter().map(name).collect(), flag_count, version })
    }

    /// 400 where an active flag uses it.
    pub fn require_none(&self) -> ApiResult<()> {
        if self.flags.is_empty() {
            return Ok(());
        }
        let detail = format!(
            "This cohort is used in {} active feature flag(s): {}. Please remove the cohort from these feature flags \
             before deleting it.",
            self.flags.len(),
            self.flags.join(", ")
        );
        Err(ApiError::invalid("invalid_input", detail, None))
    }
}

/// These cohorts, and all that refer to them, at any depth.
pub fn with_dependents(rows: &[SummaryRow], cohorts: BTreeSet<u64>) -> BTreeSet<u64> {
    let mut found = cohorts;
    loop {
        let refers =
            |row: &&SummaryRow| !found.contains(&row.id) && row.cohorts.iter().any(|id| found.contains(id));
        let more: Vec<u64> = rows.iter().filter(refers).map(|row| row.id).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}
