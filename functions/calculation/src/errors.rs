//! Refusals of the engine and failures of the event store, as answers.

use pennon_core::error::ApiError;
use pennon_engine::{CalcError, ErrorKind};
use pennon_eventstore::EventStoreError;

/// Seconds after which a question that took too long may be asked again.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 5;

/// The answer to a question that the engine refuses.
pub fn refusal(error: CalcError) -> ApiError {
    match error.kind {
        ErrorKind::Validation => ApiError::invalid(error.code, error.detail, error.attr.as_deref()),
        ErrorKind::Parse => ApiError::parse(error.detail),
        ErrorKind::Timeout => out_of_time(),
    }
}

/// The answer to a question that took too long.
pub(crate) fn out_of_time() -> ApiError {
    ApiError::busy(RETRY_AFTER_SECONDS)
}

/// Whether a calculation failed because its time was up. What else is answered in the same words can be tried again in
/// the background as well.
pub(crate) fn is_out_of_time(error: &ApiError) -> bool {
    *error == out_of_time()
}

/// The answer when the events cannot be read.
pub(crate) fn unreadable(error: EventStoreError) -> ApiError {
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_keeps_code_text_and_field() {
        let error = refusal(CalcError::coded("required", Some("events"), "This field is required."));
        assert_eq!(error.status().as_u16(), 400);
        let body = json!({
            "type": "validation_error", "code": "required", "detail": "This field is required.", "attr": "events",
        });
        assert_eq!(error.body(), body);
        let error = refusal(CalcError::parse("no kind"));
        assert_eq!(error.body()["type"], "invalid_request");
        assert_eq!(error.body()["code"], "parse_error");
        assert_eq!(refusal(CalcError::timeout()).status().as_u16(), 503);
    }

    #[test]
    fn a_question_that_is_too_large_is_the_askers_fault() {
        let error = unreadable(EventStoreError::TooLarge("too many events".to_owned()));
        assert_eq!((error.status().as_u16(), error.detail()), (400, "too many events"));
        assert_eq!(unreadable(EventStoreError::Contended).status().as_u16(), 503);
        let damaged =
            EventStoreError::Damaged { object: "project=7/events/1.parquet".into(), what: "x".into() };
        let error = unreadable(damaged);
        assert_eq!((error.status().as_u16(), &error.body()["code"]), (503, &json!("damaged_data")));
        assert!(error.detail().contains("project=7/events/1.parquet"));
        assert_eq!(unreadable(EventStoreError::Corrupt("x".to_owned())).status().as_u16(), 500);
    }
}
