//! The bytes of a capture request into JSON text, in every form that the SDKs send ([`pennon_core::http::BodyRules`]).

use pennon_core::http::BodyRules;
use pennon_core::http::SdkBodyError;
pub use pennon_core::http::{SdkBody as Sent, SdkPayload as Payload};

use crate::refusal::Refusal;

/// Most bytes of a body after inflation.
pub const INFLATED_BYTES_MAX: usize = 20_000_000;

const RULES: BodyRules = BodyRules {
    inflated_bytes_max: INFLATED_BYTES_MAX,
    refuses_other_encodings: true,
    takes_bare_base64: false,
};

/// The JSON text that `sent` carries.
pub fn decode<'a>(sent: &Sent<'a>) -> Result<Payload<'a>, Refusal> {
    RULES.decode(sent).map_err(refused)
}

/// The JSON text in the parameter `data` of a query string.
pub fn decode_data(data: &str, compression: &str) -> Result<Payload<'static>, Refusal> {
    let json = RULES.decode_data(data, compression).map_err(refused)?;
    Ok(Payload { json: json.into(), form_token: None })
}

fn refused(error: SdkBodyError) -> Refusal {
    match error {
        SdkBodyError::Unreadable(detail) => Refusal::body(detail),
        SdkBodyError::NoData => Refusal::field("required", "The form has no field data.", "data"),
        SdkBodyError::TooLarge(most) => {
            let megabytes = most / 1_000_000;
            Refusal::too_large(format!("The body has more than {megabytes} MB when inflated."))
        }
    }
}
