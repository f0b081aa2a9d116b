//! The text of a capture body into a batch to be stored, by the SDKs' rules: a pure function of the text and the instant.
//!
//! A batch is taken whole or refused whole; only the vendor's newer form drops single events and says which, and either
//! form drops an event that is about a person or group and wants none to be kept. Rules where the forms leave a choice:
//! the name and the distinct id must be there, the id not blank; both are cut at 200 characters; a uuid that is empty or
//! all zero counts as none. Must stay true: properties stay as sent, except that `$set`, `$set_once` and `$unset` of the
//! event itself move into them.

use pennon_eventstore::{Captured, CapturedEvent, Packed, PackedProperties, parse_timestamp};
use serde::de::{DeserializeSeed, Error};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::body::{Body, NOTED};
use crate::event::{Fields, Place, dropped, moved, text};
use crate::refusal::Refusal;
use crate::times::{Clock, Told, told};

/// Most events of a request.
pub const EVENTS_MAX: usize = 20_000;
/// Largest event, as JSON text without blanks.
pub const EVENT_BYTES_MAX: usize = 900 * 1024;
/// Where the name of an event is cut, in characters.
pub const NAME_CHARS_MAX: usize = 200;

/// Person changes that may stand beside the properties, and their places in [`NOTED`].
const MOVED: [(&str, usize); 3] = [("$set", 3), ("$set_once", 4), ("$unset", 5)];

/// Why an event that is about a person or group and wants none to be kept is not stored.
const PERSON_UNWANTED: &str = "invalid_event_when_process_person_profile_is_false";

/// The two forms of capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// All routes but one.
    Batch,
    /// `/i/v1/analytics/events`: `created_at` and a uuid for each event are asked for, and events are judged one by one.
    Analytics,
}

/// What became of an event: none where it is stored, else why it is not.
pub type Outcome = (Uuid, Option<&'static str>);

/// What a body asks to be stored.
#[derive(Debug)]
pub struct Batch {
    /// The project token, where the body has it.
    pub token: Option<String>,
    /// The events to be stored, in their order.
    pub captured: Captured,
    /// All events, in their order.
    pub outcomes: Vec<Outcome>,
}

/// What is known of a request beside its body.
#[derive(Debug, Clone, Default)]
pub struct Received {
    /// Now, in microseconds since the epoch.
    pub now: i64,
    /// The client's clock when it sent the request, in the same unit, where the query string or a header tells.
    pub sent_at: Option<i64>,
    /// Name and version of the SDK, where a header tells.
    pub library: Option<(String, String)>,
}

/// The batch that `json` is: an object with `batch`, a list of events, or one event. `new_uuid` gives an identity to
/// events without one.
pub fn normalize(
    json: &[u8],
    form: Form,
    received: &Received,
    new_uuid: &mut dyn FnMut() -> Uuid,
) -> Result<Batch, Refusal> {
    let text = std::str::from_utf8(json)
        .map_err(|error| Refusal::body(format!("The body is not UTF-8: {error}.")))?;
    let mut reading = Reading::new(form, received, new_uuid);
    let mut parser = serde_json::Deserializer::from_str(text.trim_start_matches('\u{feff}'));
    let read = Body(&mut reading).deserialize(&mut parser).and_then(|()| parser.end());
    if let Err(error) = read {
        return Err(reading.refusal.take().unwrap_or_else(|| {
            let detail = match error.is_data() {
                true => "The body must be an event, a list of events or an object with a batch.".to_owned(),
                false => format!("JSON parse error - {error}"),
            };
            Refusal::body(detail)
        }));
    }
    reading.finished()
}

/// A body on its way.
pub(crate) struct Reading<'a> {
    form: Form,
    received: &'a Received,
    new_uuid: &'a mut dyn FnMut() -> Uuid,
    pub packed: Packed,
    /// What stands around the events.
    pub envelope: Option<Fields>,
    events: Vec<CapturedEvent>,
    /// What each of `events` tells of its time.
    told: Vec<Told>,
    pub outcomes: Vec<Outcome>,
    /// The token that the events name, and the first place that names another.
    own_token: Option<String>,
    other_token: Option<Place>,
    /// Why reading stopped.
    refusal: Option<Refusal>,
}

impl<'a> Reading<'a> {
    fn new(form: Form, received: &'a Received, new_uuid: &'a mut dyn FnMut() -> Uuid) -> Reading<'a> {
        Reading {
            form,
            received,
            new_uuid,
            packed: Packed::default(),
            envelope: None,
            events: Vec::new(),
            told: Vec::new(),
            outcomes: Vec::new(),
            own_token: None,
            other_token: None,
            refusal: None,
        }
    }

    /// Ends reading.
    pub(crate) fn stop<E: Error>(&mut self, refusal: Refusal) -> E {
        self.refusal.get_or_insert(refusal);
        E::custom("refused")
    }

    /// Takes one event.
    pub(crate) fn event(&mut self, mut fields: Fields, place: Place) -> Result<(), Refusal> {
        self.token(&fields, place);
        let properties = fields.properties.take();
        let uuid = place.uuid(fields.uuid.as_ref())?;
        let uuid = match (uuid, self.form) {
            (Some(uuid), _) => uuid,
            (None, Form::Batch) => (self.new_uuid)(),
            (None, Form::Analytics) => {
                return Err(place.refuse("required", "An event needs a uuid.", "uuid"));
            }
        };
        let inner = properties.clone().flatten().unwrap_or_default();
        let is_exact = self.packed.noted(&inner, 2) == Some(Value::Bool(true))
            || option(&fields, "disable_skew_correction") == Some(&Value::Bool(true));
        let told = told(fields.timestamp.as_ref(), fields.offset.as_ref(), is_exact, place)?;
        fields.properties = properties;
        if let Some(word) = dropped(self.form, &fields, told.is_some()) {
            self.outcomes.push((uuid, Some(word)));
            return Ok(());
        }
        let mut properties = match fields.properties.take() {
            None => self.packed.map(&Map::new()),
            Some(Some(properties)) => properties,
            Some(None) => {
                return Err(place.refuse("not_a_dict", "Properties must be an object.", "properties"));
            }
        };
        let event = place.name(fields.event.as_ref())?;
        let inner_id = self.packed.noted(&properties, 0);
        let own_id = fields.distinct_id.take().map(|id| match (id, self.form) {
            (Value::String(id), Form::Analytics) => Value::from(id.trim()),
            (id, _) => id,
        });
        let distinct_id = place.distinct_id(own_id, inner_id)?;
        if needs_person(&event) && self.wants_no_person(&fields, &properties) {
            self.outcomes.push((uuid, Some(PERSON_UNWANTED)));
            return Ok(());
        }
        for (name, own) in MOVED.into_iter().zip(fields.moved.iter_mut()) {
            if let Some(own) = own.take().filter(|value| !value.is_null()) {
                moved(&mut self.packed, &mut properties, name, own);
            }
        }
        if self.form == Form::Analytics {
            self.add_told_properties(&fields, &mut properties);
        }
        self.outcomes.push((uuid, None));
        self.told.push(told.unwrap_or(Told::Nothing));
        self.events.push(CapturedEvent { uuid, event, distinct_id, timestamp: 0, properties });
        Ok(())
    }

    /// Whether the event says that no person is to be kept of it.
    fn wants_no_person(&self, fields: &Fields, properties: &PackedProperties) -> bool {
        let told = match self.form {
            Form::Analytics => option(fields, "process_person_profile").filter(|value| value.is_boolean()),
            Form::Batch => None,
        };
        told.cloned().or_else(|| self.packed.noted(properties, 10)) == Some(Value::Bool(false))
    }

    fn token(&mut self, fields: &Fields, place: Place) {
        let inner = || {
            let properties = fields.properties.as_ref()?.as_ref()?;
            text(self.packed.noted(properties, 1).as_ref())
        };
        if let Some(own) = fields.outer_token().or_else(inner) {
            if self.own_token.as_ref().is_some_and(|token| *token != own) {
                self.other_token.get_or_insert(place);
            }
            self.own_token.get_or_insert(own);
        }
    }

    /// The newer form has fields for what the older one has as properties.
    fn add_told_properties(&mut self, fields: &Fields, properties: &mut PackedProperties) {
        let library = self.received.library.as_ref();
        let told = [
            (6, fields.session_id.clone()),
            (7, fields.window_id.clone()),
            (8, library.map(|(name, _)| Value::from(name.as_str()))),
            (9, library.map(|(_, version)| Value::from(version.as_str()))),
        ];
        for (noted, value) in told {
            if let Some(value) = value.filter(|value| !value.is_null())
                && properties_lack(properties, &self.packed, noted)
            {
                self.packed.add(properties, NOTED[noted], &value);
            }
        }
        for (name, key) in
            [("process_person_profile", "$process_person_profile"), ("cookieless_mode", "$cookieless_mode")]
        {
            if let Some(value) = option(fields, name).filter(|value| value.is_boolean()) {
                self.packed.add(properties, key, value);
            }
        }
    }

    /// The batch, now that all of the body is known.
    fn finished(mut self) -> Result<Batch, Refusal> {
        let envelope = self.envelope.take().unwrap_or_default();
        if self.outcomes.is_empty() {
            return Err(Refusal::field("required", "The batch has no event.", "batch"));
        }
        if self.form == Form::Analytics {
            created_at(&envelope)?;
        }
        let historical = envelope.historical == Some(Value::Bool(true));
        let sent_at = sent_at(&envelope, self.received)?.filter(|_| !historical);
        let clock = Clock { now: self.received.now, sent_at, historical };
        for (event, told) in self.events.iter_mut().zip(&self.told) {
            event.timestamp = clock.instant(*told);
        }
        let token = match envelope.outer_token() {
            Some(token) => Some(token),
            None => match self.other_token {
                Some(place) => return Err(Refusal::several_tokens(place.path())),
                None => self.own_token,
            },
        };
        let captured = Captured { events: self.events, packed: self.packed };
        Ok(Batch { token, captured, outcomes: self.outcomes })
    }
}

/// Whether events of this name are about nothing but persons or groups. One that wants none to be kept contradicts itself:
/// the vendor accepts it and lets it go, and so does this.
fn needs_person(event: &str) -> bool {
    ["$identify", "$create_alias", "$merge_dangerously", "$groupidentify"].contains(&event)
}

fn properties_lack(properties: &PackedProperties, packed: &Packed, noted: usize) -> bool {
    packed.noted(properties, noted).is_none()
}

fn option<'a>(fields: &'a Fields, name: &str) -> Option<&'a Value> {
    fields.options.as_ref()?.get(name)
}

/// The newer form says when the batch was made.
fn created_at(envelope: &Fields) -> Result<(), Refusal> {
    let refused = |code, detail: &str| Err(Refusal::field(code, detail, "created_at"));
    match &envelope.created_at {
        None | Some(Value::Null) => refused("required", "A batch needs the time when it was made."),
        Some(Value::String(at)) if parse_timestamp(at).is_some() => Ok(()),
        Some(_) => refused("invalid_input", "This is no ISO 8601 time."),
    }
}

/// When the client says that it sent the request. A time that cannot be read corrects nothing.
fn sent_at(envelope: &Fields, received: &Received) -> Result<Option<i64>, Refusal> {
    match &envelope.sent_at {
        None | Some(Value::Null) => Ok(received.sent_at),
        Some(Value::String(at)) => Ok(parse_timestamp(at).or(received.sent_at)),
        Some(_) => Err(Refusal::field("invalid_input", "This is no ISO 8601 time.", "sent_at")),
    }
}
