//! Reads of the block log: all waiting blocks of a project, the oldest, the newest, or only their ids.
//!
//! Must stay true: a reader gets the number of partitions ([`BlockLog::partitions`]), reads blocks, then the manifest, and starts
//! again if the manifest has more partitions ([`BlockLog::has_read_all`]). The memory of a read is bounded for all
//! partitions together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, PageStart, PartitionQuery, StoreError};

use crate::block_partitions::BlockPartitions;
use crate::blocks::block::{PART_BYTES_MAX, PARTS_MAX};
use crate::blocks::block_log::{BlockLog, RawBlock};
use crate::error::EventStoreError;
use crate::event::micros_u64;
use crate::keys::BlockId;
use crate::manifest::Manifest;

/// Most decompressed bytes of all waiting blocks that one query reads.
const INFLATED_BYTES_MAX: usize = 512 << 20;

/// Most items of a partition that are read before the caller is authorized: one page.
const FEW_ITEMS: usize = 200;

/// Most items of a partition that [`BlockLog::newest_blocks`] reads.
const NEWEST_ITEMS: usize = 500;

/// Blocks that one compaction run reads, about: at 2,000 single events a second, those of four seconds.
const COMPACTED_BLOCKS: usize = 8000;
/// Items of a partition that one compaction run reads, at least; more than the parts of a block, so that a run makes
/// progress.
const COMPACTED_ITEMS_MIN: usize = 250;

/// Microseconds after its arrival within which every reader sees the write of a block completely: one minute.
const WRITTEN_WITHIN: u64 = 60 * 1_000_000;

/// What is left of the limits of a read, for all partitions together.
struct ReadBudget {
    items: AtomicUsize,
    bytes: AtomicUsize,
    /// Most items of one partition.
    partition_items: usize,
}

impl ReadBudget {
    fn new(items: usize, bytes: usize, partition_items: usize) -> ReadBudget {
        ReadBudget { items: AtomicUsize::new(items), bytes: AtomicUsize::new(bytes), partition_items }
    }

    /// Subtracts a page. Returns whether anything is left.
    fn consume(&self, items: usize, bytes: usize) -> bool {
        let subtract = |left: &AtomicUsize, by: usize| {
            let before =
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(by)));
            before.is_ok_and(|before| before > by)
        };
        let (has_items, has_bytes) = (subtract(&self.items, items), subtract(&self.bytes, bytes));
        has_items && has_bytes
    }
}

/// The items that were read of a partition.
struct PartitionItems {
    items: Vec<Item>,
    /// Whether there may be more.
    has_more: bool,
}

impl BlockLog {
    /// The number of partitions of `project`, as far as this process knows.
    pub(crate) fn partitions(&self, project: ProjectId) -> BlockPartitions {
        self.partitions.get(project)
    }

    /// Remembers the setting of `project` as it was read. Returns the highest number that is known.
    pub(crate) fn learn_partitions(
        &self,
        project: ProjectId,
        partitions: BlockPartitions,
    ) -> BlockPartitions {
        self.partitions.learn(project, partitions);
        self.partitions.get(project)
    }

    /// Whether a reader that read `partitions`, and then `manifest`, has read all partitions. If not, it reads again.
    pub(crate) fn has_read_all(
        &self,
        project: ProjectId,
        partitions: BlockPartitions,
        manifest: &Manifest,
    ) -> bool {
        self.learn_partitions(project, manifest.partitions);
        manifest.partitions <= partitions
    }

    /// All completely written blocks of `project`, oldest first, including those that a segment replaces.
    pub(crate) async fn raw_blocks(
        &self,
        project: ProjectId,
        partitions: BlockPartitions,
    ) -> Result<Vec<RawBlock>, EventStoreError> {
        let budget = ReadBudget::new(self.settings.waiting_blocks, self.settings.waiting_bytes, usize::MAX);
        let read = self.read_partitions(project, partitions, None, &budget).await?;
        let items = read.iter().map(|partition| partition.items.len()).sum::<usize>();
        let has_more =
            items > self.settings.waiting_blocks || read.iter().any(|partition| partition.has_more);
        let blocks = assemble_blocks(project, read.into_iter().flat_map(|partition| partition.items))?;
        if has_more || blocks.iter().map(RawBlock::inflated_len).sum::<usize>() > INFLATED_BYTES_MAX {
            // The condition is temporary, so it is no error of the query.
            self.backlog.wake();
            let waiting =
                StoreError::Busy(format!("too many events of project {project} wait for compaction"));
            return Err(waiting.into());
        }
        Ok(blocks)
    }

    /// As [`BlockLog::raw_blocks`], if one page of each partition holds them all.
    pub(crate) async fn raw_blocks_if_few(
        &self,
        project: ProjectId,
        partitions: BlockPartitions,
    ) -> Result<Option<Vec<RawBlock>>, EventStoreError> {
        let pages = partitions.keys(project).map(|key| async move {
            self.blocks.page(&PartitionQuery::partition(key).limit(FEW_ITEMS + 1), None).await
        });
        let pages = futures::future::try_join_all(pages).await?;
        if pages.iter().any(|page| page.next.is_some()) {
            return Ok(None);
        }
        assemble_blocks(project, pages.into_iter().flat_map(|page| page.items)).map(Some)
    }

    /// The newest completely written blocks of `project`, oldest first, including those that a segment
    /// replaces. One round trip: at most one page per partition.
    pub(crate) async fn newest_blocks(
        &self,
        project: ProjectId,
        partitions: BlockPartitions,
    ) -> Result<Vec<RawBlock>, EventStoreError> {
        let pages = partitions.keys(project).map(|key| async move {
            self.blocks.page(&PartitionQuery::partition(key).descending().limit(NEWEST_ITEMS), None).await
        });
        let pages = futures::future::try_join_all(pages).await?;
        // Parts of a block in ascending order.
        assemble_blocks(project, pages.into_iter().flat_map(|page| page.items.into_iter().rev()))
    }

    /// The ids of all completely written blocks of `project`, without a limit; their content is not checked.
    pub(crate) async fn block_ids(
        &self,
        project: ProjectId,
        partitions: BlockPartitions,
    ) -> Result<Vec<BlockId>, EventStoreError> {
        let mut parts: BTreeMap<BlockId, usize> = BTreeMap::new();
        for key in partitions.keys(project) {
            let query = PartitionQuery::partition(key);
            let mut start: Option<PageStart> = None;
            loop {
                let page = self.blocks.page(&query, start).await?;
                for item in &page.items {
                    *parts.entry(BlockId::of_sk(&item.key.sk)?.0).or_default() += 1;
                }
                start = page.next;
                if start.is_none() {
                    break;
                }
            }
        }
        let written = parts
            .into_iter()
            .filter(|(id, parts)| *parts == usize::from(id.parts) || write_window_passed(id));
        Ok(written.map(|(id, _)| id).collect())
    }

    /// Reads the oldest blocks of `project`, from block `from` on, and the id to continue from if there are
    /// more. Every block that is not returned is newer than all that are.
    pub(crate) async fn oldest_blocks(
        &self,
        project: ProjectId,
        partitions: BlockPartitions,
        from: Option<BlockId>,
    ) -> Result<(Vec<RawBlock>, Option<BlockId>), EventStoreError> {
        let items = (COMPACTED_BLOCKS / usize::from(partitions.count())).max(COMPACTED_ITEMS_MIN);
        let budget = ReadBudget::new(usize::MAX, self.settings.compacted_read_bytes, items);
        let read = self.read_partitions(project, partitions, from, &budget).await?;
        let cut =
            read.iter().filter(|partition| partition.has_more).filter_map(|partition| partition.items.last());
        let cut = cut.map(|item| block_of(project, item)).collect::<Result<Vec<_>, EventStoreError>>()?;
        let mut blocks = assemble_blocks(project, read.into_iter().flat_map(|partition| partition.items))?;
        let first_cut = cut.into_iter().min();
        if let Some(first_cut) = first_cut {
            blocks.retain(|block| block.id < first_cut);
        }
        Ok((blocks, first_cut))
    }

    /// Reads the oldest items of every partition, from block `from` on, within `budget`.
    async fn read_partitions(
        &self,
        project: ProjectId,
        partitions: BlockPartitions,
        from: Option<BlockId>,
        budget: &ReadBudget,
    ) -> Result<Vec<PartitionItems>, EventStoreError> {
        let reads = partitions.keys(project).map(|key| {
            let query = PartitionQuery::partition(key);
            // The id of a block sorts before the keys of its parts.
            self.read_partition(
                match from {
                    Some(from) => query.after(from.to_string()),
                    None => query,
                },
                budget,
            )
        });
        Ok(futures::future::try_join_all(reads).await?)
    }

    async fn read_partition(
        &self,
        query: PartitionQuery,
        budget: &ReadBudget,
    ) -> Result<PartitionItems, StoreError> {
        let (mut items, mut start): (Vec<Item>, Option<PageStart>) = (Vec::new(), None);
        loop {
            let query = match budget.partition_items {
                usize::MAX => query.clone(),
                limit => query.clone().limit(limit - items.len()),
            };
            let page = self.blocks.page(&query, start).await?;
            let bytes = page.items.iter().map(|item| item.bytes.len()).sum();
            let is_left = budget.consume(page.items.len(), bytes);
            items.extend(page.items);
            start = page.next;
            // The largest block is read completely, so that compaction makes progress.
            let is_enough = items.len() >= budget.partition_items || !is_left && items.len() > PARTS_MAX;
            if start.is_none() || is_enough {
                return Ok(PartitionItems { items, has_more: start.is_some() });
            }
        }
    }
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
        Some(_) => bytes.len() == PART_BYTES_MAX,
    };
    parts.len() < usize::from(id.parts) && parts.iter().all(is_one) && !write_window_passed(id)
}

/// Whether a block is so old that no part of it can be in flight.
fn write_window_passed(id: &BlockId) -> bool {
    let now = micros_u64(chrono::Utc::now().timestamp_micros());
    id.micros.saturating_add(WRITTEN_WITHIN) < now
}
