//! `DELETE P/feature_flags/{id}/`: not allowed. A flag is deleted by an update, so that it can be restored.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use pennon_core::app::App;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;

/// Refuses, once the caller has shown the scope; no record is looked up.
pub async fn destroy(State(app): State<App>, call: Call) -> ApiResult<Response> {
    app.project(&call, crate::WRITE, |_| []).await?;
    let refusal = ApiError::method_not_allowed("DELETE", "GET, HEAD, OPTIONS, PATCH, PUT").without_body();
    let mut response = refusal.into_response();
    response.headers_mut().remove(header::CONTENT_TYPE);
    Ok(response)
}
