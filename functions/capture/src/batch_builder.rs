//! Collects and validates the events of a body while it is parsed, and builds the batch to store.
//!
//! Must stay true: properties are stored as sent, except that `$set`, `$set_once` and `$unset` of the event itself are merged
//! into them.

use pennon_eventstore::{CapturedBatch, CapturedEvent, EncodedProperties, PropertyEncoder, parse_timestamp};
use serde::de::Error;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::CaptureError;
use crate::event::{
    CaptureFormat, EventPath, KNOWN_PROPERTIES, RawFields, drop_reason, merge_person_change, non_empty_text,
};
use crate::timestamps::{EventTime, RequestClocks, parse_event_time};

/// Person changes that an event may have outside of its properties, and their indexes in [`KNOWN_PROPERTIES`].
const PERSON_CHANGES: [(&str, usize); 3] = [("$set", 3), ("$set_once", 4), ("$unset", 5)];

/// Drop reason of a person or group event that disables person processing.
const PERSON_PROCESSING_DISABLED: &str = "invalid_event_when_process_person_profile_is_false";

/// An event's uuid, and the reason if it is dropped; `None` if it is stored.
pub type EventOutcome = (Uuid, Option<&'static str>);

/// A normalized batch.
#[derive(Debug)]
pub struct Batch {
    /// The project token, if the body has one.
    pub token: Option<String>,
    /// The events to store, in the order sent.
    pub captured: CapturedBatch,
    /// The outcomes of all events, in the order sent.
    pub outcomes: Vec<EventOutcome>,
}

/// Data of a request from outside of its body.
#[derive(Debug, Clone, Default)]
pub struct RequestMetadata {
    /// Time of arrival, in microseconds since the epoch.
    pub now: i64,
    /// The client's clock when it sent the request, in the same unit, from the query string or a header.
    pub sent_at: Option<i64>,
    /// Name and version of the SDK, from a header.
    pub library: Option<(String, String)>,
}

/// Collects the events of a body while it is parsed.
pub(crate) struct BatchBuilder<'a> {
    format: CaptureFormat,
    metadata: &'a RequestMetadata,
    new_uuid: &'a mut dyn FnMut() -> Uuid,
    pub property_encoder: PropertyEncoder,
    /// The fields of the object around the events.
    pub envelope: Option<RawFields>,
    events: Vec<CapturedEvent>,
    /// The time fields of each of `events`.
    event_times: Vec<EventTime>,
    pub outcomes: Vec<EventOutcome>,
    /// The first token in an event, and the first event with a different one.
    first_token: Option<String>,
    conflicting_token: Option<EventPath>,
    /// Why parsing was aborted.
    pub error: Option<CaptureError>,
}

impl<'a> BatchBuilder<'a> {
    pub(crate) fn new(
        format: CaptureFormat,
        metadata: &'a RequestMetadata,
        new_uuid: &'a mut dyn FnMut() -> Uuid,
    ) -> BatchBuilder<'a> {
        BatchBuilder {
            format,
            metadata,
            new_uuid,
            property_encoder: PropertyEncoder::default(),
            envelope: None,
            events: Vec::new(),
            event_times: Vec::new(),
            outcomes: Vec::new(),
            first_token: None,
            conflicting_token: None,
            error: None,
        }
    }

    /// Stores the first error and returns a deserializer error that aborts parsing.
    pub(crate) fn abort<E: Error>(&mut self, error: CaptureError) -> E {
        self.error.get_or_insert(error);
        E::custom("refused")
    }

    /// Validates one event and adds it to the batch, or its drop reason to the outcomes.
    pub(crate) fn add_event(&mut self, mut fields: RawFields, path: EventPath) -> Result<(), CaptureError> {
        self.collect_token(&fields, path);
        let properties = fields.properties.take();
        let uuid = path.validate_uuid(fields.uuid.as_ref())?;
        let uuid = match (uuid, self.format) {
            (Some(uuid), _) => uuid,
            (None, CaptureFormat::Batch) => (self.new_uuid)(),
            (None, CaptureFormat::Analytics) => {
                return Err(path.invalid_field("required", "An event needs a uuid.", "uuid"));
            }
        };
        let known_properties = properties.clone().flatten().unwrap_or_default();
        let is_exact = self.property_encoder.kept_value(&known_properties, 2) == Some(Value::Bool(true))
            || option(&fields, "disable_skew_correction") == Some(&Value::Bool(true));
        let time = parse_event_time(fields.timestamp.as_ref(), fields.offset.as_ref(), is_exact, path)?;
        fields.properties = properties;
        if let Some(reason) = drop_reason(self.format, &fields, time.is_some()) {
            self.outcomes.push((uuid, Some(reason)));
            return Ok(());
        }
        let mut properties = match fields.properties.take() {
            None => self.property_encoder.map(&Map::new()),
            Some(Some(properties)) => properties,
            Some(None) => {
                return Err(path.invalid_field("not_a_dict", "Properties must be an object.", "properties"));
            }
        };
        let event = path.validate_name(fields.event.as_ref())?;
        let id_in_properties = self.property_encoder.kept_value(&properties, 0);
        let top_level_id = fields.distinct_id.take().map(|id| match (id, self.format) {
            (Value::String(id), CaptureFormat::Analytics) => Value::from(id.trim()),
            (id, _) => id,
        });
        let distinct_id = path.validate_distinct_id(top_level_id, id_in_properties)?;
        if is_person_event(&event) && self.disables_person_processing(&fields, &properties) {
            self.outcomes.push((uuid, Some(PERSON_PROCESSING_DISABLED)));
            return Ok(());
        }
        for (name, own) in PERSON_CHANGES.into_iter().zip(fields.person_changes.iter_mut()) {
            if let Some(own) = own.take().filter(|value| !value.is_null()) {
                merge_person_change(&mut self.property_encoder, &mut properties, name, own);
            }
        }
        if self.format == CaptureFormat::Analytics {
            self.add_analytics_properties(&fields, &mut properties);
        }
        self.outcomes.push((uuid, None));
        self.event_times.push(time.unwrap_or(EventTime::Missing));
        self.events.push(CapturedEvent { uuid, event, distinct_id, timestamp: 0, properties });
        Ok(())
    }

    /// Whether the event disables person processing, by its option or by `$process_person_profile`.
    fn disables_person_processing(&self, fields: &RawFields, properties: &EncodedProperties) -> bool {
        let option = match self.format {
            CaptureFormat::Analytics => {
                option(fields, "process_person_profile").filter(|value| value.is_boolean())
            }
            CaptureFormat::Batch => None,
        };
        option.cloned().or_else(|| self.property_encoder.kept_value(properties, 10))
            == Some(Value::Bool(false))
    }

    fn collect_token(&mut self, fields: &RawFields, path: EventPath) {
        let token_in_properties = || {
            let properties = fields.properties.as_ref()?.as_ref()?;
            non_empty_text(self.property_encoder.kept_value(properties, 1).as_ref())
        };
        if let Some(token) = fields.top_level_token().or_else(token_in_properties) {
            if self.first_token.as_ref().is_some_and(|first| *first != token) {
                self.conflicting_token.get_or_insert(path);
            }
            self.first_token.get_or_insert(token);
        }
    }

    /// Adds the properties that the analytics format sends as fields, options and headers.
    fn add_analytics_properties(&mut self, fields: &RawFields, properties: &mut EncodedProperties) {
        let library = self.metadata.library.as_ref();
        let defaults = [
            (6, fields.session_id.clone()),
            (7, fields.window_id.clone()),
            (8, library.map(|(name, _)| Value::from(name.as_str()))),
            (9, library.map(|(_, version)| Value::from(version.as_str()))),
        ];
        for (known_index, value) in defaults {
            if let Some(value) = value.filter(|value| !value.is_null())
                && self.property_encoder.kept_value(properties, known_index).is_none()
            {
                self.property_encoder.add(properties, KNOWN_PROPERTIES[known_index], &value);
            }
        }
        for (name, key) in
            [("process_person_profile", "$process_person_profile"), ("cookieless_mode", "$cookieless_mode")]
        {
            if let Some(value) = option(fields, name).filter(|value| value.is_boolean()) {
                self.property_encoder.add(properties, key, value);
            }
        }
    }

    /// Validates the envelope, computes the timestamps and returns the batch.
    pub(crate) fn finish(mut self) -> Result<Batch, CaptureError> {
        let envelope = self.envelope.take().unwrap_or_default();
        if self.outcomes.is_empty() {
            return Err(CaptureError::invalid_field("required", "The batch has no event.", "batch"));
        }
        if self.format == CaptureFormat::Analytics {
            validate_created_at(&envelope)?;
        }
        let historical = envelope.historical == Some(Value::Bool(true));
        let sent_at = parse_sent_at(&envelope, self.metadata)?.filter(|_| !historical);
        let clocks = RequestClocks { now: self.metadata.now, sent_at, historical };
        for (event, time) in self.events.iter_mut().zip(&self.event_times) {
            event.timestamp = clocks.resolve(*time);
        }
        let token = match envelope.top_level_token() {
            Some(token) => Some(token),
            None => match self.conflicting_token {
                Some(path) => return Err(CaptureError::conflicting_tokens(path.path())),
                None => self.first_token,
            },
        };
        let captured = CapturedBatch { events: self.events, property_encoder: self.property_encoder };
        Ok(Batch { token, captured, outcomes: self.outcomes })
    }
}

/// Whether events of this name only change persons or groups. With person processing disabled such an event has no effect;
/// PostHog accepts and drops it, and so does Pennon.
fn is_person_event(event: &str) -> bool {
    ["$identify", "$create_alias", "$merge_dangerously", "$groupidentify"].contains(&event)
}

fn option<'a>(fields: &'a RawFields, name: &str) -> Option<&'a Value> {
    fields.options.as_ref()?.get(name)
}

/// The analytics format requires the time at which the batch was created.
fn validate_created_at(envelope: &RawFields) -> Result<(), CaptureError> {
    let invalid = |code, detail: &str| Err(CaptureError::invalid_field(code, detail, "created_at"));
    match &envelope.created_at {
        None | Some(Value::Null) => invalid("required", "A batch needs the time when it was made."),
        Some(Value::String(at)) if parse_timestamp(at).is_some() => Ok(()),
        Some(_) => invalid("invalid_input", "This is no ISO 8601 time."),
    }
}

/// The client's clock when it sent the request. A time that cannot be parsed is ignored.
fn parse_sent_at(envelope: &RawFields, metadata: &RequestMetadata) -> Result<Option<i64>, CaptureError> {
    match &envelope.sent_at {
        None | Some(Value::Null) => Ok(metadata.sent_at),
        Some(Value::String(at)) => Ok(parse_timestamp(at).or(metadata.sent_at)),
        Some(_) => Err(CaptureError::invalid_field("invalid_input", "This is no ISO 8601 time.", "sent_at")),
    }
}
