#![allow(clippy::unwrap_used)]
use super::*;
use crate::block_partitions::BlockPartitions;
use serde_json::json;

const PROJECT: ProjectId = 7;
const ID: BlockId = BlockId {
    micros: 1_700_000_000_000_000,
    tie: 3,
    random: 0xabcd,
    parts: 1,
    partitions: BlockPartitions::DEFAULT,
};

fn packed(events: &[Event]) -> Result<Vec<u8>, EventStoreError> {
    let mut block = encode(&CapturedBatch::of(events))?;
    write_checksum(&mut block, PROJECT, &ID);
    Ok(block)
}

/// A block in the format of the previous release.
fn without_checksum(block: &[u8]) -> Vec<u8> {
    [&MAGIC[..], &[WITHOUT_CHECKSUM], &block[CHECKSUM.end..]].concat()
}

fn decode(block: &[u8]) -> Result<Vec<Event>, BlockError> {
    let block = Block::open(block, PROJECT, &ID)?;
    let all = vec![true; block.keys.len()];
    Ok((0..block.headers.len()).map(|index| block.event(index, &all)).collect::<Result<_, _>>()?)
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
fn events_are_decoded_unchanged_and_in_order() {
    let events = (0..100).map(event).collect::<Vec<_>>();
    let back = decode(&packed(&events).unwrap()).unwrap();
    assert_eq!(back, events);
    let keys = |event: &Event| event.properties.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&back[0]), keys(&events[0]));
    let zero = back[0].properties["zero"].as_f64().unwrap();
    assert!(
        zero.is_sign_negative() && back[0].properties["float"].is_f64() && back[0].properties["int"].is_i64()
    );
}

#[test]
fn events_of_several_blocks_become_one_block_unchanged() {
    let with = |index: u128, name: &str, key: &str| {
        let mut event = event(index);
        name.clone_into(&mut event.event);
        event.properties.insert(key.to_owned(), json!({"own": index as u64}));
        event
    };
    let first = [with(1, "a", "x"), with(2, "b", "y")];
    let second = [with(3, "b", "z"), with(4, "c", "x")];
    let mut batch = CapturedBatch::of(&first[..1]);
    for events in [&first[1..], &second] {
        Block::open(&packed(events).unwrap(), PROJECT, &ID).unwrap().append_to(&mut batch).unwrap();
    }
    let mut merged = encode(&batch).unwrap();
    write_checksum(&mut merged, PROJECT, &ID);
    assert_eq!(decode(&merged).unwrap(), [&first[..], &second].concat());
}

fn is_damaged(block: &[u8]) -> bool {
    let verified = Block::verify(block, PROJECT, &ID);
    matches!(verified, Err(BlockError::Damaged(_))) && matches!(decode(block), Err(BlockError::Damaged(_)))
}

#[test]
fn every_flipped_bit_every_cut_and_every_other_name_is_detected() {
    let block = packed(&[event(1), event(2)]).unwrap();
    for length in 0..block.len() {
        assert!(is_damaged(&block[..length]), "cut at {length}");
    }
    for bit in 0..block.len() * 8 {
        let mut flipped = block.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(is_damaged(&flipped), "bit {bit}");
    }
    for other in [BlockId { micros: ID.micros + 1, ..ID }, BlockId { tie: 4, ..ID }] {
        assert!(matches!(Block::open(&block, PROJECT, &other), Err(BlockError::Damaged(_))));
    }
    assert!(matches!(Block::open(&block, PROJECT + 1, &ID), Err(BlockError::Damaged(_))));
}

#[test]
fn flipped_bits_of_a_large_block_are_detected() {
    let events = (0..20_000)
        .map(|n| {
            let mut event = event(n);
            event
                .properties
                .insert("noise".into(), Uuid::new_v5(&Uuid::nil(), &n.to_le_bytes()).to_string().into());
            event
        })
        .collect::<Vec<_>>();
    let block = packed(&events).unwrap();
    assert!(block.len() > PART_BYTES_MAX, "{} bytes", block.len());
    let mut noise = 1_u64;
    for _ in 0..300 {
        let mut flipped = block.clone();
        for _ in 0..1 + (noise >> 60) {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bit = (noise >> 16) as usize % (block.len() * 8);
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
        // Two flips of the same bit cancel each other.
        assert!(flipped == block || Block::verify(&flipped, PROJECT, &ID).is_err());
    }
}

#[test]
fn a_block_of_a_newer_format_is_distinguished_from_a_damaged_one() {
    let mut newer = packed(&[event(1)]).unwrap();
    newer[3] = FORMAT + 1;
    assert!(is_damaged(&newer), "its checksum is of another format");
    write_checksum(&mut newer, PROJECT, &ID);
    let Err(BlockError::Newer(refused)) = decode(&newer) else { panic!("a newer format") };
    let refused = refused.to_string();
    assert!(refused.contains("format 4") && refused.contains("newer release"), "{refused}");
}

#[test]
fn a_block_of_the_format_before_is_read_and_no_bytes_of_it_make_the_reader_panic() {
    let events = [event(1), event(2)];
    let block = packed(&events).unwrap();
    let old = without_checksum(&block);
    assert_eq!(decode(&old).unwrap(), events);
    assert_eq!(inflated_len(&old), inflated_len(&block));
    for length in 0..old.len() {
        assert!(is_damaged(&old[..length]), "cut at {length}");
    }
    for at in 0..old.len() {
        let mut changed = old.clone();
        changed[at] ^= 0x55;
        let _ = decode(&changed);
    }
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
        let _ = BinaryReader::new(&plain).whole_value();
        let mut reader = BinaryReader::new(&plain);
        let _ = reader.tag().and_then(|tag| reader.skip(tag));
    }
    // Objects inside objects, each under an empty key.
    let deep = std::iter::repeat_n([8, 0], 200).flatten().collect::<Vec<_>>();
    assert!(BinaryReader::new(&deep).whole_value().is_err());
    let mut reader = BinaryReader::new(&deep);
    let tag = reader.tag().unwrap();
    assert!(reader.skip(tag).is_err());
}

#[test]
fn a_batch_larger_than_a_transaction_is_rejected() {
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
fn only_requested_properties_are_decoded() {
    let events = (0..3).map(event).collect::<Vec<_>>();
    let block = Block::open(&packed(&events).unwrap(), PROJECT, &ID).unwrap();
    let keys = ["third", "yes"];
    let requested = block.keys.iter().map(|key| keys.contains(&key.as_str())).collect::<Vec<_>>();
    let mut want = events[1].clone();
    want.properties.retain(|key, _| keys.contains(&key.as_str()));
    assert_eq!(block.event(1, &requested).unwrap(), want);
    assert_eq!(want.properties.len(), 2);
    let none = vec![false; block.keys.len()];
    assert!(block.event(2, &none).unwrap().properties.is_empty());
    assert_eq!(block.names, ["a"]);
}

#[test]
fn minimum_and_maximum_times_are_decoded() {
    let times = [i64::MIN, i64::MAX, 0, i64::MAX, i64::MIN];
    let events = times.map(|timestamp| Event { timestamp, ..event(1) });
    let back = decode(&packed(&events).unwrap()).unwrap();
    assert_eq!(back.iter().map(|event| event.timestamp).collect::<Vec<_>>(), times);
}
