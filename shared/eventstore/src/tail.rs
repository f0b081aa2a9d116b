//! Blocks: captured batches that no segment holds yet.
//!
//! Must stay true: a batch is stored whole or not at all, in one transaction; once [`EventStore::append`] has returned,
//! every later read sees it. A block of which a reader sees only some parts is being written and not acknowledged yet;
//! it is ignored.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use pennon_core::ids::random_below;
use pennon_core::store::keys::{ProjectId, project_ingested};
use pennon_core::store::{Guard, Item, Query, StoreError, Write};
use pennon_engine::scan::Micros;
use uuid::Uuid;

use crate::EventStore;
use crate::block::{self, Block};
use crate::captured::{Captured, Sealed};
use crate::error::EventStoreError;
use crate::event::{Event, Row, micros_u64, seq};
use crate::keys::{self, BlockId};
use crate::person::derived;
use crate::scan::piece::properties_bytes;
use crate::scan::room::{ScanRoom, Taken};

/// Most blocks of a shard that wait for compaction and can still be read by one question.
const BLOCKS_PER_SHARD_MAX: usize = 5000;
/// Most compressed bytes of a shard's blocks that wait for compaction and can still be read by one question.
const SHARD_BYTES_MAX: usize = 32 << 20;
/// Most bytes of all waiting blocks after inflation, for one question.
const INFLATED_BYTES_MAX: usize = 512 << 20;

/// What of a shard may be read before it is known that the asker may: a page of the store at most.
const FEW_PER_SHARD: usize = 200;
const FEW_BYTES_PER_SHARD: usize = 512 << 10;

/// Items of a shard that one run of compaction takes; above the parts of a block, so that a run gets on.
const COMPACTED_PER_SHARD: usize = 250;
/// Compressed bytes of a shard that one run of compaction takes; above the largest block.
const COMPACTED_BYTES_PER_SHARD: usize = 16 << 20;

/// A block's bytes as read.
#[derive(Debug)]
pub(crate) struct RawBlock {
    pub id: BlockId,
    bytes: Vec<u8>,
}

impl RawBlock {
    /// Size after inflation.
    pub(crate) fn inflated_len(&self) -> usize {
        block::inflated_len(&self.bytes)
    }

    /// Inflates it.
    pub(crate) fn open(&self) -> Result<Block, EventStoreError> {
        Block::open(&self.bytes).map_err(|error| self.corrupt(error))
    }

    fn corrupt(&self, error: EventStoreError) -> EventStoreError {
        EventStoreError::Corrupt(format!("block {}: {error}", self.id))
    }
}

impl EventStore {
    /// Stores a captured batch that arrived at `now`. When it returns, the events are durable and counted, and the
    /// merges that they ask for have happened.
    ///
    /// [`EventStoreError::TooLarge`] when they do not fit into one transaction, or ask for more than
    /// [`MERGES_MAX`](crate::MERGES_MAX) merges; nothing is stored then.
    pub async fn append(
        &self,
        project: ProjectId,
        events: &[Event],
        now: Micros,
    ) -> Result<(), EventStoreError> {
        if events.is_empty() {
            return Ok(());
        }
        self.append_sealed(project, Captured::of(events).sealed()?, now).await
    }

    /// As [`EventStore::append`], of a batch that was made ready elsewhere.
    pub async fn append_sealed(
        &self,
        project: ProjectId,
        batch: Sealed,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        self.mark_project(project).await?;
        let parts = batch.block.chunks(block::PART_BYTES_MAX);
        let id = BlockId {
            micros: micros_u64(now),
            tie: self.next_tie(),
            random: random_below(1 << 32) as u32,
            parts: parts.len() as u8,
        };
        let writes = parts.enumerate().map(|(part, bytes)| {
            Write::Put(Item::binary(id.part(project, part as u8), bytes.to_vec()), Guard::Absent)
        });
        // Merges first: made again they change nothing, while a batch that is sent again because they failed after it
        // was stored would count twice where its events have no uuid of their own.
        self.merge_persons(project, &batch.merging).await?;
        self.inner.store.blocks.transact(writes.collect()).await?;
        self.inner.waiting.add(batch.block.len());
        Ok(())
    }

    /// Makes the rows that say that the project has events, once a process.
    pub(crate) async fn mark_project(&self, project: ProjectId) -> Result<(), EventStoreError> {
        if self.inner.marked().contains(&project) {
            return Ok(());
        }
        for key in [keys::project_with_events(project), project_ingested(project)] {
            match self.inner.store.records.put(Item::empty(key), Guard::Absent).await {
                Err(error) if !error.is_condition(0) => return Err(error.into()),
                _ => {}
            }
        }
        self.inner.marked().insert(project);
        Ok(())
    }

    /// The projects that have events.
    pub async fn projects(&self) -> Result<Vec<ProjectId>, EventStoreError> {
        let items = self.inner.store.records.query(Query::partition(keys::PROJECTS_PK)).await?;
        Ok(items.iter().filter_map(|item| keys::project_of_sk(&item.key.sk)).collect())
    }

    /// All complete blocks of `project`, oldest first; those that a segment replaces too.
    pub(crate) async fn raw_blocks(&self, project: ProjectId) -> Result<Vec<RawBlock>, EventStoreError> {
        let shards = self.shards(project, BLOCKS_PER_SHARD_MAX + 1, SHARD_BYTES_MAX).await?;
        let is_cut = shards.iter().any(|shard| shard.is_cut);
        let blocks = complete(shards.into_iter().flat_map(|shard| shard.items))?;
        if is_cut || blocks.iter().map(RawBlock::inflated_len).sum::<usize>() > INFLATED_BYTES_MAX {
            // A matter of time, not of the question.
            self.inner.waiting.wake();
            let waiting =
                StoreError::Busy(format!("too many events of project {project} wait for compaction"));
            return Err(waiting.into());
        }
        Ok(blocks)
    }

    /// As [`EventStore::raw_blocks`], if they are so few that one page of each shard has them all.
    pub(crate) async fn few_raw_blocks(
        &self,
        project: ProjectId,
    ) -> Result<Option<Vec<RawBlock>>, EventStoreError> {
        let shards = self.shards(project, FEW_PER_SHARD + 1, FEW_BYTES_PER_SHARD).await?;
        if shards.iter().any(|shard| shard.is_cut) {
            return Ok(None);
        }
        complete(shards.into_iter().flat_map(|shard| shard.items)).map(Some)
    }

    /// The ids of all complete blocks of `project`, however many; their content is not looked at.
    pub(crate) async fn block_ids(&self, project: ProjectId) -> Result<Vec<BlockId>, EventStoreError> {
        let mut parts: BTreeMap<BlockId, usize> = BTreeMap::new();
        for shard in 0..keys::SHARDS {
            let mut after = None;
            loop {
                let query = Query::partition(keys::shard_pk(project, shard)).bytes(SHARD_BYTES_MAX);
                let query = match after.take() {
                    Some(after) => query.after(after),
                    None => query,
                };
                let items = self.inner.store.blocks.query(query).await?;
                let Some(last) = items.last() else { break };
                after = Some(last.key.sk.clone());
                for item in &items {
                    *parts.entry(BlockId::of_sk(&item.key.sk)?.0).or_default() += 1;
                }
            }
        }
        let complete = parts.into_iter().filter(|(id, parts)| *parts == usize::from(id.parts));
        Ok(complete.map(|(id, _)| id).collect())
    }

    /// The oldest blocks of `project`, and whether there are more. No block that is left out is older than one of them.
    pub(crate) async fn oldest_blocks(
        &self,
        project: ProjectId,
    ) -> Result<(Vec<RawBlock>, bool), EventStoreError> {
        let shards = self.shards(project, COMPACTED_PER_SHARD, COMPACTED_BYTES_PER_SHARD).await?;
        let cut = shards.iter().filter(|shard| shard.is_cut).filter_map(|shard| shard.items.last());
        let cut = cut
            .map(|item| Ok(BlockId::of_sk(&item.key.sk)?.0))
            .collect::<Result<Vec<_>, EventStoreError>>()?;
        let mut blocks = complete(shards.into_iter().flat_map(|shard| shard.items))?;
        if let Some(first_cut) = cut.iter().min() {
            blocks.retain(|block| block.id < *first_cut);
        }
        Ok((blocks, !cut.is_empty()))
    }

    /// The oldest items of every shard: at most `limit`, and about `bytes`, of each.
    async fn shards(
        &self,
        project: ProjectId,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Shard>, EventStoreError> {
        let shards = (0..keys::SHARDS).map(|shard| {
            let query = Query::partition(keys::shard_pk(project, shard)).limit(limit).bytes(bytes);
            self.inner.store.blocks.query(query)
        });
        let shards = futures::future::try_join_all(shards).await?;
        let shard = |items: Vec<Item>| {
            let read = items.iter().map(|item| item.bytes.len()).sum::<usize>();
            Shard { is_cut: items.len() >= limit || read >= bytes, items }
        };
        Ok(shards.into_iter().map(shard).collect())
    }
}

/// The oldest items of a shard.
struct Shard {
    items: Vec<Item>,
    /// Whether there may be more.
    is_cut: bool,
}

/// The blocks of which all parts are among `items`. Parts of a block come in their order, that of the sort keys.
fn complete(items: impl Iterator<Item = Item>) -> Result<Vec<RawBlock>, EventStoreError> {
    let mut blocks: BTreeMap<BlockId, Vec<Vec<u8>>> = BTreeMap::new();
    for item in items {
        let (id, _) = BlockId::of_sk(&item.key.sk)?;
        blocks.entry(id).or_default().push(item.bytes);
    }
    let complete = blocks.into_iter().filter(|(id, parts)| parts.len() == usize::from(id.parts));
    Ok(complete.map(|(id, parts)| RawBlock { id, bytes: parts.concat() }).collect())
}

/// Which events of blocks are wanted, and what of them. Asked once a name, not once an event.
#[derive(Clone)]
pub(crate) struct Choice {
    /// Whether events of this name are.
    pub event: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// Earliest time that is.
    pub from: Micros,
    /// Latest time that is.
    pub to: Micros,
    /// Whether the property of this name is.
    pub property: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// From what their properties are taken, if anything bounds them.
    pub room: Option<ScanRoom>,
}

impl Choice {
    /// Everything.
    pub(crate) fn all() -> Choice {
        Choice::properties(|_| true)
    }

    /// All events, with those properties whose names are `wanted`.
    pub(crate) fn properties(wanted: impl Fn(&str) -> bool + Send + Sync + 'static) -> Choice {
        let (from, to) = (Micros::MIN, Micros::MAX);
        Choice { event: Arc::new(|_| true), from, to, property: Arc::new(wanted), room: None }
    }
}

/// What was found in blocks.
#[derive(Debug, Default)]
pub(crate) struct HotRows {
    /// The events that were wanted, copies dropped, in order of arrival.
    pub rows: Vec<Row>,
    /// How many events there are, copies included.
    pub events: u64,
    /// What their properties take.
    pub taken: Option<Taken>,
}

/// The events of `blocks` that are `wanted`. A copy is no event of its own, whatever its
/// name and time are: the one that arrived first is the event, wanted or not.
pub(crate) async fn chosen_rows_of(
    project: ProjectId,
    blocks: Vec<RawBlock>,
    wanted: Choice,
) -> Result<HotRows, EventStoreError> {
    if blocks.is_empty() {
        return Ok(HotRows::default());
    }
    tokio::task::spawn_blocking(move || decoded(project, &blocks, &wanted)).await?
}

/// The events of `blocks`, copies dropped, in order of arrival; of each only the properties whose names are wanted.
pub(crate) async fn slim_rows_of(
    project: ProjectId,
    blocks: Vec<RawBlock>,
    wanted: fn(&str) -> bool,
) -> Result<Vec<Row>, EventStoreError> {
    Ok(chosen_rows_of(project, blocks, Choice::properties(wanted)).await?.rows)
}

/// One block at a time is in memory as it was sent. Blocks come in the order in which they arrived.
fn decoded(project: ProjectId, blocks: &[RawBlock], wanted: &Choice) -> Result<HotRows, EventStoreError> {
    let mut found = HotRows::default();
    let mut seen = HashSet::new();
    let mut taken = wanted.room.as_ref().map(ScanRoom::for_now);
    for raw in blocks {
        let (id, block) = (&raw.id, raw.open()?);
        let micros = i64::try_from(id.micros).unwrap_or(Micros::MAX);
        let names = block.names.iter().map(|name| (wanted.event)(name)).collect::<Vec<_>>();
        let keys = block.keys.iter().map(|key| (wanted.property)(key)).collect::<Vec<_>>();
        found.events += block.heads.len() as u64;
        for (index, head) in block.heads.iter().enumerate() {
            let is_new = seen.insert(head.uuid);
            if is_new && names[head.name] && (wanted.from..=wanted.to).contains(&head.timestamp) {
                let event = block.event(index, &keys).map_err(|error| raw.corrupt(error))?;
                if let Some(taken) = &mut taken {
                    taken.more(properties_bytes(&event.properties))?;
                }
                let person = derived(project, &event.distinct_id);
                found.rows.push(Row { seq: seq(micros, id.tie, index as u32), person, event });
            }
        }
    }
    Ok(HotRows { taken, ..found })
}

/// Uuid and time of the events of `blocks`, copies dropped, in order of arrival. Nothing else of them is built.
pub(crate) async fn heads_of(blocks: Vec<RawBlock>) -> Result<Vec<(Uuid, Micros)>, EventStoreError> {
    if blocks.is_empty() {
        return Ok(Vec::new());
    }
    let read = tokio::task::spawn_blocking(move || {
        let (mut heads, mut seen) = (Vec::new(), HashSet::new());
        for raw in &blocks {
            let block = raw.open()?;
            let new = block.heads.iter().filter(|head| seen.insert(head.uuid));
            heads.extend(new.map(|head| (head.uuid, head.timestamp)));
        }
        Ok(heads)
    });
    read.await?
}
