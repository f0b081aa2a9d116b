//! The form of an answer.

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;

/// Accepts `format=json` and none; CSV is refused as not served yet, other forms are unknown.
pub fn require_json(call: &Call) -> ApiResult<()> {
    match call.query_value("format") {
        None | Some("" | "json") => Ok(()),
        Some("csv") => {
            Err(ApiError::invalid("invalid_input", "Not supported yet: answers as CSV.", Some("format")))
        }
        Some(_) => Err(ApiError::not_found()),
    }
}
