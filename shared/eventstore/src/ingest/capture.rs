//! Appends captured batches.
//!
//! Must stay true: once [`EventCapture::append_encoded`] has returned, the events are durable and counted, and the person
//! merges that they request are applied.

use std::sync::Arc;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;

use crate::blocks::{BlockLog, EncodedBatch};
use crate::error::EventStoreError;
use crate::flag_calls::FlagCallCounter;
use crate::ingest::waker::CompactionWaker;
use crate::manifest::ProjectList;
use crate::persons::MergeLog;

/// Appends captured batches.
#[derive(Debug)]
pub(crate) struct EventCapture {
    projects: Arc<ProjectList>,
    log: Arc<MergeLog>,
    blocks: Arc<BlockLog>,
    flag_calls: Arc<FlagCallCounter>,
    waker: CompactionWaker,
}

impl EventCapture {
    pub(crate) fn new(
        projects: Arc<ProjectList>,
        log: Arc<MergeLog>,
        blocks: Arc<BlockLog>,
        flag_calls: Arc<FlagCallCounter>,
        waker: CompactionWaker,
    ) -> EventCapture {
        EventCapture { projects, log, blocks, flag_calls, waker }
    }

    /// Stores a captured batch that arrived at `now`.
    pub(crate) async fn append_encoded(
        &self,
        project: ProjectId,
        batch: EncodedBatch,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        // Merges first: repeating them changes nothing. If they failed after the batch was stored, the client
        // would resend it, and events without a uuid of their own would count twice.
        self.apply_merges(project, &batch, now).await?;
        self.append_block(project, batch, now).await
    }

    /// Applies the person merges that `batch` requests.
    pub(super) async fn apply_merges(
        &self,
        project: ProjectId,
        batch: &EncodedBatch,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        self.projects.start_project(project).await?;
        self.log.merge_persons(project, &batch.merging, now).await
    }

    /// The message of the block of `batch`; `None` if it is too large for one.
    pub(super) fn queued_message(
        &self,
        project: ProjectId,
        batch: &EncodedBatch,
        now: Micros,
    ) -> Result<Option<String>, EventStoreError> {
        self.blocks.queued_message(project, &batch.block, now)
    }

    /// Stores the events of `batch`, whose merges were applied, and wakes compaction.
    pub(super) async fn append_block(
        &self,
        project: ProjectId,
        batch: EncodedBatch,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        // The number of partitions may be outdated: readers find the block by its id in any case.
        let partitions = self.projects.start_project(project).await?;
        // In parallel: the worker runs a minute after it was woken.
        let (appended, refreshed, ()) = futures::join!(
            self.blocks.append(project, partitions, batch.block, now),
            self.projects.refresh_partitions(project),
            self.waker.wake(project, now)
        );
        appended?;
        if let Err(error) = refreshed {
            tracing::warn!(project, %error, "the number of block partitions could not be read; the known one is used");
        }
        self.flag_calls.invalidate();
        Ok(())
    }
}
