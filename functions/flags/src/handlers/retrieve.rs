//! `GET P/feature_flags/{id}/`: one flag, a deleted one too.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json_text};

use crate::Flags;
use crate::store::{Stored, flag_at, prepared};
use pennon_role_access::viewer::{Owned, Viewers, cohort_names};

/// Shows a flag.
pub async fn retrieve(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let id = call.id("id");
    let wanted = |project| id.map(|id| flag_at(project, id)).into_iter().collect();
    let (access, items) = state.app.project_with(&call, crate::READ, wanted).await?;
    let item = items.into_iter().flatten().next().ok_or_else(ApiError::not_found)?;
    let stored = Stored::read(&item)?;
    let project = access.project.id;
    let owned = Owned::from(&stored.flag);
    let cohorts = stored.flag.cohort_ids().into_iter().collect();
    let (viewers, names) = tokio::try_join!(
        Viewers::rights(&state.app, &access, std::iter::once(owned)),
        cohort_names(&state.app, project, &cohorts),
    )?;
    let text = prepared(&state, project, &stored, &names).text(viewers.viewer(owned), call.now);
    Ok(json_text(StatusCode::OK, text))
}
