//! The JSON of a request, read field by field: a batch, a list of events, or one event.
//!
//! Nothing of a body becomes a tree of values but the small fields of one event at a time; properties are packed as they
//! are read. Must stay true: what a request holds in memory is at most a few times the length of its text; every field
//! that is not known is passed over, however deep it is.

use std::fmt;

use pennon_eventstore::{Meter, Packed, PackedProperties};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::event::{Fields, Place};
use crate::normalize::{EVENT_BYTES_MAX, EVENTS_MAX, Reading};
use crate::refusal::Refusal;

/// Deepest nesting of arrays and objects in what is kept of a body.
pub const NESTING_MAX: usize = 64;
/// Properties that say something of the event itself; by their places in this list.
pub(crate) const NOTED: &[&str] = &[
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

/// A whole body.
pub(crate) struct Body<'a, 'b>(pub &'a mut Reading<'b>);

impl<'de> DeserializeSeed<'de> for Body<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Body<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an event, a list of events or an object with a batch")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        events(self.0, seq, 1, "")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let reading = self.0;
        let fields = fields(reading, map, 1, Place::ONE)?;
        match fields.has_batch {
            true => reading.envelope = Some(fields),
            false => {
                let own = Fields {
                    sent_at: fields.sent_at.clone(),
                    historical: fields.historical.clone(),
                    ..Fields::default()
                };
                reading.event(fields, Place::ONE).map_err(|refusal| reading.stop(refusal))?;
                reading.envelope = Some(own);
            }
        }
        Ok(())
    }
}

/// Reads a list of events. They lie `levels` deep in the body.
fn events<'de, A: SeqAccess<'de>>(
    reading: &mut Reading<'_>,
    mut seq: A,
    levels: usize,
    list: &'static str,
) -> Result<(), A::Error> {
    for index in 0.. {
        let place = Place { list, index: Some(index) };
        if seq.next_element_seed(OneEvent { reading, levels: levels + 1, place })?.is_none() {
            break;
        }
        // Not by the index: an object may have its list twice.
        if reading.outcomes.len() > EVENTS_MAX {
            let refusal = Refusal::too_large(format!("The batch has more than {EVENTS_MAX} events."));
            return Err(reading.stop(refusal));
        }
    }
    Ok(())
}

/// One event of a list.
struct OneEvent<'a, 'b> {
    reading: &'a mut Reading<'b>,
    levels: usize,
    place: Place,
}

impl OneEvent<'_, '_> {
    fn no_object<E: Error>(self) -> Result<(), E> {
        let refusal = Refusal::field("not_a_dict", "An event must be an object.", self.place.path());
        Err(self.reading.stop(refusal))
    }
}

impl<'de> DeserializeSeed<'de> for OneEvent<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OneEvent<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let OneEvent { reading, levels, place } = self;
        let fields = fields(reading, map, levels, place)?;
        reading.event(fields, place).map_err(|refusal| reading.stop(refusal))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        self.no_object()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.no_object()
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.no_object()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.no_object()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.no_object()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.no_object()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.no_object()
    }
}

/// The list of a batch.
struct List<'a, 'b>(&'a mut Reading<'b>);

impl<'de> DeserializeSeed<'de> for List<'_, '_> {
    /// Whether it is a list.
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = bool;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<bool, A::Error> {
        events(self.0, seq, 2, "batch").map(|()| true)
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

/// The fields of an object that lies `levels` deep: an event, or outermost a batch.
fn fields<'de, A: MapAccess<'de>>(
    reading: &mut Reading<'_>,
    mut map: A,
    levels: usize,
    place: Place,
) -> Result<Fields, A::Error> {
    let mut found = Fields::default();
    let mut meter = Meter::new(EVENT_BYTES_MAX);
    let depth = NESTING_MAX - levels;
    while let Some(field) = map.next_key::<Field>()? {
        let read = if let Field::Batch = field
            && levels == 1
        {
            found.has_batch = true;
            if !map.next_value_seed(List(reading))? {
                let refusal = Refusal::field("not_a_list", "The batch must be a list of events.", "batch");
                return Err(reading.stop(refusal));
            }
            Ok(())
        } else {
            one(&mut reading.packed, &mut map, field, &mut meter, depth, &mut found)
        };
        if let Err(error) = read {
            return Err(match meter.excess.and_then(|excess| place.excess(excess)) {
                Some(refusal) => reading.stop(refusal),
                None => error,
            });
        }
    }
    Ok(found)
}

/// One field of an event.
fn one<'de, A: MapAccess<'de>>(
    packed: &mut Packed,
    map: &mut A,
    field: Field,
    meter: &mut Meter,
    depth: usize,
    found: &mut Fields,
) -> Result<(), A::Error> {
    let slot: &mut Option<Value> = match field {
        Field::Properties => {
            let properties: Option<PackedProperties> =
                map.next_value_seed(packed.properties(meter, depth, NOTED))?;
            found.properties = Some(properties);
            return Ok(());
        }
        Field::Batch | Field::Other => return map.next_value::<IgnoredAny>().map(|_| ()),
        Field::Event => &mut found.event,
        Field::Uuid => &mut found.uuid,
        Field::DistinctId => &mut found.distinct_id,
        Field::Timestamp => &mut found.timestamp,
        Field::Offset => &mut found.offset,
        Field::ApiKey => &mut found.api_key,
        Field::Token => &mut found.token,
        Field::SentAt => &mut found.sent_at,
        Field::Historical => &mut found.historical,
        Field::CreatedAt => &mut found.created_at,
        Field::SessionId => &mut found.session_id,
        Field::WindowId => &mut found.window_id,
        Field::Options => &mut found.options,
        Field::Set => &mut found.moved[0],
        Field::SetOnce => &mut found.moved[1],
        Field::Unset => &mut found.moved[2],
    };
    meter.count(10)?;
    *slot = Some(map.next_value_seed(packed.value(meter, depth))?);
    Ok(())
}

/// The fields that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
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

impl<'de> serde::Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Field, D::Error> {
        struct Named;
        impl Visitor<'_> for Named {
            type Value = Field;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a name")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Field, E> {
                Ok(match name {
                    "batch" => Field::Batch,
                    "properties" => Field::Properties,
                    "event" => Field::Event,
                    "uuid" => Field::Uuid,
                    "distinct_id" | "$distinct_id" => Field::DistinctId,
                    "timestamp" => Field::Timestamp,
                    "offset" => Field::Offset,
                    "api_key" => Field::ApiKey,
                    "token" | "$token" => Field::Token,
                    "sent_at" => Field::SentAt,
                    "historical_migration" => Field::Historical,
                    "created_at" => Field::CreatedAt,
                    "session_id" => Field::SessionId,
                    "window_id" => Field::WindowId,
                    "options" => Field::Options,
                    "$set" => Field::Set,
                    "$set_once" => Field::SetOnce,
                    "$unset" => Field::Unset,
                    _ => Field::Other,
                })
            }
        }
        deserializer.deserialize_identifier(Named)
    }
}
