//! `POST /flags/`: values for one person are not served. SDKs take a 404 as "no value" and go on.

use pennon_core::error::ApiError;

/// Refuses.
pub async fn evaluate() -> ApiError {
    ApiError::missing("Flags are not evaluated for single persons here; SDKs evaluate them locally.")
}
