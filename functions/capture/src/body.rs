//! Streaming deserialization of a request's JSON: a batch, a list of events, or one event.
//!
//! Only the small fields of one event at a time become `serde_json` values; properties are encoded while they are parsed.
//! Must stay true: a request takes at most a few times the length of its text in memory; unknown fields are skipped,
//! at any depth.

use std::fmt;

use pennon_eventstore::{EncodedProperties, JsonSizeBudget, PropertyEncoder};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::batch_builder::BatchBuilder;
use crate::error::CaptureError;
use crate::event::{EventPath, KNOWN_PROPERTIES, RawFields};
use pennon_core::limits::capture::{EVENT_BYTES_MAX, EVENTS_MAX, NESTING_MAX};

/// Deserializes a whole body into the builder.
pub(crate) struct BodySeed<'a, 'b>(pub &'a mut BatchBuilder<'b>);

impl<'de> DeserializeSeed<'de> for BodySeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BodySeed<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an event, a list of events or an object with a batch")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        parse_events(self.0, seq, 1, "")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let builder = self.0;
        let fields = parse_fields(builder, map, 1, EventPath::ROOT)?;
        match fields.has_batch {
            true => builder.envelope = Some(fields),
            false => {
                let envelope = RawFields {
                    sent_at: fields.sent_at.clone(),
                    historical: fields.historical.clone(),
                    ..RawFields::default()
                };
                builder.add_event(fields, EventPath::ROOT).map_err(|error| builder.abort(error))?;
                builder.envelope = Some(envelope);
            }
        }
        Ok(())
    }
}

/// Parses a list of events, which is `levels` deep in the body.
fn parse_events<'de, A: SeqAccess<'de>>(
    builder: &mut BatchBuilder<'_>,
    mut seq: A,
    levels: usize,
    list: &'static str,
) -> Result<(), A::Error> {
    for index in 0.. {
        let path = EventPath { list, index: Some(index) };
        if seq.next_element_seed(EventSeed { builder, levels: levels + 1, path })?.is_none() {
            break;
        }
        // Not by `index`: an object may contain the list twice.
        if builder.outcomes.len() > EVENTS_MAX {
            let error = CaptureError::too_large(format!("The batch has more than {EVENTS_MAX} events."));
            return Err(builder.abort(error));
        }
    }
    Ok(())
}

/// Deserializes one event of a list into the builder.
struct EventSeed<'a, 'b> {
    builder: &'a mut BatchBuilder<'b>,
    levels: usize,
    path: EventPath,
}

impl EventSeed<'_, '_> {
    fn not_an_object<E: Error>(self) -> Result<(), E> {
        let error =
            CaptureError::invalid_field("not_a_dict", "An event must be an object.", self.path.path());
        Err(self.builder.abort(error))
    }
}

impl<'de> DeserializeSeed<'de> for EventSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for EventSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let EventSeed { builder, levels, path } = self;
        let fields = parse_fields(builder, map, levels, path)?;
        builder.add_event(fields, path).map_err(|error| builder.abort(error))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        self.not_an_object()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.not_an_object()
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.not_an_object()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.not_an_object()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.not_an_object()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.not_an_object()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.not_an_object()
    }
}

/// Deserializes the field `batch` into the builder.
struct BatchSeed<'a, 'b>(&'a mut BatchBuilder<'b>);

impl<'de> DeserializeSeed<'de> for BatchSeed<'_, '_> {
    /// Whether the value is a list.
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BatchSeed<'_, '_> {
    type Value = bool;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<bool, A::Error> {
        parse_events(self.0, seq, 2, "batch").map(|()| true)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(false)
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }
}

/// Parses the fields of an object that is `levels` deep: an event, or at level 1 possibly a batch.
fn parse_fields<'de, A: MapAccess<'de>>(
    builder: &mut BatchBuilder<'_>,
    mut map: A,
    levels: usize,
    path: EventPath,
) -> Result<RawFields, A::Error> {
    let mut fields = RawFields::default();
    let mut meter = JsonSizeBudget::new(EVENT_BYTES_MAX);
    let depth = NESTING_MAX - levels;
    while let Some(field) = map.next_key::<FieldName>()? {
        let parsed = if let FieldName::Batch = field
            && levels == 1
        {
            fields.has_batch = true;
            if !map.next_value_seed(BatchSeed(builder))? {
                let error =
                    CaptureError::invalid_field("not_a_list", "The batch must be a list of events.", "batch");
                return Err(builder.abort(error));
            }
            Ok(())
        } else {
            parse_field(&mut builder.property_encoder, &mut map, field, &mut meter, depth, &mut fields)
        };
        if let Err(error) = parsed {
            return Err(match meter.excess.and_then(|excess| path.limit_exceeded(excess)) {
                Some(limit_error) => builder.abort(limit_error),
                None => error,
            });
        }
    }
    Ok(fields)
}

/// Parses the value of one field.
fn parse_field<'de, A: MapAccess<'de>>(
    property_encoder: &mut PropertyEncoder,
    map: &mut A,
    field: FieldName,
    meter: &mut JsonSizeBudget,
    depth: usize,
    fields: &mut RawFields,
) -> Result<(), A::Error> {
    let slot: &mut Option<Value> = match field {
        FieldName::Properties => {
            let properties: Option<EncodedProperties> =
                map.next_value_seed(property_encoder.properties(meter, depth, KNOWN_PROPERTIES))?;
            fields.properties = Some(properties);
            return Ok(());
        }
        FieldName::Batch | FieldName::Other => return map.next_value::<IgnoredAny>().map(|_| ()),
        FieldName::Event => &mut fields.event,
        FieldName::Uuid => &mut fields.uuid,
        FieldName::DistinctId => &mut fields.distinct_id,
        FieldName::Timestamp => &mut fields.timestamp,
        FieldName::Offset => &mut fields.offset,
        FieldName::ApiKey => &mut fields.api_key,
        FieldName::Token => &mut fields.token,
        FieldName::SentAt => &mut fields.sent_at,
        FieldName::Historical => &mut fields.historical,
        FieldName::CreatedAt => &mut fields.created_at,
        FieldName::SessionId => &mut fields.session_id,
        FieldName::WindowId => &mut fields.window_id,
        FieldName::Options => &mut fields.options,
        FieldName::Set => &mut fields.person_changes[0],
        FieldName::SetOnce => &mut fields.person_changes[1],
        FieldName::Unset => &mut fields.person_changes[2],
    };
    meter.count(10)?;
    *slot = Some(map.next_value_seed(property_encoder.value(meter, depth))?);
    Ok(())
}

/// The names of the fields that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldName {
    Batch,
    Properties,
    Event,
    Uuid,
    DistinctId,
    Timestamp,
    Offset,
    ApiKey,
    Token,
    SentAt,
    Historical,
    CreatedAt,
    SessionId,
    WindowId,
    Options,
    Set,
    SetOnce,
    Unset,
    Other,
}

impl<'de> serde::Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FieldName, D::Error> {
        struct FieldNameVisitor;
        impl Visitor<'_> for FieldNameVisitor {
            type Value = FieldName;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a name")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<FieldName, E> {
                Ok(match name {
                    "batch" => FieldName::Batch,
                    "properties" => FieldName::Properties,
                    "event" => FieldName::Event,
                    "uuid" => FieldName::Uuid,
                    "distinct_id" | "$distinct_id" => FieldName::DistinctId,
                    "timestamp" => FieldName::Timestamp,
                    "offset" => FieldName::Offset,
                    "api_key" => FieldName::ApiKey,
                    "token" | "$token" => FieldName::Token,
                    "sent_at" => FieldName::SentAt,
                    "historical_migration" => FieldName::Historical,
                    "created_at" => FieldName::CreatedAt,
                    "session_id" => FieldName::SessionId,
                    "window_id" => FieldName::WindowId,
                    "options" => FieldName::Options,
                    "$set" => FieldName::Set,
                    "$set_once" => FieldName::SetOnce,
                    "$unset" => FieldName::Unset,
                    _ => FieldName::Other,
                })
            }
        }
        deserializer.deserialize_identifier(FieldNameVisitor)
    }
}
