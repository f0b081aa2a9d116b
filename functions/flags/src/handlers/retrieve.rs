//! `GET P/feature_flags/{id}/`: one flag, a deleted one too.

use axum::extract::State;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};
use pennon_engine::flag::Flag;

use crate::store::flag_at;
use pennon_role_access::viewer::Viewers;

/// Shows a flag.
pub async fn retrieve(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let id = call.id("id");
    let wanted = |project| id.map(|id| flag_at(project, id)).into_iter().collect();
    let (access, items) = app.project_with(&call, crate::READ, wanted).await?;
    let item = items.into_iter().flatten().next().ok_or_else(ApiError::not_found)?;
    let flag: Flag = item.body()?;
    let viewers = Viewers::load(&app, &access, &[&flag]).await?;
    Ok(json(viewers.show(&flag, call.now)))
}
