//! `GET P/insights/activity/` and `GET P/insights/{id}/activity/`: who changed what, newest first.

use axum::extract::State;
use axum::response::Response;
use pennon_calculation::ResponseFormat;
use pennon_core::activity::{list_item_entries, list_scope_entries};
use pennon_core::error::ApiResult;
use pennon_core::http::Call;

use crate::Insights;
use crate::insight::{self, Insight};
use crate::resource::Resource;

/// The log of all insights, deleted ones included.
pub async fn all(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let log = list_scope_entries(&state.app, &call, Insight::SCOPE).await?;
    ResponseFormat::of(&call).map(|_| log)
}

/// The log of one insight; 404 for a deleted one, which has no summary row.
pub async fn of_one(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let log = list_item_entries(&state.app, &call, Insight::SCOPE, insight::row_key, |_| Ok(true)).await?;
    ResponseFormat::of(&call).map(|_| log)
}
