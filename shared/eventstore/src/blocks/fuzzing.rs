//! Functions for fuzzing of blocks; [`crate::fuzzing`] calls them.

use pennon_core::store::keys::ProjectId;
use serde_json::{Map, Value};

use super::block::{self, Block};
use super::block_log::RawBlock;
use super::queued_block::QueuedBlock;
use super::waiting_rows::{BlockFilter, decode_rows};
use super::{CapturedBatch, replaced_blocks};
use crate::event::Event;
use crate::keys::BlockId;
use crate::property_value::{Properties, PropertyValue};

/// The first bytes of a block of the current format.
const HEADER: &[u8] = b"PNB\x03\0\0\0\0";

/// Opens bytes as a block: as they are, with a valid checksum, and as the content of a block. An opened block has the same
/// events, however they are read, and after they were stored again.
pub(crate) fn check_block(project: ProjectId, id: &BlockId, bytes: &[u8]) {
    let _ = Block::open(bytes, project, id);
    let mut corrected = bytes.to_vec();
    block::write_checksum(&mut corrected, project, id);
    check_events(project, id, corrected);
    let Ok(compressed) = zstd::bulk::compress(bytes, 1) else { return };
    let mut block = [HEADER, &(bytes.len() as u32).to_le_bytes(), &compressed].concat();
    block::write_checksum(&mut block, project, id);
    check_events(project, id, block);
}

fn check_events(project: ProjectId, id: &BlockId, bytes: Vec<u8>) {
    let raw = RawBlock { project, id: *id, bytes, parts: 1 };
    let rows = decode_rows(project, std::slice::from_ref(&raw), &BlockFilter::all());
    let Ok(block) = raw.open() else {
        assert!(rows.is_err(), "the rows of a block that cannot be opened were read");
        return;
    };
    let all = vec![true; block.keys.len()];
    let events =
        (0..block.headers.len()).map(|index| block.event(index, &all)).collect::<Result<Vec<_>, _>>();
    let mut batch = CapturedBatch::default();
    let appended = block.append_to(&mut batch);
    let Ok(events) = events else {
        assert!(batch.events.is_empty() || appended.is_ok(), "a part of a damaged block was taken over");
        return;
    };
    for (index, event) in events.iter().enumerate() {
        let mut streamed = Collected(Map::new());
        assert!(block.read_properties_into(index, &mut streamed).is_ok());
        assert_eq!(streamed.0, event.properties);
    }
    assert!(rows.is_ok_and(|rows| rows.events == events.len() as u64));
    assert!(appended.is_ok());
    assert_eq!(batch.in_full().ok().as_ref(), Some(&events));
    check_batch(project, id, batch);
}

struct Collected(Map<String, Value>);

impl Properties for Collected {
    fn property(&mut self, key: &str, cell: PropertyValue<'_>) {
        self.0.insert(key.to_owned(), cell.to_value());
    }
}

/// The events of a batch are the same after they were stored.
pub(crate) fn check_batch(project: ProjectId, id: &BlockId, batch: CapturedBatch) {
    let events = batch.in_full();
    assert!(events.is_ok(), "a batch is decoded: {:?}", events.err());
    let Ok(encoded) = batch.encode() else { return };
    let mut block = encoded.block;
    block::write_checksum(&mut block, project, id);
    let stored = Block::open(&block, project, id).map(|block| {
        let all = vec![true; block.keys.len()];
        (0..block.headers.len()).map(|index| block.event(index, &all)).collect::<Result<Vec<Event>, _>>()
    });
    assert_eq!(stored.ok().and_then(Result::ok), events.ok());
}

/// Decodes a message of a capture buffer.
pub(crate) fn check_message(message: &str) {
    let Ok(block) = QueuedBlock::decode(message) else { return };
    let mut batch = CapturedBatch::default();
    let appended = block.append_to(&mut batch);
    assert!(appended.is_ok() || batch.events.is_empty());
    assert!(block.stored_len() <= message.len());
    if block.inflated_len() > 0 && appended.is_ok() && batch.in_full().is_ok() {
        check_batch(block.project(), &block.captured_id(), batch);
    }
}

/// A decoded list of replaced blocks is the same after it was encoded.
pub(crate) fn check_replaced(bytes: &[u8]) {
    for bytes in [bytes.to_vec(), [b"PBL1", bytes].concat()] {
        let Some(ids) = replaced_blocks::decode(&bytes) else { continue };
        assert_eq!(replaced_blocks::encode(&ids), bytes);
        for id in ids {
            assert_eq!(id.to_string().parse::<BlockId>().ok(), Some(id), "{id}");
        }
    }
}
