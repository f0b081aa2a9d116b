//! The block log: appends captured batches as blocks, lists them, and reads their events.
//!
//! Must stay true: a batch is stored in one transaction, whole or not at all; once [`BlockLog::append`] has
//! returned, every later read sees it. A block of which a reader sees only some parts is still being written
//! and not acknowledged: readers ignore it, unless it arrived more than [`WRITTEN_WITHIN`] ago or its parts
//! cannot belong to such a block; then it is damaged.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pennon_analytics::scan::Micros;
use pennon_core::ids::random_below;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, PartitionQuery, StoreError, Table, Write, WriteCondition};
use uuid::Uuid;

use crate::blocks::backlog::Backlog;
use crate::blocks::block::{self, Block, BlockError};
use crate::cache::Cache;
use crate::error::EventStoreError;
use crate::event::{PersonEvent, micros_u64, seq};
use crate::keys::{self, BlockId};
use crate::memory::{MemoryLease, Purpose, QueryMemory, properties_bytes};
use crate::objects::{Objects, Quarantine};
use crate::person_ids::derive_person_id;
use crate::settings::{SHARD_BYTES_MAX, Settings};

/// Most waiting blocks of a shard that one query reads.
const BLOCKS_PER_SHARD_MAX: usize = 5000;
/// Most decompressed bytes of all waiting blocks that one query reads.
const INFLATED_BYTES_MAX: usize = 512 << 20;

/// Cached lists of replaced blocks.
const REPLACED_LISTS_CACHED: usize = 64;

/// Limits of a read before the caller is authorized: at most one page per shard.
const FEW_PER_SHARD: usize = 200;
const FEW_BYTES_PER_SHARD: usize = 512 << 10;

/// Most items of a shard that [`BlockLog::newest_blocks`] reads.
const NEWEST_PER_SHARD: usize = 500;

/// Items of a shard that one compaction run reads; more than the parts of a block, so that a run makes
/// progress.
const COMPACTED_PER_SHARD: usize = 250;

/// Approximate bytes of a uuid in the set of seen ones.
const SEEN_BYTES: usize = 24;
/// Allocator overhead of the two texts of a row.
const TEXTS_BYTES: usize = 32;

/// Microseconds after its arrival within which every reader sees the transaction of a block completely: one
/// minute.
const WRITTEN_WITHIN: u64 = 60 * 1_000_000;

/// A block as stored, with its parts concatenated.
#[derive(Debug)]
pub(crate) struct RawBlock {
    project: ProjectId,
    pub id: BlockId,
    bytes: Vec<u8>,
    /// Number of parts that were found.
    parts: usize,
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
    settings: Settings,
    /// Increases within the process. Orders batches that arrive in the same microsecond.
    ties: AtomicU32,
    backlog: Backlog,
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
            // Starts at a random value, so that two processes do not count in step.
            ties: AtomicU32::new(random_below(1 << 31) as u32),
            backlog: Backlog::default(),
            replaced: Cache::new(REPLACED_LISTS_CACHED),
        }
    }

    /// Stores an encoded batch that arrived at `now`, in one transaction.
    pub(crate) async fn append(
        &self,
        project: ProjectId,
        mut block: Vec<u8>,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let id = BlockId {
            micros: micros_u64(now),
            tie: self.ties.fetch_add(1, Ordering::Relaxed),
            random: random_below(1 << 32) as u32,
            parts: block.len().div_ceil(block::PART_BYTES_MAX) as u8,
        };
        block::write_checksum(&mut block, project, &id);
        let parts = block.chunks(block::PART_BYTES_MAX);
        let writes = parts.enumerate().map(|(part, bytes)| {
            Write::Put(Item::binary(id.part(project, part as u8), bytes.to_vec()), WriteCondition::Absent)
        });
        self.blocks.transact(writes.collect()).await?;
        self.backlog.add(block.len());
        Ok(())
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

    /// All completely written blocks of `project`, oldest first, including those that a segment replaces.
    pub(crate) async fn raw_blocks(&self, project: ProjectId) -> Result<Vec<RawBlock>, EventStoreError> {
        let most = self.settings.shard_bytes;
        let shards = self.shards(project, None, BLOCKS_PER_SHARD_MAX + 1, most).await?;
        let has_more = shards.iter().any(|shard| shard.has_more);
        let blocks = assemble_blocks(project, shards.into_iter().flat_map(|shard| shard.items))?;
        if has_more || blocks.iter().map(RawBlock::inflated_len).sum::<usize>() > INFLATED_BYTES_MAX {
            // The condition is temporary, so it is no error of the query.
            self.backlog.wake();
            let waiting =
                StoreError::Busy(format!("too many events of project {project} wait for compaction"));
            return Err(waiting.into());
        }
        Ok(blocks)
    }

    /// As [`BlockLog::raw_blocks`], if one page of each shard holds them all.
    pub(crate) async fn raw_blocks_if_few(
        &self,
        project: ProjectId,
    ) -> Result<Option<Vec<RawBlock>>, EventStoreError> {
        let shards = self.shards(project, None, FEW_PER_SHARD + 1, FEW_BYTES_PER_SHARD).await?;
        if shards.iter().any(|shard| shard.has_more) {
            return Ok(None);
        }
        assemble_blocks(project, shards.into_iter().flat_map(|shard| shard.items)).map(Some)
    }

    /// The newest completely written blocks of `project`, oldest first, including those that a segment
    /// replaces. One round trip: at most one page per shard.
    pub(crate) async fn newest_blocks(&self, project: ProjectId) -> Result<Vec<RawBlock>, EventStoreError> {
        let pages = (0..keys::SHARDS).map(|shard| async move {
            let query = PartitionQuery::partition(keys::shard_pk(project, shard))
                .descending()
                .limit(NEWEST_PER_SHARD);
            self.blocks.page(&query, None).await
        });
        let pages = futures::future::try_join_all(pages).await?;
        // Parts of a block in ascending order.
        assemble_blocks(project, pages.into_iter().flat_map(|page| page.items.into_iter().rev()))
    }

    /// The ids of all completely written blocks of `project`, without a limit; their content is not checked.
    pub(crate) async fn block_ids(&self, project: ProjectId) -> Result<Vec<BlockId>, EventStoreError> {
        let mut parts: BTreeMap<BlockId, usize> = BTreeMap::new();
        for shard in 0..keys::SHARDS {
            let mut after = None;
            loop {
                let query = PartitionQuery::partition(keys::shard_pk(project, shard)).bytes(SHARD_BYTES_MAX);
                let query = match after.take() {
                    Some(after) => query.after(after),
                    None => query,
                };
                let items = self.blocks.query(query).await?;
                let Some(last) = items.last() else { break };
                after = Some(last.key.sk.clone());
                for item in &items {
                    *parts.entry(BlockId::of_sk(&item.key.sk)?.0).or_default() += 1;
                }
            }
        }
        let written = parts
            .into_iter()
            .filter(|(id, parts)| *parts == usize::from(id.parts) || write_window_passed(id));
        Ok(written.map(|(id, _)| id).collect())
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

    /// Reads the oldest blocks of `project`, from block `from` on, and the id to continue from if there are
    /// more. Every block that is not returned is newer than all that are.
    pub(crate) async fn oldest_blocks(
        &self,
        project: ProjectId,
        from: Option<BlockId>,
    ) -> Result<(Vec<RawBlock>, Option<BlockId>), EventStoreError> {
        let most = self.settings.compacted_shard_bytes;
        let shards = self.shards(project, from, COMPACTED_PER_SHARD, most).await?;
        let cut = shards.iter().filter(|shard| shard.has_more).filter_map(|shard| shard.items.last());
        let cut = cut.map(|item| block_of(project, item)).collect::<Result<Vec<_>, EventStoreError>>()?;
        let mut blocks = assemble_blocks(project, shards.into_iter().flat_map(|shard| shard.items))?;
        let first_cut = cut.into_iter().min();
        if let Some(first_cut) = first_cut {
            blocks.retain(|block| block.id < first_cut);
        }
        Ok((blocks, first_cut))
    }

    /// Reads the oldest items of every shard, from block `from` on: at most `limit` items and about `bytes`
    /// bytes of each.
    async fn shards(
        &self,
        project: ProjectId,
        from: Option<BlockId>,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<ShardPage>, EventStoreError> {
        let shards = (0..keys::SHARDS).map(|shard| {
            let query = PartitionQuery::partition(keys::shard_pk(project, shard)).limit(limit).bytes(bytes);
            // The id of a block sorts before the keys of its parts.
            let query = match from {
                Some(from) => query.after(from.to_string()),
                None => query,
            };
            self.blocks.query(query)
        });
        let shards = futures::future::try_join_all(shards).await?;
        let shard = |items: Vec<Item>| {
            let read = items.iter().map(|item| item.bytes.len()).sum::<usize>();
            ShardPage { has_more: items.len() >= limit || read >= bytes, items }
        };
        Ok(shards.into_iter().map(shard).collect())
    }
}

/// One read of a shard.
struct ShardPage {
    items: Vec<Item>,
    /// Whether there may be more.
    has_more: bool,
}

/// Parses the block id of an item.
fn block_of(project: ProjectId, item: &Item) -> Result<BlockId, EventStoreError> {
    part_of(project, item).map(|(id, _)| id)
}

/// Parses the block id and the part number of an item.
fn part_of(project: ProjectId, item: &Item) -> Result<(BlockId, u8), EventStoreError> {
    BlockId::of_sk(&item.key.sk).map_err(|error| EventStoreError::DamagedBlock {
        project,
        block: item.key.sk.clone(),
        what: error.to_string(),
    })
}

/// Assembles blocks from `items`, in order of the sort keys; skips those that are still being written.
fn assemble_blocks(
    project: ProjectId,
    items: impl Iterator<Item = Item>,
) -> Result<Vec<RawBlock>, EventStoreError> {
    let mut blocks: BTreeMap<BlockId, Vec<(u8, Vec<u8>)>> = BTreeMap::new();
    for item in items {
        let (id, part) = part_of(project, &item)?;
        blocks.entry(id).or_default().push((part, item.bytes));
    }
    let written = blocks.into_iter().filter(|(id, parts)| !is_being_written(id, parts));
    let block = |(id, parts): (BlockId, Vec<(u8, Vec<u8>)>)| {
        let count = parts.len();
        let bytes = parts.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>().concat();
        RawBlock { project, id, bytes, parts: count }
    };
    Ok(written.map(block).collect())
}

/// Whether the missing parts of a block may still be in flight.
fn is_being_written(id: &BlockId, parts: &[(u8, Vec<u8>)]) -> bool {
    // All parts of a block except the last are full.
    let is_one = |(part, bytes): &(u8, Vec<u8>)| match id.parts.checked_sub(part + 1) {
        None => false,
        Some(0) => true,
        Some(_) => bytes.len() == block::PART_BYTES_MAX,
    };
    parts.len() < usize::from(id.parts) && parts.iter().all(is_one) && !write_window_passed(id)
}

/// Whether a block is so old that no part of it can be in flight.
fn write_window_passed(id: &BlockId) -> bool {
    let now = micros_u64(chrono::Utc::now().timestamp_micros());
    id.micros.saturating_add(WRITTEN_WITHIN) < now
}

/// Which events of blocks to decode, and which of their properties. The predicates are called once per name,
/// not per event.
#[derive(Clone)]
pub(crate) struct BlockFilter {
    /// Selects events by name.
    pub event: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// Earliest timestamp.
    pub from: Micros,
    /// Latest timestamp.
    pub to: Micros,
    /// Selects properties by name.
    pub property: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// The query whose memory the decoded events reserve, if it is limited.
    pub memory: Option<QueryMemory>,
}

impl BlockFilter {
    /// All events with all properties.
    pub(crate) fn all() -> BlockFilter {
        BlockFilter::properties(|_| true)
    }

    /// All events, with the selected properties.
    pub(crate) fn properties(requested: impl Fn(&str) -> bool + Send + Sync + 'static) -> BlockFilter {
        let (from, to) = (Micros::MIN, Micros::MAX);
        BlockFilter { event: Arc::new(|_| true), from, to, property: Arc::new(requested), memory: None }
    }
}

/// The events of blocks that passed a filter.
#[derive(Debug, Default)]
pub(crate) struct WaitingRows {
    /// The events, deduplicated, in order of arrival.
    pub rows: Vec<PersonEvent>,
    /// Number of events before filtering, duplicates included.
    pub events: u64,
    /// Memory that the events and their properties reserve.
    pub taken: Option<[MemoryLease; 2]>,
}

/// Decodes the events of `blocks` that pass the filter. Duplicates are dropped before filtering: the one that
/// arrived first is the event, whether it passes or not.
pub(crate) async fn filter_rows(
    project: ProjectId,
    blocks: Vec<RawBlock>,
    requested: BlockFilter,
) -> Result<WaitingRows, EventStoreError> {
    if blocks.is_empty() {
        return Ok(WaitingRows::default());
    }
    tokio::task::spawn_blocking(move || decode_rows(project, &blocks, &requested)).await?
}

/// Decodes all events of `blocks`, deduplicated, in order of arrival, with the selected properties only.
pub(crate) async fn rows_with_properties(
    project: ProjectId,
    blocks: Vec<RawBlock>,
    requested: fn(&str) -> bool,
) -> Result<Vec<PersonEvent>, EventStoreError> {
    Ok(filter_rows(project, blocks, BlockFilter::properties(requested)).await?.rows)
}

/// Decompresses one block at a time. `blocks` are in order of arrival.
pub(crate) fn decode_rows(
    project: ProjectId,
    blocks: &[RawBlock],
    requested: &BlockFilter,
) -> Result<WaitingRows, EventStoreError> {
    let mut found = WaitingRows::default();
    let mut seen = HashSet::new();
    let lease = |purpose| requested.memory.as_ref().map(|memory| memory.lease(purpose));
    let (mut properties, mut others) = (lease(Purpose::Scan), lease(Purpose::Known));
    let compressed = blocks.iter().map(|raw| raw.bytes.len()).sum::<usize>();
    let mut held = compressed;
    for raw in blocks {
        reserve(&mut others, held + raw.inflated_len())?;
        let (id, block) = (&raw.id, raw.open()?);
        let micros = i64::try_from(id.micros).unwrap_or(Micros::MAX);
        let names = block.names.iter().map(|name| (requested.event)(name)).collect::<Vec<_>>();
        let keys = block.keys.iter().map(|key| (requested.property)(key)).collect::<Vec<_>>();
        found.events += block.headers.len() as u64;
        for (index, header) in block.headers.iter().enumerate() {
            let is_new = seen.insert(header.uuid);
            held += SEEN_BYTES;
            if is_new && names[header.name] && (requested.from..=requested.to).contains(&header.timestamp) {
                let event = block.event(index, &keys).map_err(|error| raw.block_error(error.into()))?;
                if let Some(properties) = &mut properties {
                    properties.add(properties_bytes(&event.properties))?;
                }
                held += size_of::<PersonEvent>() + event.event.len() + event.distinct_id.len() + TEXTS_BYTES;
                let person = derive_person_id(project, &event.distinct_id);
                found.rows.push(PersonEvent { seq: seq(micros, id.tie, index as u32), person, event });
            }
        }
    }
    // The blocks and the uuids are freed on return.
    drop(seen);
    reserve(&mut others, held - compressed)?;
    Ok(WaitingRows { taken: properties.zip(others).map(<[MemoryLease; 2]>::from), ..found })
}

fn reserve(lease: &mut Option<MemoryLease>, bytes: usize) -> Result<(), EventStoreError> {
    lease.as_mut().map_or(Ok(()), |lease| lease.set(bytes as u64))
}

/// Uuid and time of the events of `blocks`, deduplicated, in order of arrival. Decodes nothing else.
pub(crate) async fn event_headers(blocks: Vec<RawBlock>) -> Result<Vec<(Uuid, Micros)>, EventStoreError> {
    if blocks.is_empty() {
        return Ok(Vec::new());
    }
    let read = tokio::task::spawn_blocking(move || {
        let (mut headers, mut seen) = (Vec::new(), HashSet::new());
        for raw in &blocks {
            let block = raw.open()?;
            let new = block.headers.iter().filter(|header| seen.insert(header.uuid));
            headers.extend(new.map(|header| (header.uuid, header.timestamp)));
        }
        Ok(headers)
    });
    read.await?
}
