//! A captured batch as one compressed item, or a few when it is large.
//!
//! Form: `PNB`, a format number, the inflated size (four bytes, lowest first), and a zstd frame of: the number of events;
//! the names of events and of properties that occur, each list behind its length; of all events the uuids (16 bytes each),
//! the times (differences), the numbers of their names, the distinct ids, the lengths of their properties; and the
//! properties, one event after another, as fields in the form of [`crate::codec`] with numbers for names.
//!
//! So a reader who wants a few events and a few of their properties goes past the rest without building it. Must stay
//! true: the index of an event in its block is part of its `seq`, so a block keeps the order of its batch; a block of an
//! unknown format is refused, never guessed at.

use std::ops::Range;

use pennon_engine::scan::Micros;
use serde_json::Map;
use uuid::Uuid;

use crate::captured::Captured;
use crate::codec::{Reader, write_signed, write_text, write_unsigned};
use crate::error::EventStoreError;
use crate::event::Event;
use crate::formats;
use crate::intake::{Cell, Properties};

/// Largest part of a block: an item holds 400 KB, keys and attributes included.
pub(crate) const PART_BYTES_MAX: usize = 380_000;
/// Most parts of a block: all go in one transaction, which takes 4 MB.
pub(crate) const PARTS_MAX: usize = 10;
/// Largest block before compression.
pub(crate) const INFLATED_BYTES_MAX: usize = 64 << 20;

const MAGIC: &[u8; 3] = b"PNB";
const FORMAT: u8 = 2;
const HEADER_BYTES: usize = 8;
const LEVEL: i32 = 3;

/// The bytes of a block, to be cut into parts.
pub(crate) fn encode(batch: &Captured) -> Result<Vec<u8>, EventStoreError> {
    let plain = plain(batch);
    if plain.len() > INFLATED_BYTES_MAX {
        return Err(too_large());
    }
    let packed = zstd::bulk::compress(&plain, LEVEL).map_err(EventStoreError::corrupt)?;
    let mut block = Vec::with_capacity(HEADER_BYTES + packed.len());
    block.extend_from_slice(MAGIC);
    block.push(FORMAT);
    block.extend_from_slice(&(plain.len() as u32).to_le_bytes());
    block.extend_from_slice(&packed);
    if block.len() > PART_BYTES_MAX * PARTS_MAX { Err(too_large()) } else { Ok(block) }
}

fn plain(batch: &Captured) -> Vec<u8> {
    let events = &batch.events;
    let mut out = Vec::with_capacity(batch.packed.bytes.len() + events.len() * 64 + 1024);
    write_unsigned(&mut out, events.len() as u64);
    let mut names: Vec<&str> = Vec::new();
    let mut numbers = std::collections::HashMap::new();
    let codes = events.iter().map(|event| {
        *numbers.entry(event.event.as_str()).or_insert_with(|| {
            names.push(&event.event);
            names.len() - 1
        })
    });
    let codes = codes.collect::<Vec<_>>();
    write_texts(&mut out, names.into_iter());
    write_texts(&mut out, batch.packed.keys.names().iter().map(|name| &**name));
    events.iter().for_each(|event| out.extend_from_slice(event.uuid.as_bytes()));
    let mut before: Micros = 0;
    for event in events {
        write_signed(&mut out, event.timestamp.wrapping_sub(before));
        before = event.timestamp;
    }
    codes.into_iter().for_each(|code| write_unsigned(&mut out, code as u64));
    events.iter().for_each(|event| write_text(&mut out, &event.distinct_id));
    events.iter().for_each(|event| write_unsigned(&mut out, event.properties.range.len() as u64));
    for event in events {
        out.extend_from_slice(&batch.packed.bytes[event.properties.range.clone()]);
    }
    out
}

fn write_texts<'a>(out: &mut Vec<u8>, texts: impl ExactSizeIterator<Item = &'a str>) {
    write_unsigned(out, texts.len() as u64);
    texts.for_each(|text| write_text(out, text));
}

/// The size of a block after inflation, as its header says; 0 for what is no block.
pub(crate) fn inflated_len(block: &[u8]) -> usize {
    block
        .get(4..HEADER_BYTES)
        .and_then(|size| size.try_into().ok())
        .map_or(0, |size| u32::from_le_bytes(size) as usize)
}

/// A block, opened: what stands beside the properties of its events is read, they are not.
pub(crate) struct Block {
    plain: Vec<u8>,
    /// The names of its events.
    pub names: Vec<String>,
    /// The names of their properties.
    pub keys: Vec<String>,
    /// Its events.
    pub heads: Vec<Head>,
}

/// An event of a block, as far as it is read at first.
pub(crate) struct Head {
    pub uuid: Uuid,
    pub timestamp: Micros,
    /// Number of its name.
    pub name: usize,
    distinct_id: Range<usize>,
    properties: Range<usize>,
}

impl Block {
    /// Opens a block.
    pub(crate) fn open(block: &[u8]) -> Result<Block, EventStoreError> {
        let mut header = Reader::new(block);
        let magic: [u8; 3] = header.array()?;
        let [format] = header.array()?;
        if &magic != MAGIC || format < FORMAT {
            return Err(EventStoreError::corrupt("a block of unknown format"));
        }
        if format > FORMAT {
            return Err(formats::newer("a block", format.into(), FORMAT.into()));
        }
        let size = u32::from_le_bytes(header.array()?) as usize;
        if size > INFLATED_BYTES_MAX {
            return Err(EventStoreError::corrupt("a block larger than any that is written"));
        }
        let plain = zstd::bulk::decompress(&block[HEADER_BYTES..], size).map_err(EventStoreError::corrupt)?;
        let mut reader = Reader::new(&plain);
        let count = reader.count()?;
        let names = texts(&mut reader)?;
        let keys = texts(&mut reader)?;
        let heads = heads(&mut reader, count, names.len())?;
        Ok(Block { names, keys, heads, plain })
    }

    /// The distinct id of event `index`.
    pub(crate) fn distinct_id(&self, index: usize) -> Result<&str, EventStoreError> {
        let bytes = &self.plain[self.heads[index].distinct_id.clone()];
        std::str::from_utf8(bytes).map_err(EventStoreError::corrupt)
    }

    /// Gives all properties of event `index` to `into`.
    pub(crate) fn give(&self, index: usize, into: &mut impl Properties) -> Result<(), EventStoreError> {
        let mut reader = Reader::new(&self.plain[self.heads[index].properties.clone()]);
        while !reader.is_empty() {
            let tag = reader.tag()?;
            let code = usize::try_from(reader.unsigned()?).unwrap_or(usize::MAX);
            let key = self.keys.get(code);
            let key = key.ok_or_else(|| EventStoreError::corrupt("a property without a name"))?;
            match reader.text_of(tag)? {
                Some(text) => into.property(key, Cell::Text(text.into())),
                None => into.property(key, Cell::of(&reader.value(tag)?)),
            }
        }
        Ok(())
    }

    /// Event `index` with those of its properties whose names are `wanted`, by number.
    pub(crate) fn event(&self, index: usize, wanted: &[bool]) -> Result<Event, EventStoreError> {
        let head = &self.heads[index];
        let mut reader = Reader::new(&self.plain[head.properties.clone()]);
        let mut properties = Map::new();
        while !reader.is_empty() {
            let tag = reader.tag()?;
            let code = usize::try_from(reader.unsigned()?).unwrap_or(usize::MAX);
            match wanted.get(code) {
                Some(true) => {
                    properties.insert(self.keys[code].clone(), reader.value(tag)?);
                }
                Some(false) => reader.skip(tag)?,
                None => return Err(EventStoreError::corrupt("a property without a name")),
            }
        }
        Ok(Event {
            uuid: head.uuid,
            event: self.names[head.name].clone(),
            distinct_id: self.distinct_id(index)?.to_owned(),
            timestamp: head.timestamp,
            properties,
        })
    }
}

fn texts(reader: &mut Reader<'_>) -> Result<Vec<String>, EventStoreError> {
    (0..reader.count()?).map(|_| reader.text()).collect()
}

fn heads(reader: &mut Reader<'_>, count: usize, names: usize) -> Result<Vec<Head>, EventStoreError> {
    let mut heads = Vec::with_capacity(count.min(1 << 16));
    for _ in 0..count {
        let uuid = Uuid::from_bytes(reader.array()?);
        heads.push(Head { uuid, timestamp: 0, name: 0, distinct_id: 0..0, properties: 0..0 });
    }
    let mut before: Micros = 0;
    for head in &mut heads {
        before = before.wrapping_add(reader.signed()?);
        head.timestamp = before;
    }
    for head in &mut heads {
        let name = usize::try_from(reader.unsigned()?).ok().filter(|name| *name < names);
        head.name = name.ok_or_else(|| EventStoreError::corrupt("an event without a name"))?;
    }
    for head in &mut heads {
        let length = reader.count()?;
        let start = reader.place();
        reader.take(length)?;
        head.distinct_id = start..start + length;
    }
    let lengths = (0..count).map(|_| reader.count()).collect::<Result<Vec<_>, _>>()?;
    for (head, length) in heads.iter_mut().zip(lengths) {
        let start = reader.place();
        reader.take(length)?;
        head.properties = start..start + length;
    }
    if reader.is_empty() {
        Ok(heads)
    } else {
        Err(EventStoreError::corrupt("a block with bytes behind its end"))
    }
}

fn too_large() -> EventStoreError {
    let megabytes = (PART_BYTES_MAX * PARTS_MAX) as f64 / 1e6;
    EventStoreError::TooLarge(format!(
        "The batch takes more than {megabytes} MB compressed. Send it in smaller ones."
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn packed(events: &[Event]) -> Result<Vec<u8>, EventStoreError> {
        encode(&Captured::of(events))
    }

    fn decode(block: &[u8]) -> Result<Vec<Event>, EventStoreError> {
        let block = Block::open(block)?;
        let all = vec![true; block.keys.len()];
        (0..block.heads.len()).map(|index| block.event(index, &all)).collect()
    }

    fn event(index: u128) -> Event {
        let properties = json!({
            "int": 50, "float": 50.0, "negative": -7, "zero": -0.0, "large": u64::MAX, "third": 0.1 + 0.2,
            "null": null, "yes": true, "no": false, "text": "ü\n", "": {"deep": [[], {}, [1, "a", null]]},
        });
        Event {
            uuid: Uuid::from_u128(index),
            event: "a".into(),
            distinct_id: "d".into(),
            timestamp: -1,
            properties: properties.as_object().unwrap().clone(),
        }
    }

    #[test]
    fn events_come_back_exactly_and_in_order() {
        let events = (0..100).map(event).collect::<Vec<_>>();
        let back = decode(&packed(&events).unwrap()).unwrap();
        assert_eq!(back, events);
        let keys = |event: &Event| event.properties.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&back[0]), keys(&events[0]));
        let zero = back[0].properties["zero"].as_f64().unwrap();
        assert!(
            zero.is_sign_negative()
                && back[0].properties["float"].is_f64()
                && back[0].properties["int"].is_i64()
        );
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let block = packed(&[event(1), event(2)]).unwrap();
        for length in 0..block.len() {
            assert!(decode(&block[..length]).is_err(), "cut at {length}");
        }
        for at in 0..block.len() {
            let mut changed = block.clone();
            changed[at] ^= 0x55;
            let _ = decode(&changed);
        }
        let mut newer = block.clone();
        newer[3] = FORMAT + 1;
        let refused = decode(&newer).unwrap_err().to_string();
        assert!(refused.contains("format 3") && refused.contains("newer release"), "{refused}");
    }

    #[test]
    fn a_plain_body_of_any_bytes_does_not_make_the_reader_panic() {
        let mut noise = 1_u32;
        for length in 0..400 {
            let plain = (0..length)
                .map(|_| {
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (noise >> 24) as u8 % 12
                })
                .collect::<Vec<_>>();
            let _ = Reader::new(&plain).whole_value();
            let mut reader = Reader::new(&plain);
            let _ = reader.tag().and_then(|tag| reader.skip(tag));
        }
        // Objects inside objects, each under an empty key.
        let deep = std::iter::repeat_n([8, 0], 200).flatten().collect::<Vec<_>>();
        assert!(Reader::new(&deep).whole_value().is_err());
        let mut reader = Reader::new(&deep);
        let tag = reader.tag().unwrap();
        assert!(reader.skip(tag).is_err());
    }

    #[test]
    fn a_batch_that_no_transaction_takes_is_refused() {
        let mut noise = 1_u64;
        let text = (0..6_000_000)
            .map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b' ' + (noise >> 58) as u8)
            })
            .collect::<String>();
        let mut large = event(1);
        large.properties.insert("noise".into(), text.into());
        assert!(matches!(packed(&[large]), Err(EventStoreError::TooLarge(_))));
    }

    #[test]
    fn what_is_not_wanted_is_passed_over() {
        let events = (0..3).map(event).collect::<Vec<_>>();
        let block = Block::open(&packed(&events).unwrap()).unwrap();
        let keys = ["third", "yes"];
        let wanted = block.keys.iter().map(|key| keys.contains(&key.as_str())).collect::<Vec<_>>();
        let mut want = events[1].clone();
        want.properties.retain(|key, _| keys.contains(&key.as_str()));
        assert_eq!(block.event(1, &wanted).unwrap(), want);
        assert_eq!(want.properties.len(), 2);
        let none = vec![false; block.keys.len()];
        assert!(block.event(2, &none).unwrap().properties.is_empty());
        assert_eq!(block.names, ["a"]);
    }

    #[test]
    fn times_at_the_ends_of_time_come_back() {
        let times = [i64::MIN, i64::MAX, 0, i64::MAX, i64::MIN];
        let events = times.map(|timestamp| Event { timestamp, ..event(1) });
        let back = decode(&packed(&events).unwrap()).unwrap();
        assert_eq!(back.iter().map(|event| event.timestamp).collect::<Vec<_>>(), times);
    }
}
