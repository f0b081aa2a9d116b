//! Decodes the body of a capture request to JSON text, in every encoding that SDKs send ([`pennon_core::http::BodyRules`]).

use pennon_core::http::{BodyRules, SdkBody, SdkBodyError, SdkPayload};

use crate::error::CaptureError;
use pennon_core::limits::capture::INFLATED_BYTES_MAX;

const RULES: BodyRules = BodyRules {
    inflated_bytes_max: INFLATED_BYTES_MAX,
    refuses_other_encodings: true,
    takes_bare_base64: false,
};

/// Decodes a request body to JSON text.
pub fn decode<'a>(body: &SdkBody<'a>) -> Result<SdkPayload<'a>, CaptureError> {
    RULES.decode(body).map_err(capture_error)
}

/// Decodes the query parameter `data` to JSON text.
pub fn decode_data(data: &str, compression: &str) -> Result<SdkPayload<'static>, CaptureError> {
    let json = RULES.decode_data(data, compression).map_err(capture_error)?;
    Ok(SdkPayload { json: json.into(), form_token: None })
}

fn capture_error(error: SdkBodyError) -> CaptureError {
    match error {
        SdkBodyError::Unreadable(detail) => CaptureError::invalid_body(detail),
        SdkBodyError::NoData => {
            CaptureError::invalid_field("required", "The form has no field data.", "data")
        }
        SdkBodyError::TooLarge(bytes_max) => {
            let megabytes = bytes_max / 1_000_000;
            CaptureError::too_large(format!("The body has more than {megabytes} MB when inflated."))
        }
    }
}
