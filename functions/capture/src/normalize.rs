//! Turns the JSON text of a capture body into a batch to store: a pure function of the text and the time of arrival.
//!
//! A batch is accepted or rejected as a whole, with two exceptions: the analytics format drops single invalid events and
//! reports each, and both formats drop events such as `$identify` that disable person processing. Rules where the formats
//! leave a choice: name and distinct id are required, the id must not be blank; both are truncated to 200 characters; an
//! empty or all-zero uuid counts as missing.

use serde::de::DeserializeSeed;
use uuid::Uuid;

use crate::batch_builder::{Batch, BatchBuilder, RequestMetadata};
use crate::body::BodySeed;
use crate::error::CaptureError;
use crate::event::CaptureFormat;

/// Parses and validates `json`: an object with `batch`, a list of events, or one event. Events without a uuid get one from
/// `new_uuid`.
pub fn normalize(
    json: &[u8],
    format: CaptureFormat,
    metadata: &RequestMetadata,
    new_uuid: &mut dyn FnMut() -> Uuid,
) -> Result<Batch, CaptureError> {
    let text = std::str::from_utf8(json)
        .map_err(|error| CaptureError::invalid_body(format!("The body is not UTF-8: {error}.")))?;
    let mut builder = BatchBuilder::new(format, metadata, new_uuid);
    let mut parser = serde_json::Deserializer::from_str(text.trim_start_matches('\u{feff}'));
    let parsed = BodySeed(&mut builder).deserialize(&mut parser).and_then(|()| parser.end());
    if let Err(error) = parsed {
        return Err(builder.error.take().unwrap_or_else(|| {
            let detail = match error.is_data() {
                true => "The body must be an event, a list of events or an object with a batch.".to_owned(),
                false => format!("JSON parse error - {error}"),
            };
            CaptureError::invalid_body(detail)
        }));
    }
    builder.finish()
}
