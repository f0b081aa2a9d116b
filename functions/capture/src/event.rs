//! The rules of one event, as the vendor has them.
//!
//! Must stay true: what is refused names its field; a property that came is kept as it came, but for null characters.

use pennon_eventstore::{Excess, Packed, PackedProperties};
use serde_json::Value;
use uuid::Uuid;

use crate::normalize::{EVENT_BYTES_MAX, Form, NAME_CHARS_MAX};
use crate::refusal::Refusal;

/// Where a distinct id is cut, in characters.
pub const DISTINCT_ID_CHARS_MAX: usize = 200;

/// The fields of an event, or of what stands around events, as they came.
#[derive(Debug, Default)]
pub(crate) struct Fields {
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
    /// `$set`, `$set_once`, `$unset` beside the properties.
    pub moved: [Option<Value>; 3],
    /// None in it where they are no object.
    pub properties: Option<Option<PackedProperties>>,
}

/// A text that is one, without blanks around it; none where it is empty.
pub(crate) fn text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

impl Fields {
    /// The token that stands here, outside of properties.
    pub(crate) fn outer_token(&self) -> Option<String> {
        text(self.api_key.as_ref()).or_else(|| text(self.token.as_ref()))
    }
}

/// Where in a body an event lies, for errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Name of the list's field; empty where the body is the list.
    pub list: &'static str,
    /// None where the body is the event.
    pub index: Option<usize>,
}

impl Place {
    /// The body is the event.
    pub(crate) const ONE: Place = Place { list: "", index: None };

    /// The event itself.
    pub(crate) fn path(self) -> String {
        self.index.map_or_else(String::new, |index| format!("{}[{index}]", self.list))
    }

    pub(crate) fn refuse(self, code: &'static str, detail: &str, name: &str) -> Refusal {
        let path = self.path();
        let field = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        Refusal::field(code, detail, field)
    }

    /// The refusal of an event that is too much.
    pub(crate) fn excess(self, excess: Excess) -> Option<Refusal> {
        let path = self.path();
        let place = if path.is_empty() { "The event" } else { &path };
        Some(match excess {
            Excess::Bytes => {
                let kilobytes = EVENT_BYTES_MAX / 1024;
                Refusal::too_large(format!("{place} has more than {kilobytes} KiB."))
            }
            Excess::Depth => {
                let most = crate::body::NESTING_MAX;
                Refusal::body(format!("{place} is nested deeper than {most} levels of the body."))
            }
        })
    }

    /// The name. Long ones are cut.
    pub(crate) fn name(self, name: Option<&Value>) -> Result<String, Refusal> {
        match name {
            None | Some(Value::Null) => Err(self.refuse("required", "An event needs a name.", "event")),
            Some(Value::String(name)) => Ok(first(name, NAME_CHARS_MAX)),
            Some(_) => Err(self.refuse("invalid_input", "Not a valid string.", "event")),
        }
    }

    /// The distinct id of the event, else of its properties. What is no text is taken as its JSON text.
    pub(crate) fn distinct_id(self, own: Option<Value>, inner: Option<Value>) -> Result<String, Refusal> {
        let id = match own.filter(|id| !id.is_null()).or(inner).unwrap_or(Value::Null) {
            Value::Null => {
                return Err(self.refuse("required", "An event needs a distinct id.", "distinct_id"));
            }
            Value::String(id) => id,
            other => other.to_string(),
        };
        if id.trim().is_empty() {
            return Err(self.refuse("blank", "An event needs a distinct id.", "distinct_id"));
        }
        Ok(first(&id, DISTINCT_ID_CHARS_MAX))
    }

    /// The uuid. Empty ones, and the one of zeros, count as none.
    pub(crate) fn uuid(self, uuid: Option<&Value>) -> Result<Option<Uuid>, Refusal> {
        let refused = || self.refuse("invalid_input", "This is no UUID.", "uuid");
        let uuid = match uuid {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
            Some(Value::String(text)) => Uuid::parse_str(text.trim()).map_err(|_| refused())?,
            Some(_) => return Err(refused()),
        };
        Ok(Some(uuid).filter(|uuid| !uuid.is_nil()))
    }
}

/// The first `most` characters of `text`.
fn first(text: &str, most: usize) -> String {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end]).to_owned()
}

/// Puts a person change of the event into its properties; of a key in both places the event's own wins.
pub(crate) fn moved(
    packed: &mut Packed,
    properties: &mut PackedProperties,
    (key, noted): (&str, usize),
    own: Value,
) {
    let value = match (packed.noted(properties, noted), own) {
        (Some(Value::Object(mut there)), Value::Object(own)) => {
            there.extend(own);
            Value::Object(there)
        }
        (_, own) => own,
    };
    packed.add(properties, key, &value);
}

/// What the vendor's newer form would drop, keeping the rest of the batch; none where the event is taken.
pub(crate) fn dropped(form: Form, fields: &Fields, is_time_read: bool) -> Option<&'static str> {
    if form == Form::Batch {
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
        (!is_time_read, "invalid_event_timestamp"),
        (matches!(fields.properties, Some(None)), "malformed_event_properties"),
    ];
    checks.into_iter().find(|(is_so, _)| *is_so).map(|(_, word)| word)
}
