//! Validation and defaults of one event, by PostHog's rules.
//!
//! Must stay true: every error names the path of its field; properties are stored as sent, except for null characters.

use pennon_eventstore::{EncodedProperties, JsonLimitError, PropertyEncoder};
use serde_json::Value;
use uuid::Uuid;

use crate::error::CaptureError;
use pennon_core::limits::capture::{DISTINCT_ID_CHARS_MAX, EVENT_BYTES_MAX, NAME_CHARS_MAX, NESTING_MAX};

/// Properties that capture reads itself, addressed by their index in this list.
pub(crate) const KNOWN_PROPERTIES: &[&str] = &[
    "distinct_id",
    "token",
    "$ignore_sent_at",
    "$set",
    "$set_once",
    "$unset",
    "$session_id",
    "$window_id",
    "$lib",
    "$lib_version",
    "$process_person_profile",
];

/// The two request formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureFormat {
    /// All routes but `/i/v1/analytics/events`.
    Batch,
    /// `/i/v1/analytics/events`: requires `created_at` and a uuid for each event, and validates each event on its own.
    Analytics,
}

/// The known fields of an event, or of the object around a batch, as parsed and not yet validated.
#[derive(Debug, Default)]
pub(crate) struct RawFields {
    pub has_batch: bool,
    pub event: Option<Value>,
    pub uuid: Option<Value>,
    pub distinct_id: Option<Value>,
    pub timestamp: Option<Value>,
    pub offset: Option<Value>,
    pub api_key: Option<Value>,
    pub token: Option<Value>,
    pub sent_at: Option<Value>,
    pub historical: Option<Value>,
    pub created_at: Option<Value>,
    pub session_id: Option<Value>,
    pub window_id: Option<Value>,
    pub options: Option<Value>,
    /// `$set`, `$set_once`, `$unset` of the event itself, outside of its properties.
    pub person_changes: [Option<Value>; 3],
    /// `Some(None)` if `properties` is present and not an object.
    pub properties: Option<Option<EncodedProperties>>,
}

/// The trimmed text of a JSON string; `None` if it is empty or not a string.
pub(crate) fn non_empty_text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

impl RawFields {
    /// The project token of these fields, without the one in `properties`.
    pub(crate) fn top_level_token(&self) -> Option<String> {
        non_empty_text(self.api_key.as_ref()).or_else(|| non_empty_text(self.token.as_ref()))
    }
}

/// The position of an event in the body, for error messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventPath {
    /// Name of the field with the list; empty if the body itself is the list.
    pub list: &'static str,
    /// `None` if the body itself is the event.
    pub index: Option<usize>,
}

impl EventPath {
    /// The body is the event.
    pub(crate) const ROOT: EventPath = EventPath { list: "", index: None };

    /// The path as text, such as `batch[1]`; empty for the root.
    pub(crate) fn path(self) -> String {
        self.index.map_or_else(String::new, |index| format!("{}[{index}]", self.list))
    }

    /// 400 for the field `name` of this event.
    pub(crate) fn invalid_field(self, code: &'static str, detail: &str, name: &str) -> CaptureError {
        let path = self.path();
        let field = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        CaptureError::invalid_field(code, detail, field)
    }

    /// The error for an event that exceeds a limit.
    pub(crate) fn limit_exceeded(self, excess: JsonLimitError) -> Option<CaptureError> {
        let path = self.path();
        let event = if path.is_empty() { "The event" } else { &path };
        Some(match excess {
            JsonLimitError::Bytes => {
                let kilobytes = EVENT_BYTES_MAX / 1024;
                CaptureError::too_large(format!("{event} has more than {kilobytes} KiB."))
            }
            JsonLimitError::Depth => CaptureError::invalid_body(format!(
                "{event} is nested deeper than {NESTING_MAX} levels of the body."
            )),
        })
    }

    /// Validates the event name and truncates it to [`NAME_CHARS_MAX`] characters.
    pub(crate) fn validate_name(self, name: Option<&Value>) -> Result<String, CaptureError> {
        match name {
            None | Some(Value::Null) => {
                Err(self.invalid_field("required", "An event needs a name.", "event"))
            }
            Some(Value::String(name)) => Ok(truncate(name, NAME_CHARS_MAX)),
            Some(_) => Err(self.invalid_field("invalid_input", "Not a valid string.", "event")),
        }
    }

    /// Validates the distinct id: `top_level`, else the one in the properties. A value that is not a string is stored as its
    /// JSON text.
    pub(crate) fn validate_distinct_id(
        self,
        top_level: Option<Value>,
        in_properties: Option<Value>,
    ) -> Result<String, CaptureError> {
        let id = match top_level.filter(|id| !id.is_null()).or(in_properties).unwrap_or(Value::Null) {
            Value::Null => {
                return Err(self.invalid_field("required", "An event needs a distinct id.", "distinct_id"));
            }
            Value::String(id) => id,
            other => other.to_string(),
        };
        if id.trim().is_empty() {
            return Err(self.invalid_field("blank", "An event needs a distinct id.", "distinct_id"));
        }
        Ok(truncate(&id, DISTINCT_ID_CHARS_MAX))
    }

    /// Validates the uuid. Empty and all-zero uuids count as missing.
    pub(crate) fn validate_uuid(self, uuid: Option<&Value>) -> Result<Option<Uuid>, CaptureError> {
        let invalid = || self.invalid_field("invalid_input", "This is no UUID.", "uuid");
        let uuid = match uuid {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
            Some(Value::String(text)) => Uuid::parse_str(text.trim()).map_err(|_| invalid())?,
            Some(_) => return Err(invalid()),
        };
        Ok(Some(uuid).filter(|uuid| !uuid.is_nil()))
    }
}

/// The first `chars_max` characters of `text`.
fn truncate(text: &str, chars_max: usize) -> String {
    text.char_indices().nth(chars_max).map_or(text, |(end, _)| &text[..end]).to_owned()
}

/// Merges a person change of the event itself (`$set`, `$set_once`, `$unset`) into its properties. If both have the same
/// key, the event's own value wins.
pub(crate) fn merge_person_change(
    property_encoder: &mut PropertyEncoder,
    properties: &mut EncodedProperties,
    (key, known_index): (&str, usize),
    own: Value,
) {
    let value = match (property_encoder.kept_value(properties, known_index), own) {
        (Some(Value::Object(mut in_properties)), Value::Object(own)) => {
            in_properties.extend(own);
            Value::Object(in_properties)
        }
        (_, own) => own,
    };
    property_encoder.add(properties, key, &value);
}

/// Why PostHog's `/i/v1/analytics/events` drops this event and keeps the rest of the batch; `None` if it stores the event.
pub(crate) fn drop_reason(
    format: CaptureFormat,
    fields: &RawFields,
    is_time_valid: bool,
) -> Option<&'static str> {
    if format == CaptureFormat::Batch {
        return None;
    }
    let length = |value: &Option<Value>| match value {
        Some(Value::String(text)) => text.trim().chars().count(),
        _ => 0,
    };
    let checks = [
        (length(&fields.event) == 0, "missing_event_name"),
        (length(&fields.event) > NAME_CHARS_MAX, "event_name_too_long"),
        (length(&fields.distinct_id) == 0, "missing_distinct_id"),
        (length(&fields.distinct_id) > DISTINCT_ID_CHARS_MAX, "distinct_id_too_large"),
        (!is_time_valid, "invalid_event_timestamp"),
        (matches!(fields.properties, Some(None)), "malformed_event_properties"),
    ];
    checks.into_iter().find(|(applies, _)| *applies).map(|(_, reason)| reason)
}
