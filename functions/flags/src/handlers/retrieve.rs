//! `GET P/feature_flags/{id}/`: one flag, also when it is deleted.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json_text};
use pennon_core::store::Key;
use pennon_core::store::keys::{self, ProjectId};

use crate::Flags;
use crate::call_times::authorize_with_call_times;
use crate::store::{ProjectVersion, decode_flag, flag_record_key, flag_template, load_cohort_names};
use pennon_role_access::permissions::{FlagOwnership, FlagPermissions, fetch_cohort_names};

/// Returns a flag.
pub async fn retrieve(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let id = call.id("id");
    let keys_to_read = |project| id.map_or_else(Vec::new, |id| keys_for(&state, project, id));
    let access = state.app.authorize_project_with(&call, crate::READ_SCOPE, keys_to_read);
    let (access, items, calls) = authorize_with_call_times(&state, &call, access).await?;
    let mut items = items.into_iter();
    let item = items.next().flatten().ok_or_else(ApiError::not_found)?;
    let number = items.next().map(|version| ProjectVersion::from_item(version.as_ref()).number);
    let project = access.project.id;
    let stored = decode_flag(&state, project, &item)?;
    let ownership = FlagOwnership::from(&stored.flag);
    let cohorts = stored.flag.cohort_ids().into_iter().collect();
    let (permissions, names) = tokio::try_join!(
        FlagPermissions::load(&state.app, &access, std::iter::once(ownership)),
        cohort_names(&state, project, number, &cohorts),
    )?;
    let text = flag_template(&state, project, &stored, &names).render(
        permissions.viewer(ownership),
        call.now,
        &calls,
    );
    Ok(json_text(StatusCode::OK, text))
}

/// Table keys of the flag, and of the project's version when it decides whether cached cohort names are still valid.
fn keys_for(state: &Flags, project: ProjectId, id: u64) -> Vec<Key> {
    let names_cohorts = i64::try_from(id).is_ok_and(|id| state.memory.names_cohorts(project, id));
    let version = names_cohorts.then(|| keys::project_version(project));
    std::iter::once(flag_record_key(project, id)).chain(version).collect()
}

async fn cohort_names(
    state: &Flags,
    project: ProjectId,
    number: Option<i64>,
    cohorts: &BTreeSet<i64>,
) -> ApiResult<BTreeMap<i64, String>> {
    match number {
        Some(number) => load_cohort_names(state, project, number, cohorts).await,
        None => fetch_cohort_names(&state.app, project, cohorts).await,
    }
}
