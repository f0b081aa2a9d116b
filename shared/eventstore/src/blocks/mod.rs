//! Captured batches that no segment holds yet: the write-ahead part of the store, rows in DynamoDB.
//!
//! [`captured_batch`] and [`block`] encode one batch, [`block_log`] appends blocks, [`block_reads`] reads them, [`waiting_rows`]
//! decodes their events, [`queued_block`] is a block on its way through a queue, [`known_partitions`] remembers where they are, [`replaced_blocks`] lists the blocks that a segment replaced, [`verified_blocks`] compares checksums. Nothing here changes a block once it was
//! acknowledged, and nothing is read from a block before its checksum was verified. The public interface is [`BlockLog`].

mod backlog;
pub(crate) mod block;
mod block_log;
mod block_reads;
mod captured_batch;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod json_encoding;
mod known_partitions;
mod queued_block;
mod replaced_blocks;
mod verified_blocks;
mod waiting_rows;

pub(crate) use block::PART_BYTES_MAX as BLOCK_PART_BYTES_MAX;
pub(crate) use block_log::{BlockLog, RawBlock};
pub use captured_batch::{CapturedBatch, CapturedEvent, EncodedBatch, EncodedProperties, PropertyEncoder};
pub use json_encoding::{JsonLimitError, JsonSizeBudget, PropertiesSeed, ValueSeed, without_nul};
pub use queued_block::MESSAGE_BYTES_MAX;
pub(crate) use queued_block::QueuedBlock;
pub(crate) use replaced_blocks::list_of_replaced_blocks;
pub(crate) use verified_blocks::VerifiedBlocks;
pub(crate) use waiting_rows::{BlockFilter, decode_rows, event_headers, filter_rows, rows_with_properties};
