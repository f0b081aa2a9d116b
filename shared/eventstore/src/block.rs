//! A captured batch as one compressed item, or a few when it is large.
//!
//! Form: `PNB`, a format number, the inflated size (four bytes, lowest first), and a zstd frame of: the number of
//! events, then each as uuid (16 bytes), time, name, distinct id, properties in the form of [`crate::codec`].
//! Must stay true: the index of an event in its block is part of its `seq`, so a block keeps the order of its batch; a
//! block of an unknown format is refused, never guessed at.

use uuid::Uuid;

use crate::codec::{Reader, write_object, write_signed, write_text, write_unsigned};
use crate::error::EventStoreError;
use crate::event::Event;

/// Largest part of a block: an item holds 400 KB, keys and attributes included.
pub(crate) const PART_BYTES_MAX: usize = 380_000;
/// Most parts of a block: all go in one transaction, which takes 4 MB.
pub(crate) const PARTS_MAX: usize = 10;
/// Largest block before compression.
pub(crate) const INFLATED_BYTES_MAX: usize = 64 << 20;

const MAGIC: &[u8; 3] = b"PNB";
const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 8;
const LEVEL: i32 = 3;

/// The bytes of a block, to be cut into parts.
pub(crate) fn encode(events: &[Event]) -> Result<Vec<u8>, EventStoreError> {
    let mut plain = Vec::with_capacity(events.len() * 256);
    write_unsigned(&mut plain, events.len() as u64);
    for event in events {
        plain.extend_from_slice(event.uuid.as_bytes());
        write_signed(&mut plain, event.timestamp);
        write_text(&mut plain, &event.event);
        write_text(&mut plain, &event.distinct_id);
        write_object(&mut plain, &event.properties);
        if plain.len() > INFLATED_BYTES_MAX {
            return Err(too_large());
        }
    }
    let packed = zstd::bulk::compress(&plain, LEVEL).map_err(EventStoreError::corrupt)?;
    let mut block = Vec::with_capacity(HEADER_BYTES + packed.len());
    block.extend_from_slice(MAGIC);
    block.push(FORMAT);
    block.extend_from_slice(&(plain.len() as u32).to_le_bytes());
    block.extend_from_slice(&packed);
    if block.len() > PART_BYTES_MAX * PARTS_MAX { Err(too_large()) } else { Ok(block) }
}

/// The size of a block after inflation, as its header says; 0 for what is no block.
pub(crate) fn inflated_len(block: &[u8]) -> usize {
    block
        .get(4..HEADER_BYTES)
        .and_then(|size| size.try_into().ok())
        .map_or(0, |size| u32::from_le_bytes(size) as usize)
}

/// The events of a block.
pub(crate) fn decode(block: &[u8]) -> Result<Vec<Event>, EventStoreError> {
    let mut header = Reader::new(block);
    let magic: [u8; 3] = header.array()?;
    let [format] = header.array()?;
    if &magic != MAGIC || format != FORMAT {
        return Err(EventStoreError::corrupt("a block of unknown format"));
    }
    let size = u32::from_le_bytes(header.array()?) as usize;
    if size > INFLATED_BYTES_MAX {
        return Err(EventStoreError::corrupt("a block larger than any that is written"));
    }
    let plain = zstd::bulk::decompress(&block[HEADER_BYTES..], size).map_err(EventStoreError::corrupt)?;
    let mut reader = Reader::new(&plain);
    let count = reader.count()?;
    let events = (0..count).map(|_| event(&mut reader)).collect::<Result<Vec<_>, _>>()?;
    if reader.is_empty() {
        Ok(events)
    } else {
        Err(EventStoreError::corrupt("a block with bytes behind its end"))
    }
}

fn event(reader: &mut Reader<'_>) -> Result<Event, EventStoreError> {
    Ok(Event {
        uuid: Uuid::from_bytes(reader.array()?),
        timestamp: reader.signed()?,
        event: reader.text()?,
        distinct_id: reader.text()?,
        properties: reader.object()?,
    })
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
        let back = decode(&encode(&events).unwrap()).unwrap();
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
        let block = encode(&[event(1), event(2)]).unwrap();
        for length in 0..block.len() {
            assert!(decode(&block[..length]).is_err(), "cut at {length}");
        }
        for at in 0..block.len() {
            let mut changed = block.clone();
            changed[at] ^= 0x55;
            let _ = decode(&changed);
        }
        let mut newer = block.clone();
        newer[3] = 2;
        assert!(matches!(decode(&newer), Err(EventStoreError::Corrupt(_))));
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
            let _ = Reader::new(&plain).object();
        }
        let deep = std::iter::repeat_n([1, 0, 8], 200).flatten().collect::<Vec<_>>();
        assert!(Reader::new(&deep).object().is_err());
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
        assert!(matches!(encode(&[large]), Err(EventStoreError::TooLarge(_))));
    }
}
