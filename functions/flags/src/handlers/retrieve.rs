//! `GET P/feature_flags/{id}/`: one flag, a deleted one too.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json_text};
use pennon_core::store::Key;
use pennon_core::store::keys::{self, ProjectId};

use crate::Flags;
use crate::calls::with_calls;
use crate::store::{Version, flag_at, names, prepared, record};
use pennon_role_access::viewer::{Owned, Viewers, cohort_names};

/// Shows a flag.
pub async fn retrieve(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let id = call.id("id");
    let wanted = |project| id.map_or_else(Vec::new, |id| keys_of(&state, project, id));
    let access = state.app.project_with(&call, crate::READ, wanted);
    let (access, items, calls) = with_calls(&state, &call, access).await?;
    let mut items = items.into_iter();
    let item = items.next().flatten().ok_or_else(ApiError::not_found)?;
    let number = items.next().map(|version| Version::of(version.as_ref()).number);
    let project = access.project.id;
    let stored = record(&state, project, &item)?;
    let owned = Owned::from(&stored.flag);
    let cohorts = stored.flag.cohort_ids().into_iter().collect();
    let (viewers, names) = tokio::try_join!(
        Viewers::rights(&state.app, &access, std::iter::once(owned)),
        names_of(&state, project, number, &cohorts),
    )?;
    let text = prepared(&state, project, &stored, &names).text(viewers.viewer(owned), call.now, &calls);
    Ok(json_text(StatusCode::OK, text))
}

/// The flag, and the project's version if it will tell whether the names of the flag's cohorts still hold.
fn keys_of(state: &Flags, project: ProjectId, id: u64) -> Vec<Key> {
    let named = i64::try_from(id).is_ok_and(|id| state.memory.named_cohorts(project, id));
    let version = named.then(|| keys::project_version(project));
    std::iter::once(flag_at(project, id)).chain(version).collect()
}

async fn names_of(
    state: &Flags,
    project: ProjectId,
    number: Option<i64>,
    cohorts: &BTreeSet<i64>,
) -> ApiResult<BTreeMap<i64, String>> {
    match number {
        Some(number) => names(state, project, number, cohorts).await,
        None => cohort_names(&state.app, project, cohorts).await,
    }
}
