//! `DELETE P/feature_flags/{id}/`: always 405. Flags are soft-deleted with an update, so that they can be restored.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use pennon_core::app::App;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;

/// Returns 405 after checking the scope; no record is read.
pub async fn destroy(State(app): State<App>, call: Call) -> ApiResult<Response> {
    app.project(&call, crate::WRITE_SCOPE, |_| []).await?;
    let refusal = ApiError::method_not_allowed("DELETE", "GET, HEAD, OPTIONS, PATCH, PUT").without_body();
    let mut response = refusal.into_response();
    response.headers_mut().remove(header::CONTENT_TYPE);
    Ok(response)
}
