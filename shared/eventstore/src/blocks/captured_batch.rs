//! A captured batch on its way into a block: properties are encoded in the block format while they are parsed,
//! so that a small body cannot expand to a large tree of values, and nothing is decoded twice.
//!
//! Must stay true: memory is at most a few times the length of the JSON text; property names are interned per
//! batch; for a repeated name in an event the last value wins.

use std::collections::HashMap;
use std::ops::Range;

use pennon_analytics::scan::Micros;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::blocks::block;
use crate::blocks::json_encoding::{JsonSizeBudget, PropertiesSeed, ValueSeed};
use crate::codec::{BinaryReader, write_field, write_unsigned};
use crate::error::EventStoreError;
use crate::event::Event;
use crate::person_ids::{may_merge, names_a_merge};

/// Most properties whose values one call looks up.
pub(crate) const KEPT_PROPERTIES_MAX: usize = 12;

/// Encoder for the properties of a batch.
#[derive(Debug, Default)]
pub struct PropertyEncoder {
    pub(crate) bytes: Vec<u8>,
    pub(crate) keys: PropertyNameTable,
}

/// The encoded properties of one event in [`PropertyEncoder`].
#[derive(Debug, Clone, Default)]
pub struct EncodedProperties {
    pub(crate) range: Range<usize>,
    /// Positions of the looked-up fields.
    pub(crate) kept_offsets: [Option<usize>; KEPT_PROPERTIES_MAX],
}

/// Interned property names of a batch, in order of appearance.
#[derive(Debug, Default)]
pub(crate) struct PropertyNameTable {
    codes: HashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
}

impl PropertyNameTable {
    /// The index of `name`.
    pub(crate) fn code(&mut self, name: &str) -> u32 {
        if let Some(code) = self.codes.get(name) {
            return *code;
        }
        let code = self.names.len() as u32;
        self.names.push(name.into());
        self.codes.insert(name.into(), code);
        code
    }

    /// All names, by index.
    pub(crate) fn names(&self) -> &[Box<str>] {
        &self.names
    }
}

impl PropertyEncoder {
    /// Parses a JSON object as the properties of an event. `depth` is the nesting that is left, the object
    /// included. Remembers the positions of the fields in `kept_names` (at most twelve).
    pub fn properties<'a>(
        &'a mut self,
        meter: &'a mut JsonSizeBudget,
        depth: usize,
        kept_names: &'static [&'static str],
    ) -> PropertiesSeed<'a> {
        PropertiesSeed { property_encoder: self, meter, depth, kept_names }
    }

    /// Parses one JSON value, counted by the `meter` of the event.
    pub fn value<'a>(&'a mut self, meter: &'a mut JsonSizeBudget, depth: usize) -> ValueSeed<'a> {
        ValueSeed { property_encoder: self, meter, depth }
    }

    /// The value of field number `index` of `kept_names`.
    pub fn kept_value(&self, properties: &EncodedProperties, index: usize) -> Option<Value> {
        let start = properties.kept_offsets.get(index).copied().flatten()?;
        let mut reader = BinaryReader::new(self.bytes.get(start..)?);
        let tag = reader.tag().ok()?;
        reader.unsigned().ok()?;
        reader.value(tag).ok()
    }

    /// Adds a field to `properties`; it replaces one of the same name.
    pub fn add(&mut self, properties: &mut EncodedProperties, name: &str, value: &Value) {
        if properties.range.end != self.bytes.len() {
            let start = self.bytes.len();
            let moved = start as isize - properties.range.start as isize;
            self.bytes.extend_from_within(properties.range.clone());
            for place in properties.kept_offsets.iter_mut().flatten() {
                *place = place.saturating_add_signed(moved);
            }
            properties.range.start = start;
        }
        let code = self.keys.code(name);
        write_field(&mut self.bytes, |out| write_unsigned(out, code.into()), value);
        properties.range.end = self.bytes.len();
    }

    /// Encodes the properties of a map.
    pub fn map(&mut self, map: &Map<String, Value>) -> EncodedProperties {
        let start = self.bytes.len();
        for (name, value) in map {
            let code = self.keys.code(name);
            write_field(&mut self.bytes, |out| write_unsigned(out, code.into()), value);
        }
        EncodedProperties { range: start..self.bytes.len(), ..EncodedProperties::default() }
    }

    fn unpacked(
        &self,
        properties: &EncodedProperties,
        requested: fn(&str) -> bool,
    ) -> Result<Map<String, Value>, EventStoreError> {
        let mut reader = BinaryReader::new(&self.bytes[properties.range.clone()]);
        let mut map = Map::new();
        while !reader.is_empty() {
            let tag = reader.tag()?;
            let name = usize::try_from(reader.unsigned()?).ok().and_then(|code| self.keys.names.get(code));
            let name = name.ok_or_else(|| EventStoreError::corrupt("a property without a name"))?;
            match requested(name) {
                true => drop(map.insert(name.to_string(), reader.value(tag)?)),
                false => reader.skip(tag)?,
            }
        }
        Ok(map)
    }
}

/// An event of a batch, without its properties.
#[derive(Debug, Clone)]
pub struct CapturedEvent {
    /// Its key inside the project: events with the same uuid count once.
    pub uuid: Uuid,
    /// Its name.
    pub event: String,
    /// The distinct id, as sent.
    pub distinct_id: String,
    /// When it happened.
    pub timestamp: Micros,
    /// Its properties.
    pub properties: EncodedProperties,
}

/// An encoded batch, ready to be stored.
#[derive(Debug)]
pub struct EncodedBatch {
    pub(crate) block: Vec<u8>,
    /// Its events that may request person merges.
    pub(crate) merging: Vec<Event>,
}

impl EncodedBatch {
    /// Whether events of the batch may request person merges.
    pub(crate) fn may_request_merges(&self) -> bool {
        !self.merging.is_empty()
    }
}

/// A captured batch.
#[derive(Debug, Default)]
pub struct CapturedBatch {
    /// Its events, in order.
    pub events: Vec<CapturedEvent>,
    /// Their properties.
    pub property_encoder: PropertyEncoder,
}

impl CapturedBatch {
    /// The batch of `events`.
    pub fn of(events: &[Event]) -> CapturedBatch {
        let mut property_encoder = PropertyEncoder::default();
        let event = |event: &Event| CapturedEvent {
            uuid: event.uuid,
            event: event.event.clone(),
            distinct_id: event.distinct_id.clone(),
            timestamp: event.timestamp,
            properties: property_encoder.map(&event.properties),
        };
        CapturedBatch { events: events.iter().map(event).collect(), property_encoder }
    }

    /// Encodes the batch. CPU-bound: call it on a blocking thread.
    ///
    /// [`EventStoreError::TooLarge`] when it does not fit into one transaction.
    pub fn encode(self) -> Result<EncodedBatch, EventStoreError> {
        Ok(EncodedBatch { merging: self.merging()?, block: block::encode(&self)? })
    }

    /// As [`CapturedBatch::encode`], for a batch whose person merges were applied before.
    pub(crate) fn encode_without_merges(self) -> Result<EncodedBatch, EventStoreError> {
        Ok(EncodedBatch { merging: Vec::new(), block: block::encode(&self)? })
    }

    /// The events that may request person merges, with the properties that name the persons.
    fn merging(&self) -> Result<Vec<Event>, EventStoreError> {
        self.unpacked(may_merge, names_a_merge)
    }

    /// Decodes all events with all properties.
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
                properties: self.property_encoder.unpacked(&event.properties, property)?,
            })
        };
        events.map(unpacked).collect()
    }
}
