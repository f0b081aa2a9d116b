//! Captured batches that no segment holds yet: the write-ahead part of the store, rows in DynamoDB.
//!
//! [`block`] encodes one batch, [`block_log`] appends, lists and removes blocks, [`waiting_events`] reads their events in two
//! steps, [`replaced_blocks`] lists the blocks that a segment replaced. Nothing here changes a block once it was
//! acknowledged, and nothing is read from a block before its checksum was verified. The door is [`block_log::RawBlock`].

pub(crate) mod block;
mod block_log;
mod replaced_blocks;
mod waiting_events;

pub(crate) use block_log::{
    BlockFilter, COMPACTED_BYTES_PER_SHARD, RawBlock, SHARD_BYTES_MAX, event_headers, filter_rows,
    rows_with_properties,
};
pub(crate) use replaced_blocks::ReplacedBlocks;
pub(crate) use waiting_events::BlockEvents;
