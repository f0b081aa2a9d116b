//! Functions for fuzzing: each parses any bytes and asserts what must stay true. `tests/src/fuzz.rs` lists them.

use pennon_core::http::Fields;
use pennon_core::limits::evaluation::{DISTINCT_ID_CHARS_MAX, FLAG_KEYS_MAX};

use crate::evaluation::EvaluationRequest;

/// Evaluation requests of SDKs and of OpenFeature providers.
pub fn evaluation_requests(bytes: &[u8]) {
    let Ok(fields) = serde_json::from_slice::<Fields>(bytes) else { return };
    if let Ok(request) = EvaluationRequest::parse(fields.clone()) {
        assert!(request.distinct_id.chars().count() <= DISTINCT_ID_CHARS_MAX);
        assert!(request.flag_keys.is_none_or(|keys| keys.len() <= FLAG_KEYS_MAX));
    }
    if let Ok(request) = EvaluationRequest::parse_context("person", fields) {
        assert_eq!(request.distinct_id, "person");
    }
}
