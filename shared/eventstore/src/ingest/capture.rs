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
use crate::manifest::ProjectList;
use crate::persons::MergeLog;

/// Appends captured batches.
#[derive(Debug)]
pub(crate) struct EventCapture {
    projects: Arc<ProjectList>,
    log: Arc<MergeLog>,
    blocks: Arc<BlockLog>,
    flag_calls: Arc<FlagCallCounter>,
}

impl EventCapture {
    pub(crate) fn new(
        projects: Arc<ProjectList>,
        log: Arc<MergeLog>,
        blocks: Arc<BlockLog>,
        flag_calls: Arc<FlagCallCounter>,
    ) -> EventCapture {
        EventCapture { projects, log, blocks, flag_calls }
    }

    /// Stores a captured batch that arrived at `now`.
    pub(crate) async fn append_encoded(
        &self,
        project: ProjectId,
        batch: EncodedBatch,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        self.projects.mark_project(project).await?;
        // Merges first: repeating them changes nothing. If they failed after the batch was stored, the client
        // would resend it, and events without a uuid of their own would count twice.
        self.log.merge_persons(project, &batch.merging).await?;
        self.blocks.append(project, batch.block, now).await?;
        self.flag_calls.invalidate();
        Ok(())
    }
}
