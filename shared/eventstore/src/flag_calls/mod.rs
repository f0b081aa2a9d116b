//! Last call time of flags, from events `$feature_flag_called`.
//!
//! Capture writes nothing for it. Compaction and imports collect the calls of new events, and store the latest
//! per flag in one row of the project before the segment is listed. Calls in waiting blocks are read from the
//! newest blocks, in one round trip. Must stay true: a call belongs to the live flag that has its key when the
//! call is stored or shown; storing the same calls again changes nothing (idempotent). The public interface is
//! [`FlagCallCounter`].

mod recent_calls;

use std::sync::Arc;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::{ProjectId, flag_calls, flag_key_live, flag_keys_pk, live_flag_key};
use pennon_core::store::{Item, PartitionQuery, StoreError, Table, WriteCondition, back_off_after_conflict};
use pennon_flag_rules::calls::{CALL_EVENT, CALLED_KEY, CallsByKey, FLAGS_MAX, FlagCalls, StoredCalls};
use pennon_flag_rules::is_possible_key;
use serde_json::Value;

use crate::block_partitions::BlockPartitions;
use crate::blocks::block::Block;
use crate::blocks::{BlockLog, RawBlock};
use crate::error::EventStoreError;
use crate::keys::{self, BlockId};
use recent_calls::FlagCallCache;

/// Most keys that are looked up one by one; above, all keys of the project are read.
const LOOKED_UP_MAX: usize = 500;
/// Write attempts on version conflicts.
const TRIES: u32 = 12;
/// Most decompressed bytes of blocks that are read for waiting calls; at least one block.
const INFLATED_BYTES_MAX: usize = 128 << 20;
/// Most keys of waiting calls that are kept: clients can send arbitrary keys.
const WAITING_KEYS_MAX: usize = 50_000;

/// Counts and returns the last calls of flags.
#[derive(Debug)]
pub(crate) struct FlagCallCounter {
    records: Table,
    blocks: Arc<BlockLog>,
    cache: FlagCallCache,
}

impl FlagCallCounter {
    pub(crate) fn new(records: Table, blocks: Arc<BlockLog>) -> FlagCallCounter {
        FlagCallCounter { records, blocks, cache: FlagCallCache::default() }
    }

    /// Invalidates the cache, because a batch was stored.
    pub(crate) fn invalidate(&self) {
        self.cache.invalidate();
    }

    /// Raises the last call times of the flags in `calls`; future times count as `now`. Keys of no live flag
    /// are ignored.
    pub(crate) async fn store_flag_calls(
        &self,
        project: ProjectId,
        calls: &CallsByKey,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        self.count_flag_calls(project, calls, None, now).await
    }

    /// As [`FlagCallCounter::store_flag_calls`], for the calls of all blocks up to `newest`, if they come from
    /// blocks.
    pub(crate) async fn count_flag_calls(
        &self,
        project: ProjectId,
        calls: &CallsByKey,
        newest: Option<BlockId>,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        if calls.is_empty() {
            return Ok(());
        }
        let called = self.called_flags(project, calls).await?;
        let newest = newest.map(|block| block.to_string());
        let (records, key) = (&self.records, flag_calls(project));
        for tried in 0..TRIES {
            back_off_after_conflict(tried).await;
            let item = records.get(&key).await?;
            let mut stored = match &item {
                Some(item) => item.body::<StoredCalls>()?,
                None => StoredCalls::default(),
            };
            let moved = called.iter().filter(|(flag, at)| stored.advance(*flag, *at, now)).count();
            let has_counted = newest.as_ref().is_some_and(|newest| stored.count_to(newest));
            if moved == 0 && !has_counted {
                return Ok(());
            }
            stored.truncate(FLAGS_MAX);
            let version = item.as_ref().map_or(0, |item| item.version);
            let guard = item.map_or(WriteCondition::Absent, |item| WriteCondition::Version(item.version));
            let row = Item::new(key.clone(), &stored)?.with_version(version + 1);
            match records.put(row, guard).await {
                Err(error) if error.is_condition(0) => {}
                written => {
                    self.cache.invalidate();
                    return Ok(written?);
                }
            }
        }
        Err(StoreError::Conflict.into())
    }

    /// The live flags with the keys of `calls`, and their latest calls.
    async fn called_flags(
        &self,
        project: ProjectId,
        calls: &CallsByKey,
    ) -> Result<Vec<(i64, Micros)>, EventStoreError> {
        let records = &self.records;
        if calls.len() <= LOOKED_UP_MAX {
            let keys = calls.iter().map(|(key, _)| flag_key_live(project, key)).collect::<Vec<_>>();
            let rows = records.batch_get(&keys).await?;
            let called = rows.iter().zip(calls.iter());
            return Ok(called.filter_map(|(row, (_, at))| Some((row.as_ref()?.count, at))).collect());
        }
        let rows = records.query(PartitionQuery::partition(flag_keys_pk(project))).await?;
        let called = |row: &Item| Some((row.count, calls.get(live_flag_key(&row.key.sk)?)?));
        Ok(rows.iter().filter_map(called).collect())
    }

    /// The last call times of flags: the stored ones, and those of the newest blocks that they do not include
    /// yet (at most one page per shard). One round trip; cached for five seconds, unless this process has
    /// stored events since. Unreadable blocks are skipped.
    pub(crate) async fn flag_calls(&self, project: ProjectId) -> Result<Arc<FlagCalls>, EventStoreError> {
        let memory = &self.cache;
        if let Some(calls) = memory.get(project) {
            return Ok(calls);
        }
        let start = memory.start();
        // Calls that the row does not include yet are in blocks that exist for minutes.
        let rows = [flag_calls(project), keys::block_partitions(project)];
        let (row, blocks) = loop {
            let partitions = self.blocks.partitions(project);
            let read = self.blocks.newest_blocks(project, partitions);
            let (rows, blocks) = futures::join!(self.records.batch_get(&rows), read);
            let [row, setting] = <[Option<Item>; 2]>::try_from(rows?).unwrap_or_default();
            let setting = setting.as_ref().map(BlockPartitions::of_row).transpose()?;
            if self.blocks.learn_partitions(project, setting.unwrap_or_default()) <= partitions {
                break (row, blocks);
            }
        };
        let stored = match row {
            Some(row) => row.body::<StoredCalls>()?,
            None => StoredCalls::default(),
        };
        let blocks = match blocks {
            Ok(blocks) => blocks,
            Err(error) => {
                tracing::warn!(project, %error, "the times of flag calls are returned without the latest events");
                Vec::new()
            }
        };
        let mut waiting = CallsByKey::default();
        let mut unknown = Vec::new();
        for block in blocks.into_iter().filter(|block| !stored.has_counted(&block.id.to_string())) {
            match memory.block(project, block.id) {
                Some(known) => waiting.merge(&known),
                None => unknown.push(block),
            }
        }
        if !unknown.is_empty() {
            for (id, of_block) in tokio::task::spawn_blocking(move || calls_of(&unknown)).await? {
                if waiting.len() < WAITING_KEYS_MAX {
                    waiting.merge(&of_block);
                }
                memory.keep_block(project, id, &Arc::new(of_block));
            }
        }
        let calls = Arc::new(FlagCalls { stored, waiting });
        memory.keep(project, start, calls.clone());
        Ok(calls)
    }
}

/// The calls of each of `blocks`, newest first, up to the decompression limit.
fn calls_of(blocks: &[RawBlock]) -> Vec<(BlockId, CallsByKey)> {
    let mut inflated = 0;
    let newest = blocks.iter().rev().enumerate().take_while(|(number, block)| {
        inflated += block.inflated_len();
        *number == 0 || inflated <= INFLATED_BYTES_MAX
    });
    newest.filter_map(|(_, block)| Some((block.id, calls_of_block(&block.open().ok()?).ok()?))).collect()
}

fn calls_of_block(block: &Block) -> Result<CallsByKey, EventStoreError> {
    let mut calls = CallsByKey::default();
    let Some(name) = block.names.iter().position(|name| name == CALL_EVENT) else { return Ok(calls) };
    let requested = block.keys.iter().map(|key| key == CALLED_KEY).collect::<Vec<_>>();
    for (index, head) in block.headers.iter().enumerate().filter(|(_, head)| head.name == name) {
        let event = block.event(index, &requested)?;
        if let Some(Value::String(key)) = event.properties.get(CALLED_KEY)
            && is_possible_key(key)
        {
            calls.add(key, head.timestamp);
        }
    }
    Ok(calls)
}
