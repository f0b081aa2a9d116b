//! Which flags use a cohort, directly or through other cohorts.
//!
//! Must stay true: the version is read before everything else, and whoever judges by the rest asks that its number is
//! still the same when it writes; so no flag and no cohort has come to use it meanwhile.

use std::collections::BTreeSet;

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::{self, FLAG_ROW_SHARDS, ProjectId};
use pennon_core::store::{Item, Query, StoreError, Table, Unchanged};
use pennon_engine::flag::FlagRow;

use super::CohortRecord;
use crate::resource::{Row, list};

/// The active flags that use a cohort.
#[derive(Debug)]
pub struct Uses {
    /// Their names, or keys where they have none, in the order of their numbers.
    pub flags: Vec<String>,
    /// How many flags name it, those that are not active too.
    pub named_by: usize,
    /// What has to be so for this to be true.
    pub when: Unchanged,
}

impl Uses {
    /// The active flags that use the cohort `id`.
    pub async fn of(records: &Table, project: ProjectId, id: u64) -> ApiResult<Uses> {
        let version = records.get(&keys::project_version(project)).await?;
        let when = Unchanged { number: Some(version.map_or(0, |item| item.count)), ..Unchanged::default() };
        let shards = (0..FLAG_ROW_SHARDS)
            .map(|shard| records.query(Query::partition(keys::flag_rows_pk(project, shard))));
        let flags = async { futures::future::try_join_all(shards).await.map_err(ApiError::from) };
        let (flags, rows) = tokio::try_join!(flags, list::rows::<CohortRecord>(records, project))?;
        let using = naming(&rows, BTreeSet::from([id]));
        let flags = flags.iter().flatten().map(Item::body).collect::<Result<Vec<FlagRow>, StoreError>>()?;
        let uses = |id: &i64| u64::try_from(*id).is_ok_and(|id| using.contains(&id));
        let mut flags: Vec<FlagRow> =
            flags.into_iter().filter(|row| !row.deleted && row.cohort_ids.iter().any(uses)).collect();
        let named_by = flags.len();
        flags.retain(|row| row.active);
        flags.sort_unstable_by_key(|row| row.id);
        let name = |row: FlagRow| if row.name.is_empty() { row.key } else { row.name };
        Ok(Uses { flags: flags.into_iter().map(name).collect(), named_by, when })
    }

    /// 400 where any flag uses it.
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

/// These cohorts, and all that name them, at any depth.
pub fn naming(rows: &[Row], first: BTreeSet<u64>) -> BTreeSet<u64> {
    let mut found = first;
    loop {
        let names = |row: &&Row| !found.contains(&row.id) && row.cohorts.iter().any(|id| found.contains(id));
        let more: Vec<u64> = rows.iter().filter(names).map(|row| row.id).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}
