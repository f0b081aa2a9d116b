//! The names of cohorts, which reads of flags show beside their numbers.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::error::ApiResult;
use pennon_core::store::keys::ProjectId;
use pennon_role_access::viewer::cohort_names;

use crate::Flags;

/// The names of those of the cohorts `ids` that are live. They were asked for after the project had the version
/// `number`; what is remembered under that number is not read again, because a change of a cohort raises it.
pub async fn names(
    state: &Flags,
    project: ProjectId,
    number: i64,
    ids: &BTreeSet<i64>,
) -> ApiResult<BTreeMap<i64, String>> {
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut known = state.memory.names(project, number).unwrap_or_default();
    let missing: BTreeSet<i64> = ids.iter().filter(|id| !known.contains_key(id)).copied().collect();
    if !missing.is_empty() {
        let found = cohort_names(&state.app, project, &missing).await?;
        known.extend(missing.into_iter().map(|id| (id, found.get(&id).cloned())));
        state.memory.keep_names(project, number, &known);
    }
    Ok(ids.iter().filter_map(|id| Some((*id, known.get(id)?.clone()?))).collect())
}
