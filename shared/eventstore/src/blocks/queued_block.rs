//! A block as the body of a queue message, between its capture and the block log.
//!
//! A message is JSON, so that an operator can see the project of one that was not processed: `project`, `id` and `block`, in base64. The
//! id and the checksum are those of a stored block: nothing of a message is used before the checksum was verified, which covers
//! all three, and a newer format is refused. The log gives the events another id when it stores them.
//!
//! Must stay true: a message has at most [`MESSAGE_BYTES_MAX`] bytes, what SQS charges as one request. A larger block would save
//! nothing in the queue: a put is charged per KB, and rounding up to one is what single events pay for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use serde::{Deserialize, Serialize};

use crate::block_partitions::BlockPartitions;
use crate::blocks::CapturedBatch;
use crate::blocks::block;
use crate::blocks::block_log::{BlockLog, RawBlock};
use crate::error::EventStoreError;
use crate::keys::BlockId;

/// Largest message.
pub const MESSAGE_BYTES_MAX: usize = 65_536;
/// Largest block in a message: in base64 it leaves 1,536 bytes for the other fields, which have at most 117.
const QUEUED_BLOCK_BYTES_MAX: usize = 48_000;
/// Largest decompressed block in a message, so that a batch of messages can be decoded in little memory. One event is always smaller.
const QUEUED_INFLATED_BYTES_MAX: usize = 1 << 20;

#[derive(Serialize, Deserialize)]
struct MessageBody {
    project: ProjectId,
    id: BlockId,
    block: String,
}

/// A block that waited in a queue. Its checksum is verified when its events are read.
#[derive(Debug)]
pub(crate) struct QueuedBlock(RawBlock);

impl QueuedBlock {
    /// Parses a message.
    pub(crate) fn decode(message: &str) -> Result<QueuedBlock, EventStoreError> {
        let MessageBody { project, id, block } = serde_json::from_str(message)?;
        let bytes = STANDARD.decode(block).map_err(EventStoreError::corrupt)?;
        Ok(QueuedBlock(RawBlock { project, id, bytes, parts: 1 }))
    }

    pub(crate) fn project(&self) -> ProjectId {
        self.0.project
    }

    /// The id with which the batch was captured. Ids sort by arrival.
    pub(crate) fn captured_id(&self) -> BlockId {
        self.0.id
    }

    /// Size of the block.
    pub(crate) fn stored_len(&self) -> usize {
        self.0.stored_len()
    }

    /// Decompressed size.
    pub(crate) fn inflated_len(&self) -> usize {
        self.0.inflated_len()
    }

    /// Verifies the block and appends its events to `batch`.
    pub(crate) fn append_to(&self, batch: &mut CapturedBatch) -> Result<(), EventStoreError> {
        self.0.open()?.append_to(batch).map_err(|error| self.0.block_error(error.into()))
    }
}

/// Whether a message can hold `block`.
fn fits(block: &[u8]) -> bool {
    block.len() <= QUEUED_BLOCK_BYTES_MAX && block::inflated_len(block) <= QUEUED_INFLATED_BYTES_MAX
}

fn encode(project: ProjectId, id: BlockId, mut block: Vec<u8>) -> Result<String, EventStoreError> {
    block::write_checksum(&mut block, project, &id);
    Ok(serde_json::to_string(&MessageBody { project, id, block: STANDARD.encode(block) })?)
}

impl BlockLog {
    /// The message of a block that was captured at `now`; `None` if it is too large for one.
    pub(crate) fn queued_message(
        &self,
        project: ProjectId,
        block: &[u8],
        now: Micros,
    ) -> Result<Option<String>, EventStoreError> {
        if !fits(block) {
            return Ok(None);
        }
        let id = self.next_id(now, 1, BlockPartitions::DEFAULT);
        encode(project, id, block.to_vec()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::event::Event;

    const ID: BlockId = BlockId {
        micros: u64::MAX,
        tie: u32::MAX,
        random: u32::MAX,
        parts: 1,
        partitions: BlockPartitions::DEFAULT,
    };

    fn event(text: String) -> Event {
        Event {
            uuid: Uuid::from_u128(1),
            event: "a".to_owned(),
            distinct_id: "d".to_owned(),
            timestamp: 7,
            properties: json!({"text": text}).as_object().unwrap().clone(),
        }
    }

    fn block_of(event: &Event) -> Vec<u8> {
        CapturedBatch::of(std::slice::from_ref(event)).encode().unwrap().block
    }

    /// Text that does not compress.
    fn noise(bytes: usize) -> String {
        let mut state = 1_u64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + (state >> 58) as u8)
        };
        (0..bytes).map(next).collect()
    }

    #[test]
    fn a_message_has_the_event_and_names_its_project() {
        let event = event("ü".to_owned());
        let message = encode(7, ID, block_of(&event)).unwrap();
        let fields: Value = serde_json::from_str(&message).unwrap();
        assert_eq!(fields["project"], 7);
        let mut batch = CapturedBatch::default();
        QueuedBlock::decode(&message).unwrap().append_to(&mut batch).unwrap();
        assert_eq!(batch.in_full().unwrap(), [event]);
    }

    fn is_refused(message: &str) -> bool {
        let mut batch = CapturedBatch::default();
        let read = QueuedBlock::decode(message).and_then(|block| block.append_to(&mut batch));
        read.is_err() && batch.events.is_empty()
    }

    #[test]
    fn a_changed_message_is_refused() {
        let message = encode(7, ID, block_of(&event("x".to_owned()))).unwrap();
        let with = |name: &str, value: Value| {
            let mut fields: Value = serde_json::from_str(&message).unwrap();
            fields[name] = value;
            fields.to_string()
        };
        let block = serde_json::from_str::<Value>(&message).unwrap()["block"].as_str().unwrap().to_owned();
        let bytes = STANDARD.decode(&block).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(is_refused(&with("block", STANDARD.encode(flipped).into())), "bit {bit}");
        }
        let other = BlockId { tie: 1, ..ID };
        for changed in [with("project", json!(8)), with("id", json!(other.to_string()))] {
            assert!(is_refused(&changed), "{changed}");
        }
        for wrong in ["", "{", "null", "{}", "[]", r#"{"project": 1, "id": "1", "block": ""}"#] {
            assert!(is_refused(wrong), "{wrong}");
        }
        assert!(is_refused(&with("block", json!("*"))) && !is_refused(&message));
    }

    #[test]
    fn the_largest_message_is_one_request_of_sqs() {
        let mut bytes = 40_000;
        let mut largest = block_of(&event(noise(bytes)));
        // The compressed length follows the length of the text closely.
        while largest.len() <= QUEUED_BLOCK_BYTES_MAX {
            bytes += 100;
            let next = block_of(&event(noise(bytes)));
            if next.len() > QUEUED_BLOCK_BYTES_MAX {
                assert!(fits(&largest) && !fits(&next));
                break;
            }
            largest = next;
        }
        assert!(largest.len() > QUEUED_BLOCK_BYTES_MAX - 200);
        largest.resize(QUEUED_BLOCK_BYTES_MAX, 0);
        let message = encode(u64::MAX, ID, largest).unwrap();
        assert!(message.len() <= MESSAGE_BYTES_MAX, "{}", message.len());
        // It compresses well, and is large afterwards.
        assert!(fits(&block_of(&event(" ".repeat(1_000_000)))));
        assert!(!fits(&block_of(&event(" ".repeat(QUEUED_INFLATED_BYTES_MAX)))));
    }
}
