//! Encoding of a block: a captured batch as one compressed item, or several parts when it is large.
//!
//! Format: `PNB`, a format number, a checksum (CRC-32), the decompressed size (four bytes each, little-endian),
//! and a zstd frame of: the number of events; the event names and the property names, each list with its
//! length; for all events the uuids (16 bytes each), the times (deltas), the name indices, the distinct ids,
//! and the lengths of their properties; then the properties, event by event, as fields in the format of
//! [`crate::codec`] with name indices as keys. So a reader of a few events and properties skips the rest
//! without decoding it.
//!
//! The checksum covers the project, the block id and all other bytes of the block. CRC-32 detects every error
//! of one or two bits and every burst of up to 32 bits; it misses one in 4.3 billion of other errors. A 64-bit
//! hash would miss fewer of those but does not guarantee to detect a single flipped bit, and objects use CRC-32
//! already ([`crate::objects::checksums`]). Later formats keep magic, format number and checksum in place, so
//! that this reader distinguishes them from damage. Format 2 had no checksum; its blocks are decoded completely
//! before any of them is used.
//!
//! Must stay true: the index of an event in its block is part of its `seq`, so a block keeps the order of its
//! batch; a block of an unknown format is refused; nothing of a block is used before its checksum was verified.

use std::ops::Range;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use serde_json::Map;
use uuid::Uuid;

use crate::blocks::{CapturedBatch, CapturedEvent, EncodedProperties};
use crate::codec::{BinaryReader, write_signed, write_text, write_unsigned};
use crate::error::EventStoreError;
use crate::event::Event;
use crate::formats;
use crate::keys::BlockId;
use crate::property_value::{Properties, PropertyValue};

/// Largest part of a block: an item holds 400 KB, keys and attributes included.
pub(crate) const PART_BYTES_MAX: usize = 380_000;
/// Most parts of a block: all go in one transaction, which takes 4 MB.
pub(crate) const PARTS_MAX: usize = 10;
/// Largest block before compression.
pub(crate) const INFLATED_BYTES_MAX: usize = 64 << 20;

const MAGIC: &[u8; 3] = b"PNB";
const FORMAT: u8 = 3;
/// The previous format, without a checksum.
const WITHOUT_CHECKSUM: u8 = 2;
/// Position of the checksum.
const CHECKSUM: Range<usize> = 4..8;
const HEADER_BYTES: usize = 12;
const LEVEL: i32 = 3;

/// Encodes a block. It is split into parts after [`write_checksum`].
pub(crate) fn encode(batch: &CapturedBatch) -> Result<Vec<u8>, EventStoreError> {
    let plain = plain(batch);
    if plain.len() > INFLATED_BYTES_MAX {
        return Err(too_large());
    }
    let compressed = zstd::bulk::compress(&plain, LEVEL).map_err(EventStoreError::corrupt)?;
    let mut block = Vec::with_capacity(HEADER_BYTES + compressed.len());
    block.extend_from_slice(MAGIC);
    block.push(FORMAT);
    block.extend_from_slice(&[0; CHECKSUM.end - CHECKSUM.start]);
    block.extend_from_slice(&(plain.len() as u32).to_le_bytes());
    block.extend_from_slice(&compressed);
    if block.len() > PART_BYTES_MAX * PARTS_MAX { Err(too_large()) } else { Ok(block) }
}

fn plain(batch: &CapturedBatch) -> Vec<u8> {
    let events = &batch.events;
    let mut out = Vec::with_capacity(batch.property_encoder.bytes.len() + events.len() * 64 + 1024);
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
    write_texts(&mut out, batch.property_encoder.keys.names().iter().map(|name| &**name));
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
        out.extend_from_slice(&batch.property_encoder.bytes[event.properties.range.clone()]);
    }
    out
}

fn write_texts<'a>(out: &mut Vec<u8>, texts: impl ExactSizeIterator<Item = &'a str>) {
    write_unsigned(out, texts.len() as u64);
    texts.for_each(|text| write_text(out, text));
}

/// Writes the checksum of `block`, which will be stored as block `id` of `project`.
pub(crate) fn write_checksum(block: &mut [u8], project: ProjectId, id: &BlockId) {
    let checksum = checksum(block, project, id);
    if let Some(place) = block.get_mut(CHECKSUM) {
        place.copy_from_slice(&checksum.to_le_bytes());
    }
}

fn checksum(block: &[u8], project: ProjectId, id: &BlockId) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(format!("{project}/{id}/").as_bytes());
    hasher.update(block.get(..CHECKSUM.start).unwrap_or_default());
    hasher.update(block.get(CHECKSUM.end..).unwrap_or_default());
    hasher.finalize()
}

/// Why a block cannot be read.
#[derive(Debug)]
pub(crate) enum BlockError {
    /// Written by a newer release; its checksum matches.
    Newer(EventStoreError),
    /// Damaged.
    Damaged(String),
}

impl From<EventStoreError> for BlockError {
    fn from(error: EventStoreError) -> BlockError {
        match error {
            EventStoreError::Corrupt(what) => BlockError::Damaged(what),
            other => BlockError::Damaged(other.to_string()),
        }
    }
}

/// The decompressed size from the header, limited to the maximum; 0 if it is not a block.
pub(crate) fn inflated_len(block: &[u8]) -> usize {
    let header = block.split_first_chunk::<4>();
    let size = header.and_then(|(header, rest)| match header[3] {
        WITHOUT_CHECKSUM => rest.get(..4),
        _ => rest.get(4..8),
    });
    let size = size.and_then(|size| size.try_into().ok()).map_or(0, u32::from_le_bytes);
    (size as usize).min(INFLATED_BYTES_MAX)
}

/// Verifies the checksum of block `id` of `project`, if its format has one.
fn verify(block: &[u8], project: ProjectId, id: &BlockId) -> Result<u8, BlockError> {
    let mut header = BinaryReader::new(block);
    let magic: [u8; 3] = header.array()?;
    let [format] = header.array()?;
    if &magic != MAGIC || format < WITHOUT_CHECKSUM {
        return Err(BlockError::Damaged("it does not begin as a block does".to_owned()));
    }
    if format > WITHOUT_CHECKSUM && checksum(block, project, id) != u32::from_le_bytes(header.array()?) {
        return Err(BlockError::Damaged("its checksum does not fit".to_owned()));
    }
    if format > FORMAT {
        return Err(BlockError::Newer(formats::newer("a block", format.into(), FORMAT.into())));
    }
    Ok(format)
}

/// A decompressed block. Event headers are decoded, properties are not.
pub(crate) struct Block {
    plain: Vec<u8>,
    /// The names of its events.
    pub names: Vec<String>,
    /// The names of their properties.
    pub keys: Vec<String>,
    /// Its events.
    pub headers: Vec<EventHeader>,
}

/// The header of an event: all but its properties.
pub(crate) struct EventHeader {
    pub uuid: Uuid,
    pub timestamp: Micros,
    /// Index of its name.
    pub name: usize,
    distinct_id: Range<usize>,
    properties: Range<usize>,
}

impl Block {
    /// Verifies and decompresses block `id` of `project`.
    pub(crate) fn open(block: &[u8], project: ProjectId, id: &BlockId) -> Result<Block, BlockError> {
        let format = verify(block, project, id)?;
        let start = if format == WITHOUT_CHECKSUM { CHECKSUM.start } else { CHECKSUM.end };
        let mut header = BinaryReader::new(&block[start..]);
        let size = u32::from_le_bytes(header.array()?) as usize;
        if size > INFLATED_BYTES_MAX {
            return Err(BlockError::Damaged("it is larger than any block that is written".to_owned()));
        }
        let plain = zstd::bulk::decompress(&block[start + header.place()..], size);
        let plain = plain.map_err(|error| BlockError::Damaged(error.to_string()))?;
        let mut reader = BinaryReader::new(&plain);
        let count = reader.count()?;
        let names = texts(&mut reader)?;
        let keys = texts(&mut reader)?;
        let headers = headers(&mut reader, count, names.len())?;
        let block = Block { names, keys, headers, plain };
        if format == WITHOUT_CHECKSUM {
            block.decode_all()?;
        }
        Ok(block)
    }

    /// Verifies block `id` of `project`.
    pub(crate) fn verify(block: &[u8], project: ProjectId, id: &BlockId) -> Result<(), BlockError> {
        match verify(block, project, id)? {
            WITHOUT_CHECKSUM => Block::open(block, project, id).map(drop),
            _ => Ok(()),
        }
    }

    /// Decodes all events and discards them.
    fn decode_all(&self) -> Result<(), EventStoreError> {
        let all = vec![true; self.keys.len()];
        (0..self.headers.len()).try_for_each(|index| self.event(index, &all).map(drop))
    }

    /// The distinct id of event `index`.
    pub(crate) fn distinct_id(&self, index: usize) -> Result<&str, EventStoreError> {
        let bytes = &self.plain[self.headers[index].distinct_id.clone()];
        std::str::from_utf8(bytes).map_err(EventStoreError::corrupt)
    }

    /// Passes all properties of event `index` to `into`.
    pub(crate) fn read_properties_into(
        &self,
        index: usize,
        into: &mut impl Properties,
    ) -> Result<(), EventStoreError> {
        let mut reader = BinaryReader::new(&self.plain[self.headers[index].properties.clone()]);
        while !reader.is_empty() {
            let tag = reader.tag()?;
            let code = usize::try_from(reader.unsigned()?).unwrap_or(usize::MAX);
            let key = self.keys.get(code);
            let key = key.ok_or_else(|| EventStoreError::corrupt("a property without a name"))?;
            match reader.text_of(tag)? {
                Some(text) => into.property(key, PropertyValue::Text(text.into())),
                None => into.property(key, PropertyValue::of(&reader.value(tag)?)),
            }
        }
        Ok(())
    }

    /// Appends all events to `batch`, in order and unchanged; none of them on an error.
    pub(crate) fn append_to(&self, batch: &mut CapturedBatch) -> Result<(), EventStoreError> {
        let (events, bytes) = (batch.events.len(), batch.property_encoder.bytes.len());
        let appended = self.append_events(batch);
        if appended.is_err() {
            batch.events.truncate(events);
            batch.property_encoder.bytes.truncate(bytes);
        }
        appended
    }

    fn append_events(&self, batch: &mut CapturedBatch) -> Result<(), EventStoreError> {
        let CapturedBatch { events, property_encoder } = batch;
        let codes = self.keys.iter().map(|key| property_encoder.keys.code(key)).collect::<Vec<_>>();
        for (index, header) in self.headers.iter().enumerate() {
            let fields = &self.plain[header.properties.clone()];
            let mut reader = BinaryReader::new(fields);
            let out = &mut property_encoder.bytes;
            let start = out.len();
            while !reader.is_empty() {
                let tag = reader.tag()?;
                let code = usize::try_from(reader.unsigned()?).ok().and_then(|code| codes.get(code));
                let code = code.ok_or_else(|| EventStoreError::corrupt("a property without a name"))?;
                let content = reader.place();
                reader.skip(tag)?;
                out.push(tag);
                write_unsigned(out, (*code).into());
                out.extend_from_slice(&fields[content..reader.place()]);
            }
            let properties = EncodedProperties { range: start..out.len(), ..EncodedProperties::default() };
            events.push(CapturedEvent {
                uuid: header.uuid,
                event: self.names[header.name].clone(),
                distinct_id: self.distinct_id(index)?.to_owned(),
                timestamp: header.timestamp,
                properties,
            });
        }
        Ok(())
    }

    /// Decodes event `index` with the properties selected in `requested`, by name index.
    pub(crate) fn event(&self, index: usize, requested: &[bool]) -> Result<Event, EventStoreError> {
        let header = &self.headers[index];
        let mut reader = BinaryReader::new(&self.plain[header.properties.clone()]);
        let mut properties = Map::new();
        while !reader.is_empty() {
            let tag = reader.tag()?;
            let code = usize::try_from(reader.unsigned()?).unwrap_or(usize::MAX);
            match requested.get(code) {
                Some(true) => {
                    properties.insert(self.keys[code].clone(), reader.value(tag)?);
                }
                Some(false) => reader.skip(tag)?,
                None => return Err(EventStoreError::corrupt("a property without a name")),
            }
        }
        Ok(Event {
            uuid: header.uuid,
            event: self.names[header.name].clone(),
            distinct_id: self.distinct_id(index)?.to_owned(),
            timestamp: header.timestamp,
            properties,
        })
    }
}

fn texts(reader: &mut BinaryReader<'_>) -> Result<Vec<String>, EventStoreError> {
    (0..reader.count()?).map(|_| reader.text()).collect()
}

fn headers(
    reader: &mut BinaryReader<'_>,
    count: usize,
    names: usize,
) -> Result<Vec<EventHeader>, EventStoreError> {
    let mut headers = Vec::with_capacity(count.min(1 << 16));
    for _ in 0..count {
        let uuid = Uuid::from_bytes(reader.array()?);
        headers.push(EventHeader { uuid, timestamp: 0, name: 0, distinct_id: 0..0, properties: 0..0 });
    }
    let mut before: Micros = 0;
    for header in &mut headers {
        before = before.wrapping_add(reader.signed()?);
        header.timestamp = before;
    }
    for header in &mut headers {
        let name = usize::try_from(reader.unsigned()?).ok().filter(|name| *name < names);
        header.name = name.ok_or_else(|| EventStoreError::corrupt("an event without a name"))?;
    }
    for header in &mut headers {
        let length = reader.count()?;
        let start = reader.place();
        reader.take(length)?;
        header.distinct_id = start..start + length;
    }
    let lengths = (0..count).map(|_| reader.count()).collect::<Result<Vec<_>, _>>()?;
    for (header, length) in headers.iter_mut().zip(lengths) {
        let start = reader.place();
        reader.take(length)?;
        header.properties = start..start + length;
    }
    if reader.is_empty() {
        Ok(headers)
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
mod tests;
