//! `GET P/feature_flags/activity/` and `GET P/feature_flags/{id}/activity/`: the activity log, newest entry first.

use axum::extract::State;
use axum::response::Response;
use pennon_core::activity::{list_item_entries, list_scope_entries};
use pennon_core::app::App;
use pennon_core::error::ApiResult;
use pennon_core::http::Call;

use crate::store::{SCOPE, flag_record_key};

/// The log of all flags, deleted ones included.
pub async fn all_activity(State(app): State<App>, call: Call) -> ApiResult<Response> {
    list_scope_entries(&app, &call, SCOPE).await
}

/// The log of one flag, also when it is deleted.
pub async fn activity(State(app): State<App>, call: Call) -> ApiResult<Response> {
    list_item_entries(&app, &call, SCOPE, flag_record_key, |_| Ok(true)).await
}
