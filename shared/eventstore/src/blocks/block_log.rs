//! The block log: appends captured batches as blocks; [`super::block_reads`] reads them.
//!
//! Must stay true: a batch is stored in one write, whole or not at all; once [`BlockLog::append`] has
//! returned, every later read sees it. A block of which a reader sees only some parts is still being written
//! and not acknowledged: readers ignore it, unless it arrived more than a minute ago or its parts
//! cannot belong to such a block; then it is damaged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pennon_analytics::scan::Micros;
use pennon_core::ids::random_below;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Table, Write, WriteCondition};

use crate::block_partitions::BlockPartitions;
use crate::blocks::backlog::Backlog;
use crate::blocks::block::{self, Block, BlockError};
use crate::blocks::known_partitions::KnownPartitions;
use crate::cache::Cache;
use crate::error::EventStoreError;
use crate::event::micros_u64;
use crate::keys::BlockId;
use crate::objects::{Objects, Quarantine};
use crate::settings::Settings;

/// Cached lists of replaced blocks.
const REPLACED_LISTS_CACHED: usize = 64;

/// A block as stored, with its parts concatenated.
#[derive(Debug)]
pub(crate) struct RawBlock {
    pub(super) project: ProjectId,
    pub id: BlockId,
    pub(super) bytes: Vec<u8>,
    /// Number of parts that were found.
    pub(super) parts: usize,
}

impl RawBlock {
    /// Decompressed size.
    pub(crate) fn inflated_len(&self) -> usize {
        block::inflated_len(&self.bytes)
    }

    /// Stored size.
    pub(crate) fn stored_len(&self) -> usize {
        self.bytes.len()
    }

    /// Verifies and decompresses it.
    pub(crate) fn open(&self) -> Result<Block, EventStoreError> {
        self.require_parts()?;
        Block::open(&self.bytes, self.project, &self.id).map_err(|error| self.block_error(error))
    }

    /// Verifies the checksum.
    pub(crate) fn verify(&self) -> Result<(), EventStoreError> {
        self.require_parts()?;
        Block::verify(&self.bytes, self.project, &self.id).map_err(|error| self.block_error(error))
    }

    fn require_parts(&self) -> Result<(), EventStoreError> {
        if self.parts == usize::from(self.id.parts) {
            return Ok(());
        }
        let what = format!("{} of {} parts are there", self.parts, self.id.parts);
        Err(self.block_error(BlockError::Damaged(what)))
    }

    pub(crate) fn block_error(&self, error: BlockError) -> EventStoreError {
        match error {
            BlockError::Newer(error) => EventStoreError::Corrupt(format!("block {}: {error}", self.id)),
            BlockError::Damaged(what) => {
                EventStoreError::DamagedBlock { project: self.project, block: self.id.to_string(), what }
            }
        }
    }
}

/// The block log of all projects.
#[derive(Debug)]
pub(crate) struct BlockLog {
    pub(super) blocks: Table,
    pub(super) objects: Objects,
    pub(super) quarantine: Quarantine,
    pub(super) settings: Settings,
    pub(super) partitions: KnownPartitions,
    /// Increases within the process. Orders batches that arrive in the same microsecond.
    ties: AtomicU32,
    pub(super) backlog: Backlog,
    /// Cached lists of replaced blocks, by object.
    pub(super) replaced: Cache<Arc<Vec<BlockId>>>,
}

impl BlockLog {
    pub(crate) fn new(
        blocks: Table,
        objects: Objects,
        quarantine: Quarantine,
        settings: Settings,
    ) -> BlockLog {
        BlockLog {
            blocks,
            objects,
            quarantine,
            settings,
            partitions: KnownPartitions::default(),
            // Starts at a random value, so that two processes do not count in step.
            ties: AtomicU32::new(random_below(1 << 31) as u32),
            backlog: Backlog::default(),
            replaced: Cache::new(REPLACED_LISTS_CACHED),
        }
    }

    /// Stores an encoded batch that arrived at `now`: one item, or several in one transaction.
    pub(crate) async fn append(
        &self,
        project: ProjectId,
        partitions: BlockPartitions,
        mut block: Vec<u8>,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let parts = block.len().div_ceil(block::PART_BYTES_MAX) as u8;
        let id = self.next_id(now, parts, partitions);
        block::write_checksum(&mut block, project, &id);
        let parts = block.chunks(block::PART_BYTES_MAX);
        let writes = parts.enumerate().map(|(part, bytes)| {
            // Ids are unique, and a put without a condition may be repeated after a lost response.
            Write::Put(Item::binary(id.part(project, part as u8), bytes.to_vec()), WriteCondition::None)
        });
        self.blocks.transact(writes.collect()).await?;
        self.backlog.add(block.len());
        Ok(())
    }

    /// A new id.
    pub(super) fn next_id(&self, now: Micros, parts: u8, partitions: BlockPartitions) -> BlockId {
        BlockId {
            micros: micros_u64(now),
            tie: self.ties.fetch_add(1, Ordering::Relaxed),
            random: random_below(1 << 32) as u32,
            parts,
            partitions,
        }
    }

    /// Passes on the result of reading blocks; marks a block that was damaged.
    pub(crate) async fn mark_damage<T>(
        &self,
        read: Result<T, EventStoreError>,
    ) -> Result<T, EventStoreError> {
        if let Err(error) = &read {
            self.quarantine.note_damaged_block(error).await;
        }
        read
    }

    /// Waits until so many captured batches wait for compaction that it should begin at once. For one caller
    /// at a time.
    pub(crate) async fn wait_until_filled(&self) {
        self.backlog.wait().await;
    }

    /// Gets block `id` with the parts that exist; none if there is no part.
    pub(crate) async fn raw_block(
        &self,
        project: ProjectId,
        id: BlockId,
    ) -> Result<Option<RawBlock>, EventStoreError> {
        let keys = id.keys(project).collect::<Vec<_>>();
        let parts = self.blocks.batch_get(&keys).await?.into_iter().flatten();
        let parts = parts.map(|item| item.bytes).collect::<Vec<_>>();
        Ok((!parts.is_empty()).then(|| RawBlock { project, id, bytes: parts.concat(), parts: parts.len() }))
    }
}
