//! Functions for fuzzing: each parses any bytes and asserts what must stay true. `tests/src/fuzz.rs` lists them.
//!
//! Stored forms have checksums that a fuzzer does not guess, so they are corrected before bytes are decoded.

use bytes::Bytes;
use chrono::DateTime;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::block_partitions::BlockPartitions;
use crate::keys::{self, BlockId};
use crate::objects::checksums::{self, Checksums};
use crate::objects::object_versions;
use crate::persons::imports::{RecordIds, ids_sidecar};
use crate::persons::profiles::changes::{ChangeOrder, ProfileChanges};
use crate::persons::profiles::file;
use crate::persons::{PersonMerges, merge_log};
use crate::property_value::{Properties, PropertyValue, read_properties};
use crate::segments::uuids;
use crate::{CapturedBatch, blocks, time};
use pennon_core::store::Key;

/// The project and the id of the blocks.
const PROJECT: u64 = 7;
const ID: BlockId = BlockId {
    micros: 1_700_000_000_000_000,
    tie: 3,
    random: 0xabcd,
    parts: 1,
    partitions: BlockPartitions::DEFAULT,
};

/// Times of events: one of the years 1 to 9999 is the same after it was printed.
pub fn timestamps(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let any_year = time::parse_four_digit_year(text);
    let Some(at) = time::parse_timestamp(text) else { return };
    assert_eq!(any_year, Some(at), "{text}");
    let printed =
        DateTime::from_timestamp_micros(at).map(|at| at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string());
    assert_eq!(printed.as_deref().and_then(time::parse_timestamp), Some(at), "{text} printed as {printed:?}");
}

/// Properties as JSON text: the streaming parser reads what a parser to a map reads.
pub fn properties(bytes: &[u8]) {
    struct Collected(Map<String, Value>);
    impl Properties for Collected {
        fn property(&mut self, key: &str, cell: PropertyValue<'_>) {
            self.0.insert(key.to_owned(), cell.to_value());
        }
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut streamed = Collected(Map::new());
    let accepted = read_properties(text, &mut streamed).is_ok();
    let parsed = serde_json::from_str::<Option<Map<String, Value>>>(text);
    assert_eq!(accepted, parsed.is_ok(), "{text}");
    if let Ok(parsed) = parsed {
        assert_eq!(streamed.0, parsed.unwrap_or_default(), "{text}");
    }
}

/// Blocks: as they are, with a valid checksum, and as the content of a block.
pub fn blocks(bytes: &[u8]) {
    blocks::fuzzing::check_block(PROJECT, &ID, bytes);
}

/// Messages of a capture buffer.
pub fn queued_blocks(bytes: &[u8]) {
    if let Ok(message) = std::str::from_utf8(bytes) {
        blocks::fuzzing::check_message(message);
    }
}

/// A captured batch is the same after it was stored.
pub fn batch(batch: CapturedBatch) {
    blocks::fuzzing::check_batch(PROJECT, &ID, batch);
}

/// Files beside segments and rows of the merge log: the first byte selects the form.
pub fn side_files(bytes: &[u8]) {
    let Some((form, bytes)) = bytes.split_first() else { return };
    match form % 7 {
        0 => check_checksums(bytes),
        1 => blocks::fuzzing::check_replaced(bytes),
        2 => uuids::fuzzing::check_lines(bytes),
        3 => uuids::fuzzing::check_buckets(bytes),
        4 => check_record_ids(bytes),
        5 => check_person_merges(bytes),
        _ => merge_log::fuzzing::check_rows(PROJECT, bytes),
    }
}

fn check_checksums(bytes: &[u8]) {
    let _ = Checksums::decode("a/b", bytes);
    let sum = crc32fast::hash(bytes).to_le_bytes();
    let Ok(sums) = Checksums::decode("a/b", &[bytes, &sum[..]].concat()) else { return };
    assert_eq!(Checksums::decode("a/b", &sums.encode("a/b")), Ok(sums.clone()));
    assert!(sums.weight() < 1 << 20);
    for ending in ["", ".parquet"] {
        let Some(object) = sums.get(&format!("a/b{ending}")) else { continue };
        assert!(object.around(&(0..object.size())).is_some());
        object.holds(0, bytes);
    }
}

fn check_record_ids(bytes: &[u8]) {
    for records in 0..4 {
        let Ok(ids) = RecordIds::decode(bytes, records) else { continue };
        assert_eq!(ids.records().count() as u64, records);
        assert_eq!(ids.encode(), bytes);
        ids_sidecar::links(&[std::sync::Arc::new(ids)]);
    }
}

fn check_person_merges(bytes: &[u8]) {
    let Ok(merges) = PersonMerges::decode(Bytes::copy_from_slice(bytes)) else { return };
    assert_eq!(merges.encode(), bytes);
    let mut persons: Vec<Uuid> = merges.linked().flat_map(|(linked, last)| [linked, last]).collect();
    persons.sort_unstable();
    persons.dedup();
    let moved = merges.moved(&persons);
    assert_eq!(moved.len(), merges.count());
    for (index, last) in moved {
        let person = persons.get(index as usize).copied().unwrap_or_default();
        assert_eq!(merges.person(person), last);
        assert!(merges.members(last).contains(&person) && merges.is_linked(person));
    }
}

/// Names of objects, and keys of rows: two lines with the partition key and the sort key.
pub fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (pk, sk) = text.split_once('\n').unwrap_or(("", text));
    if let Ok((id, part)) = BlockId::of_sk(sk) {
        let key = id.part(PROJECT, part);
        assert_eq!(BlockId::of_sk(&key.sk).ok(), Some((id, part)), "{sk} printed as {}", key.sk);
    }
    if let Some(project) = keys::project_of_sk(sk) {
        assert_eq!(keys::project_of_sk(&keys::project_with_events(project).sk), Some(project));
    }
    if let Ok(number) = keys::merge_number(sk) {
        assert_eq!(keys::merge_number(&keys::merge(PROJECT, number).sk).ok(), Some(number));
    }
    if let Some(at) = keys::queued_at(sk) {
        assert_eq!(keys::queued_at(&keys::queued_merges(PROJECT, at, 1).sk), Some(at));
    }
    keys::compaction_of_wake(&Key::new(pk, sk));
    let (start, ending) = checksums::split(sk);
    assert_eq!(format!("{start}{ending}"), sk);
    checksums::id_of(sk);
}

/// Lists of object versions of a bucket.
pub fn object_versions(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        object_versions::check_page(text);
    }
}

/// Summaries of changes of persons and groups.
pub fn profile_changes(bytes: &[u8]) {
    let Ok(changes) = ProfileChanges::decode(bytes) else { return };
    assert_eq!(ProfileChanges::decode(&changes.encode()).ok().as_ref(), Some(&changes));
    let mut properties = Map::new();
    changes.apply(&mut properties);
    let mut merged = changes.clone();
    merged.merge(changes.clone());
    assert_eq!(merged.is_empty(), changes.is_empty());
    merged.take_event(
        &Map::from_iter([("$set".to_owned(), Value::Object(properties))]),
        ChangeOrder { time: 1, seq: 1 },
    );
    assert!(merged.bytes() < 1 << 30);
}

/// Parquet files of profiles.
pub fn profile_files(bytes: &[u8]) {
    let Ok(batches) = file::read_batches(Bytes::copy_from_slice(bytes)) else { return };
    for batch in &batches {
        let _ = file::each_id(batch, None, |_, _, _, changes| {
            changes.map(ProfileChanges::decode).transpose().map(drop)
        });
        let _ = file::each_group(batch, |_, _, changes| ProfileChanges::decode(changes).map(drop));
    }
}
