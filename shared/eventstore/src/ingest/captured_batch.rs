//! A batch on its way in: the properties of its events lie in the form of a block from the moment they are read, so that a
//! small body cannot stand for a large tree of values, and nothing is taken apart twice.
//!
//! Must stay true: what is kept is at most a few times as long as the JSON text was; names of properties are numbered
//! within the batch; of a name that an event has twice the last value counts.

use std::collections::HashMap;
use std::ops::Range;

use pennon_engine::scan::Micros;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::blocks::block;
use crate::codec::{Reader, write_field, write_unsigned};
use crate::error::EventStoreError;
use crate::event::Event;
use crate::ingest::json_packing::{Meter, PropertiesSeed, ValueSeed};
use crate::persons::person_ids::{may_merge, names_a_merge};

/// Most names of properties that one call asks to be noted.
pub(crate) const KEPT_PROPERTIES_MAX: usize = 12;

/// Properties of events, as they are being read.
#[derive(Debug, Default)]
pub struct Packed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) keys: Keys,
}

/// The properties of one event among [`Packed`].
#[derive(Debug, Clone, Default)]
pub struct PackedProperties {
    pub(crate) range: Range<usize>,
    /// Where the fields begin whose names were to be noted.
    pub(crate) noted: [Option<usize>; KEPT_PROPERTIES_MAX],
}

/// The names of properties in a batch, numbered in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    codes: HashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
}

impl Keys {
    /// The number of `name`.
    pub(crate) fn code(&mut self, name: &str) -> u32 {
        if let Some(code) = self.codes.get(name) {
            return *code;
        }
        let code = self.names.len() as u32;
        self.names.push(name.into());
        self.codes.insert(name.into(), code);
        code
    }

    /// All names, by number.
    pub(crate) fn names(&self) -> &[Box<str>] {
        &self.names
    }
}

impl Packed {
    /// Reads a JSON object as the properties of an event. `depth` more levels of nesting are taken, the object's own
    /// included; where the fields called `noted` (twelve at most) lie is remembered.
    pub fn properties<'a>(
        &'a mut self,
        meter: &'a mut Meter,
        depth: usize,
        noted: &'static [&'static str],
    ) -> PropertiesSeed<'a> {
        PropertiesSeed { packed: self, meter, depth, noted }
    }

    /// Reads one JSON value, as part of the event whose `meter` this is.
    pub fn value<'a>(&'a mut self, meter: &'a mut Meter, depth: usize) -> ValueSeed<'a> {
        ValueSeed { packed: self, meter, depth }
    }

    /// The value of the noted field number `index` of `properties`.
    pub fn noted(&self, properties: &PackedProperties, index: usize) -> Option<Value> {
        let start = properties.noted.get(index).copied().flatten()?;
        let mut reader = Reader::new(self.bytes.get(start..)?);
        let tag = reader.tag().ok()?;
        reader.unsigned().ok()?;
        reader.value(tag).ok()
    }

    /// Gives `properties` one more field, which replaces another of that name.
    pub fn add(&mut self, properties: &mut PackedProperties, name: &str, value: &Value) {
        if properties.range.end != self.bytes.len() {
            let start = self.bytes.len();
            let moved = start as isize - properties.range.start as isize;
            self.bytes.extend_from_within(properties.range.clone());
            for place in properties.noted.iter_mut().flatten() {
                *place = place.saturating_add_signed(moved);
            }
            properties.range.start = start;
        }
        let code = self.keys.code(name);
        write_field(&mut self.bytes, |out| write_unsigned(out, code.into()), value);
        properties.range.end = self.bytes.len();
    }

    /// The properties of an event that come as a map.
    pub fn map(&mut self, map: &Map<String, Value>) -> PackedProperties {
        let start = self.bytes.len();
        for (name, value) in map {
            let code = self.keys.code(name);
            write_field(&mut self.bytes, |out| write_unsigned(out, code.into()), value);
        }
        PackedProperties { range: start..self.bytes.len(), ..PackedProperties::default() }
    }

    fn unpacked(
        &self,
        properties: &PackedProperties,
        wanted: fn(&str) -> bool,
    ) -> Result<Map<String, Value>, EventStoreError> {
        let mut reader = Reader::new(&self.bytes[properties.range.clone()]);
        let mut map = Map::new();
        while !reader.is_empty() {
            let tag = reader.tag()?;
            let name = usize::try_from(reader.unsigned()?).ok().and_then(|code| self.keys.names.get(code));
            let name = name.ok_or_else(|| EventStoreError::corrupt("a property without a name"))?;
            match wanted(name) {
                true => drop(map.insert(name.to_string(), reader.value(tag)?)),
                false => reader.skip(tag)?,
            }
        }
        Ok(map)
    }
}

/// An event of a batch, beside its properties.
#[derive(Debug, Clone)]
pub struct CapturedEvent {
    /// Its identity inside the project: copies of one uuid count once.
    pub uuid: Uuid,
    /// Its name.
    pub event: String,
    /// Who did it, as the sender calls them.
    pub distinct_id: String,
    /// When it happened.
    pub timestamp: Micros,
    /// Its properties.
    pub properties: PackedProperties,
}

/// A batch as it is stored.
#[derive(Debug)]
pub struct Sealed {
    pub(crate) block: Vec<u8>,
    /// Its events that may ask for merges of persons.
    pub(crate) merging: Vec<Event>,
}

/// A batch to be stored.
#[derive(Debug, Default)]
pub struct Captured {
    /// Its events, in their order.
    pub events: Vec<CapturedEvent>,
    /// Their properties.
    pub packed: Packed,
}

impl Captured {
    /// The batch of `events`.
    pub fn of(events: &[Event]) -> Captured {
        let mut packed = Packed::default();
        let event = |event: &Event| CapturedEvent {
            uuid: event.uuid,
            event: event.event.clone(),
            distinct_id: event.distinct_id.clone(),
            timestamp: event.timestamp,
            properties: packed.map(&event.properties),
        };
        Captured { events: events.iter().map(event).collect(), packed }
    }

    /// The batch, ready to be stored: work for a thread that may be busy for a while.
    ///
    /// [`EventStoreError::TooLarge`] when it does not fit into one transaction.
    pub fn sealed(self) -> Result<Sealed, EventStoreError> {
        Ok(Sealed { merging: self.merging()?, block: block::encode(&self)? })
    }

    /// The events that may ask for merges of persons, with the properties that say of whom.
    fn merging(&self) -> Result<Vec<Event>, EventStoreError> {
        self.unpacked(may_merge, names_a_merge)
    }

    /// All events, with all of their properties.
    pub fn in_full(&self) -> Result<Vec<Event>, EventStoreError> {
        self.unpacked(|_| true, |_| true)
    }

    fn unpacked(
        &self,
        named: fn(&str) -> bool,
        property: fn(&str) -> bool,
    ) -> Result<Vec<Event>, EventStoreError> {
        let events = self.events.iter().filter(|event| named(&event.event));
        let unpacked = |event: &CapturedEvent| {
            Ok(Event {
                uuid: event.uuid,
                event: event.event.clone(),
                distinct_id: event.distinct_id.clone(),
                timestamp: event.timestamp,
                properties: self.packed.unpacked(&event.properties, property)?,
            })
        };
        events.map(unpacked).collect()
    }
}
