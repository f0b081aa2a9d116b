//! The capture buffer: captured batches wait as messages of a queue, and a consumer appends those of a project as few blocks.
//!
//! A put of DynamoDB is charged per started KB, and so is the deletion after compaction, so many small batches in one block cost a fraction.
//! Person merges are applied before a batch is sent; the rest of a batch is its block ([`crate::blocks`], `queued_block`).
//!
//! Must stay true: a message that is not reported as failed was appended durably; messages may be repeated, in any order, because an event is
//! identified by its uuid; a message that cannot be read, or whose block cannot be written, does not keep others from being
//! appended; memory is bounded by [`PROJECTS_AT_ONCE`] blocks of [`INFLATED_BYTES_MAX`]; nothing starts after the end.

use std::collections::BTreeMap;

use futures::StreamExt;
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use tokio::time::Instant;

use crate::blocks::{BLOCK_PART_BYTES_MAX, CapturedBatch, EncodedBatch, QueuedBlock};
use crate::error::EventStoreError;
use crate::ingest::EventCapture;

/// Projects whose messages are appended concurrently, mostly waiting for DynamoDB.
const PROJECTS_AT_ONCE: usize = 8;
/// Most decompressed bytes of the messages of one block, unless one message has more.
const INFLATED_BYTES_MAX: usize = 4 << 20;

/// A message of the capture buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferedMessage {
    /// The id by which a failed message is reported.
    pub id: String,
    /// The body, from [`crate::EventStore::buffered_message`].
    pub body: String,
}

/// What became of a batch of messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BufferedReport {
    /// The ids of the messages that were not appended.
    pub failed: Vec<String>,
    /// Messages that were appended.
    pub messages: usize,
    /// Their events, duplicates included.
    pub events: usize,
    /// The blocks that they are in.
    pub blocks: usize,
}

impl BufferedReport {
    fn add(&mut self, other: BufferedReport) {
        self.failed.extend(other.failed);
        self.messages += other.messages;
        self.events += other.events;
        self.blocks += other.blocks;
    }

    fn failed(messages: impl IntoIterator<Item = WaitingMessage>) -> BufferedReport {
        let failed = messages.into_iter().map(|message| message.id).collect();
        BufferedReport { failed, ..BufferedReport::default() }
    }
}

/// A message that was parsed.
struct WaitingMessage {
    id: String,
    block: QueuedBlock,
}

/// Messages that become one block.
struct MergedMessages {
    batch: EncodedBatch,
    events: usize,
    stored: Vec<String>,
    failed: Vec<String>,
}

impl EventCapture {
    /// The message of a batch that arrived at `now`, after the person merges that it requests were applied. `None`, and nothing was
    /// done, if the batch is too large for a message.
    pub(crate) async fn buffered_message(
        &self,
        project: ProjectId,
        batch: &EncodedBatch,
        now: Micros,
    ) -> Result<Option<String>, EventStoreError> {
        let message = self.queued_message(project, batch, now)?;
        if message.is_some() && batch.may_request_merges() {
            self.apply_merges(project, batch, now).await?;
        }
        Ok(message)
    }

    /// Appends `messages` until `end`. `now` is the time of arrival of their blocks.
    pub(crate) async fn append_messages(
        &self,
        messages: Vec<BufferedMessage>,
        now: Micros,
        end: Instant,
    ) -> BufferedReport {
        let mut report = BufferedReport::default();
        let mut projects: BTreeMap<ProjectId, Vec<WaitingMessage>> = BTreeMap::new();
        for BufferedMessage { id, body } in messages {
            match QueuedBlock::decode(&body) {
                Ok(block) => projects.entry(block.project()).or_default().push(WaitingMessage { id, block }),
                Err(error) => {
                    log_unreadable(&id, &error);
                    report.failed.push(id);
                }
            }
        }
        let mut projects = projects.into_iter().collect::<Vec<_>>();
        // Those with the least work first: a project that takes all the time left delays no other.
        projects.sort_by_cached_key(|(_, messages)| inflated_len(messages));
        let appends = projects
            .into_iter()
            .map(|(project, messages)| self.append_project(project, messages, now, end))
            .collect::<Vec<_>>();
        let mut reports = futures::stream::iter(appends).buffer_unordered(PROJECTS_AT_ONCE);
        while let Some(of_project) = reports.next().await {
            report.add(of_project);
        }
        report
    }

    /// Appends the messages of a project in their order of arrival, block by block.
    async fn append_project(
        &self,
        project: ProjectId,
        messages: Vec<WaitingMessage>,
        now: Micros,
        end: Instant,
    ) -> BufferedReport {
        let mut report = BufferedReport::default();
        for messages in split_into_blocks(messages) {
            if Instant::now() >= end {
                report.add(BufferedReport::failed(messages));
                continue;
            }
            let ids = messages.iter().map(|message| message.id.clone()).collect::<Vec<_>>();
            match tokio::time::timeout_at(end, self.append_merged(project, messages, now)).await {
                Ok(Ok(done)) => report.add(done),
                Ok(Err(error)) => {
                    tracing::warn!(project, messages = ids.len(), %error, "messages of the capture buffer were not stored; they come again");
                    report.failed.extend(ids);
                }
                Err(_) => report.failed.extend(ids),
            }
        }
        report
    }

    async fn append_merged(
        &self,
        project: ProjectId,
        messages: Vec<WaitingMessage>,
        now: Micros,
    ) -> Result<BufferedReport, EventStoreError> {
        let merged = tokio::task::spawn_blocking(move || merge(messages)).await??;
        let mut report = BufferedReport { failed: merged.failed, ..BufferedReport::default() };
        if merged.events > 0 {
            self.append_block(project, merged.batch, now).await?;
            report.blocks = 1;
        }
        (report.messages, report.events) = (merged.stored.len(), merged.events);
        Ok(report)
    }
}

fn inflated_len(messages: &[WaitingMessage]) -> usize {
    messages.iter().map(|message| message.block.inflated_len()).sum()
}

fn log_unreadable(message: &str, error: &EventStoreError) {
    tracing::error!(message_id = message, %error, "a message of the capture buffer cannot be read");
}

/// Sorts messages by arrival, and splits them so that each part becomes a block of one item. Compressed together, messages take less
/// than one by one.
fn split_into_blocks(mut messages: Vec<WaitingMessage>) -> Vec<Vec<WaitingMessage>> {
    messages.sort_by_key(|message| message.block.captured_id());
    let mut parts: Vec<Vec<WaitingMessage>> = Vec::new();
    let (mut stored, mut inflated) = (0, 0);
    for message in messages {
        stored += message.block.stored_len();
        inflated += message.block.inflated_len();
        match parts.last_mut() {
            Some(part) if stored <= BLOCK_PART_BYTES_MAX && inflated <= INFLATED_BYTES_MAX => {
                part.push(message)
            }
            _ => {
                (stored, inflated) = (message.block.stored_len(), message.block.inflated_len());
                parts.push(vec![message]);
            }
        }
    }
    parts
}

/// Encodes the events of `messages` as one block, one message at a time.
fn merge(messages: Vec<WaitingMessage>) -> Result<MergedMessages, EventStoreError> {
    let mut batch = CapturedBatch::default();
    let (mut stored, mut failed) = (Vec::new(), Vec::new());
    for WaitingMessage { id, block } in messages {
        match block.append_to(&mut batch) {
            Ok(()) => stored.push(id),
            Err(error) => {
                log_unreadable(&id, &error);
                failed.push(id);
            }
        }
    }
    let events = batch.events.len();
    Ok(MergedMessages { batch: batch.encode_without_merges()?, events, stored, failed })
}
