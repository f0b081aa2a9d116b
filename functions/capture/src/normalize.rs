//! A decoded capture body into events, by the SDKs' rules: a pure function of the body and the instant.
//!
//! A batch is taken whole or refused whole. Rules where the forms leave a choice: the name and the distinct id must be
//! there, the id not blank; a distinct id may be a number and is cut at 200 characters; a uuid that is empty or all zero
//! counts as none; a time that cannot be read is refused, not replaced. Must stay true: properties stay as sent, except
//! that `$set`, `$set_once` and `$unset` of the event itself move into them.

use pennon_eventstore::{Event, parse_timestamp};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::refusal::Refusal;

/// Most events of a request.
pub const EVENTS_MAX: usize = 20_000;
/// Largest event, as JSON text without blanks.
pub const EVENT_BYTES_MAX: usize = 900 * 1024;
/// Longest name of an event, in characters.
pub const NAME_CHARS_MAX: usize = 200;
/// Where a distinct id is cut, in characters.
pub const DISTINCT_ID_CHARS_MAX: usize = 200;

/// Person changes that may stand beside the properties.
const MOVED: [&str; 3] = ["$set", "$set_once", "$unset"];

/// What a body asks to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The project token, where the body has it.
    pub token: Option<String>,
    /// The events, in their order.
    pub events: Vec<Event>,
}

/// The instant of a request, and what the query string says of the client's clock.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// Now, in microseconds since the epoch.
    pub now: i64,
    /// The client's clock when it sent the request, in the same unit, where the query string tells.
    pub sent_at: Option<i64>,
}

/// The events of `value`: an object with `batch`, a list of events, or one event. `new_uuid` gives an identity to events
/// without one.
pub fn normalize(
    value: Value,
    received: Received,
    new_uuid: &mut dyn FnMut() -> Uuid,
) -> Result<Batch, Refusal> {
    let (envelope, events, prefix) = match value {
        Value::Array(events) => (Map::new(), events, ""),
        Value::Object(mut envelope) => match envelope.remove("batch") {
            Some(Value::Array(events)) => (envelope, events, "batch"),
            Some(_) => {
                return Err(Refusal::field("not_a_list", "The batch must be a list of events.", "batch"));
            }
            None => {
                let head = ["api_key", "token", "sent_at"].iter();
                let head = head.filter_map(|key| Some(((*key).to_owned(), envelope.get(*key)?.clone())));
                (head.collect(), vec![Value::Object(envelope)], "")
            }
        },
        _ => {
            return Err(Refusal::body(
                "The body must be an event, a list of events or an object with a batch.",
            ));
        }
    };
    if events.is_empty() {
        return Err(Refusal::field("required", "The batch has no event.", "batch"));
    }
    if events.len() > EVENTS_MAX {
        return Err(Refusal::too_large(format!("The batch has more than {EVENTS_MAX} events.")));
    }
    let mut token = text(envelope.get("api_key")).or_else(|| text(envelope.get("token")));
    let historical = envelope.get("historical_migration") == Some(&Value::Bool(true));
    let clock = Clock { now: received.now, sent_at: sent_at(&envelope, received)?.filter(|_| !historical) };
    let single = events.len() == 1 && prefix.is_empty();
    let mut normalized = Vec::with_capacity(events.len());
    let named = token.is_some();
    for (index, event) in events.into_iter().enumerate() {
        let place = if single { String::new() } else { format!("{prefix}[{index}]") };
        let Value::Object(event) = event else {
            return Err(Refusal::field("not_a_dict", "An event must be an object.", place));
        };
        if !named && let Some(own) = own_token(&event) {
            if token.as_ref().is_some_and(|token| *token != own) {
                let detail =
                    "The events name different project tokens. Send each project's events by themselves.";
                return Err(Refusal::field("invalid_input", detail, format!("{place}.properties.token")));
            }
            token = Some(own);
        }
        normalized.push(Place { path: &place }.event(event, clock, new_uuid)?);
    }
    Ok(Batch { token, events: normalized })
}

#[derive(Clone, Copy)]
struct Clock {
    now: i64,
    sent_at: Option<i64>,
}

/// When the client says that it sent the request.
fn sent_at(envelope: &Map<String, Value>, received: Received) -> Result<Option<i64>, Refusal> {
    match envelope.get("sent_at") {
        None | Some(Value::Null) => Ok(received.sent_at),
        Some(Value::String(at)) if at.is_empty() => Ok(received.sent_at),
        Some(Value::String(at)) => match parse_timestamp(at) {
            Some(at) => Ok(Some(at)),
            None => Err(Refusal::field("invalid_input", "This is no ISO 8601 time.", "sent_at")),
        },
        Some(_) => Err(Refusal::field("invalid_input", "This is no ISO 8601 time.", "sent_at")),
    }
}

fn own_token(event: &Map<String, Value>) -> Option<String> {
    text(event.get("api_key"))
        .or_else(|| text(event.get("token")))
        .or_else(|| text(event.get("properties").and_then(|properties| properties.get("token"))))
}

fn text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Where in the body an event lies, for errors.
struct Place<'a> {
    path: &'a str,
}

impl Place<'_> {
    fn field(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn refuse(&self, code: &'static str, detail: impl Into<String>, name: &str) -> Refusal {
        Refusal::field(code, detail, self.field(name))
    }

    fn event(
        &self,
        mut sent: Map<String, Value>,
        clock: Clock,
        new_uuid: &mut dyn FnMut() -> Uuid,
    ) -> Result<Event, Refusal> {
        if json_bytes(&sent) > EVENT_BYTES_MAX {
            let kilobytes = EVENT_BYTES_MAX / 1024;
            let place = if self.path.is_empty() { "The event" } else { self.path };
            return Err(Refusal::too_large(format!("{place} has more than {kilobytes} KiB.")));
        }
        let event = self.name(sent.remove("event"))?;
        let uuid = match self.uuid(sent.remove("uuid"))? {
            Some(uuid) => uuid,
            None => new_uuid(),
        };
        let mut properties = match sent.remove("properties") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(properties)) => properties,
            Some(_) => return Err(self.refuse("not_a_dict", "Properties must be an object.", "properties")),
        };
        let distinct_id = self.distinct_id(sent.remove("distinct_id"), &properties)?;
        let timestamp = self.timestamp(&sent, &properties, clock)?;
        for key in MOVED {
            if let Some(value) = sent.remove(key).filter(|value| !value.is_null()) {
                moved(&mut properties, key, value);
            }
        }
        if properties.iter().any(|(key, value)| key.contains('\0') || has_nul(value)) {
            return Err(self.refuse("invalid_input", "Null characters are not allowed.", "properties"));
        }
        Ok(Event { uuid, event, distinct_id, timestamp, properties })
    }

    fn name(&self, name: Option<Value>) -> Result<String, Refusal> {
        let name = match name {
            None | Some(Value::Null) => {
                return Err(self.refuse("required", "An event needs a name.", "event"));
            }
            Some(Value::String(name)) => name,
            Some(_) => return Err(self.refuse("invalid_input", "Not a valid string.", "event")),
        };
        if name.contains('\0') {
            return Err(self.refuse("invalid_input", "Null characters are not allowed.", "event"));
        }
        if name.chars().count() > NAME_CHARS_MAX {
            let detail = format!("Ensure this field has no more than {NAME_CHARS_MAX} characters.");
            return Err(self.refuse("max_length", detail, "event"));
        }
        Ok(name)
    }

    fn distinct_id(&self, own: Option<Value>, properties: &Map<String, Value>) -> Result<String, Refusal> {
        let own = own.filter(|id| !id.is_null());
        let id = match own.as_ref().or_else(|| properties.get("distinct_id")) {
            None | Some(Value::Null) => {
                return Err(self.refuse("required", "An event needs a distinct id.", "distinct_id"));
            }
            Some(Value::String(id)) => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            Some(_) => return Err(self.refuse("invalid_input", "Not a valid string.", "distinct_id")),
        };
        if id.trim().is_empty() {
            return Err(self.refuse("blank", "An event needs a distinct id.", "distinct_id"));
        }
        if id.contains('\0') {
            return Err(self.refuse("invalid_input", "Null characters are not allowed.", "distinct_id"));
        }
        Ok(id.chars().take(DISTINCT_ID_CHARS_MAX).collect())
    }

    fn uuid(&self, uuid: Option<Value>) -> Result<Option<Uuid>, Refusal> {
        let refused = || self.refuse("invalid_input", "This is no UUID.", "uuid");
        let uuid = match uuid {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
            Some(Value::String(text)) => Uuid::parse_str(text.trim()).map_err(|_| refused())?,
            Some(_) => return Err(refused()),
        };
        Ok(Some(uuid).filter(|uuid| !uuid.is_nil()))
    }

    /// When the event happened by our clock: the client's clock is corrected by the difference that it shows when it
    /// sends, unless the event forbids it. Without a time it happened `offset` milliseconds ago, or now.
    fn timestamp(
        &self,
        sent: &Map<String, Value>,
        properties: &Map<String, Value>,
        clock: Clock,
    ) -> Result<i64, Refusal> {
        let wrong = |field: &str| {
            self.refuse("invalid_input", "This is no ISO 8601 time of the years 1 to 9999.", field)
        };
        let at = match sent.get("timestamp") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text.trim().is_empty() => None,
            Some(Value::String(text)) => Some(parse_timestamp(text).ok_or_else(|| wrong("timestamp"))?),
            Some(_) => return Err(wrong("timestamp")),
        };
        if let Some(at) = at {
            let keep = properties.get("$ignore_sent_at") == Some(&Value::Bool(true));
            let skew = clock.sent_at.filter(|_| !keep).map_or(0, |sent_at| clock.now - sent_at);
            return in_range(at.saturating_add(skew)).ok_or_else(|| wrong("timestamp"));
        }
        match sent.get("offset") {
            None | Some(Value::Null) => Ok(clock.now),
            Some(offset) => {
                let refused =
                    || self.refuse("invalid_input", "A number of milliseconds is required.", "offset");
                let milliseconds =
                    offset.as_f64().filter(|offset| offset.abs() < 1e14).ok_or_else(refused)?;
                in_range(clock.now - (milliseconds * 1000.0) as i64).ok_or_else(refused)
            }
        }
    }
}

/// An instant of the years 1 to 9999.
fn in_range(micros: i64) -> Option<i64> {
    (-62_135_596_800_000_000..=253_402_300_799_999_999).contains(&micros).then_some(micros)
}

/// Puts a person change of the event into its properties; of a key in both places the event's own wins.
fn moved(properties: &mut Map<String, Value>, key: &str, value: Value) {
    match (properties.get_mut(key), value) {
        (Some(Value::Object(there)), Value::Object(own)) => there.extend(own),
        (_, value) => {
            properties.insert(key.to_owned(), value);
        }
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        _ => false,
    }
}

/// About how long the object is as JSON text; escapes are not counted.
fn json_bytes(fields: &Map<String, Value>) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::Null | Value::Bool(_) => 5,
            Value::Number(_) => 8,
            Value::String(text) => text.len() + 2,
            Value::Array(items) => 2 + items.iter().map(|item| of(item) + 1).sum::<usize>(),
            Value::Object(fields) => json_bytes(fields),
        }
    }
    2 + fields.iter().map(|(key, value)| key.len() + 4 + of(value)).sum::<usize>()
}
