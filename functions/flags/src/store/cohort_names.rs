//! Names of cohorts, which responses add to the cohort ids of a flag.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::error::ApiResult;
use pennon_core::store::keys::ProjectId;
use pennon_role_access::permissions::fetch_cohort_names;

use super::StoredFlag;
use crate::Flags;

/// The names of the live cohorts among `ids`. The project had at least the version `version` when they were requested;
/// names cached at that version are not read again, because every change of a cohort raises it.
pub async fn load_cohort_names(
    state: &Flags,
    project: ProjectId,
    version: i64,
    ids: &BTreeSet<i64>,
) -> ApiResult<BTreeMap<i64, String>> {
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut known = state.memory.get_cohort_names(project, version).unwrap_or_default();
    let missing: BTreeSet<i64> = ids.iter().filter(|id| !known.contains_key(id)).copied().collect();
    if !missing.is_empty() {
        let fetched = fetch_cohort_names(&state.app, project, &missing).await?;
        known.extend(missing.into_iter().map(|id| (id, fetched.get(&id).cloned())));
        state.memory.put_cohort_names(project, version, &known);
    }
    Ok(ids.iter().filter_map(|id| Some((*id, known.get(id)?.clone()?))).collect())
}

/// The names of the cohorts `ids` for the response to a write that replaced `before`. It may run in parallel with
/// the write, whose response must not fail because of it: names that cannot be read are those of the last rendered response.
pub async fn fetch_names_of_written(
    state: &Flags,
    project: ProjectId,
    before: &StoredFlag,
    ids: &BTreeSet<i64>,
) -> BTreeMap<i64, String> {
    for _ in 0..2 {
        if let Ok(names) = fetch_cohort_names(&state.app, project, ids).await {
            return names;
        }
    }
    let template = state.memory.get_template(project, before.flag.id, before.version);
    template.map(|template| template.cohort_names()).unwrap_or_default()
}
