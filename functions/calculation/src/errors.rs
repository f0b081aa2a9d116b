//! Errors of the engine and the event store as API errors.

use pennon_core::error::ApiError;
use pennon_eventstore::EventStoreError;
use pennon_filters::{CalcError, ErrorKind};

/// `Retry-After` in seconds of a query that timed out.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 5;

/// An error of the engine: 400, or 503 for a timeout.
pub fn engine_error(error: CalcError) -> ApiError {
    match error.kind {
        ErrorKind::Validation => ApiError::invalid(error.code, error.detail, error.attr.as_deref()),
        ErrorKind::Parse => ApiError::parse(error.detail),
        ErrorKind::Timeout => timeout_error(),
    }
}

/// 503: the calculation did not finish by its deadline.
pub(crate) fn timeout_error() -> ApiError {
    ApiError::busy(RETRY_AFTER_SECONDS)
}

/// Whether a calculation failed with [`timeout_error`]. Other errors that are equal to it can be retried in the background
/// as well.
pub(crate) fn is_timeout(error: &ApiError) -> bool {
    *error == timeout_error()
}

/// An error of the event store.
pub(crate) fn event_store_error(error: EventStoreError) -> ApiError {
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_engine_error_keeps_code_detail_and_attr() {
        let error = engine_error(CalcError::coded("required", Some("events"), "This field is required."));
        assert_eq!(error.status().as_u16(), 400);
        let body = json!({
            "type": "validation_error", "code": "required", "detail": "This field is required.", "attr": "events",
        });
        assert_eq!(error.body(), body);
        let error = engine_error(CalcError::parse("no kind"));
        assert_eq!(error.body()["type"], "invalid_request");
        assert_eq!(error.body()["code"], "parse_error");
        assert_eq!(engine_error(CalcError::timeout()).status().as_u16(), 503);
    }

    #[test]
    fn a_query_that_is_too_large_is_a_client_error() {
        let error = event_store_error(EventStoreError::TooLarge("too many events".to_owned()));
        assert_eq!((error.status().as_u16(), error.detail()), (400, "too many events"));
        assert_eq!(event_store_error(EventStoreError::Contended).status().as_u16(), 503);
        let damaged =
            EventStoreError::Damaged { object: "project=7/events/1.parquet".into(), what: "x".into() };
        let error = event_store_error(damaged);
        assert_eq!((error.status().as_u16(), &error.body()["code"]), (503, &json!("damaged_data")));
        assert!(error.detail().contains("project=7/events/1.parquet"));
        assert_eq!(event_store_error(EventStoreError::Corrupt("x".to_owned())).status().as_u16(), 500);
    }
}
