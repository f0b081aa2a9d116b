//! The records that the validation of an update depends on.
//!
//! Must stay true: only what the body can change is loaded. A body that neither names other records nor enables, disables,
//! deletes or restores the flag needs no round trip here.

use pennon_core::error::ApiResult;
use pennon_core::http::Fields;
use pennon_core::store::QueryPage;
use pennon_core::store::keys::ProjectId;
use pennon_flag_rules::Flag;
use pennon_flag_rules::flag::body_references::{self, BodyReferences};
use serde_json::Value;

use super::ProjectVersion;
use super::dependents::{DependentFlags, load_dependents};
use super::referenced_records::{ResolvedReferences, resolve_references};
use super::write_reads::{LinkedInputs, may_disable};
use crate::Flags;

/// Loads the records that the update of `flag` with `body` refers to, and the flags that depend on it, as far as they are
/// not in `linked`.
pub async fn resolve_update_records(
    state: &Flags,
    project: ProjectId,
    body: &Fields,
    flag: &Flag,
    linked: LinkedInputs,
) -> ApiResult<ResolvedReferences> {
    let LinkedInputs { version, references, dependents, .. } = linked;
    let to_check = references_to_check(body, flag);
    let (mut resolved, dependents) = tokio::try_join!(
        resolve_references(state, project, version, &to_check, references),
        load_required_dependents(state, project, version, body, flag, dependents),
    )?;
    if let Some(dependents) = dependents {
        resolved.set_dependents(flag.id, &dependents);
    }
    Ok(resolved)
}

/// The references to load: those of the filters in the body, and the dependencies of the stored flag when it may be
/// enabled or restored.
fn references_to_check(body: &Fields, flag: &Flag) -> BodyReferences {
    let may_enable = !flag.active && body.get("active").is_some_and(|sent| *sent != false);
    let may_restore = flag.deleted && body.get("deleted").is_some_and(|sent| *sent != true);
    let mut references = body_references::collect(body, (may_enable || may_restore).then_some(flag));
    if !body.get("filters").is_some_and(Value::is_object) {
        references.cohort_ids.clear();
    }
    references
}

/// Loads the flags that depend on others, when the body may delete or disable `flag`.
async fn load_required_dependents(
    state: &Flags,
    project: ProjectId,
    version: ProjectVersion,
    body: &Fields,
    flag: &Flag,
    prefetched: Option<QueryPage>,
) -> ApiResult<Option<DependentFlags>> {
    if !may_disable(body) || flag.deleted && !flag.active {
        return Ok(None);
    }
    Ok(Some(load_dependents(&state.app.store.records, project, version, prefetched).await?))
}
